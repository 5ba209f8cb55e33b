// What callbacks return, into XLA's buffers.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <string>

#include "arrays.h"

namespace hostcall {

// The values that a callback returned for `count` results, as a tuple; a lone value counts as one,
// None as none.
nanobind::object SplitResults(nanobind::handle returned, size_t count);

// What messages call the callback.
using Who = std::function<std::string()>;

// Throws Failure when the numbers differ. `who` names the callback in it, as in all that follow.
void CheckCount(size_t returned, size_t count, const Who& who);

// `value` as an array. May run code of the user's (`__array__`). Throws Failure for None.
nanobind::object ToArray(nanobind::handle value, const Buffer& result, size_t index,
                         const Who& who);

// Throws Failure when the dtype or the shape of the array is not that of `result`.
void CheckArray(nanobind::handle array, const Buffer& result, size_t index, const Who& who);

// Whether a value is an array that CheckArray would pass, and that can be copied as it lies in
// memory. Runs no code of the user's.
bool IsAsDeclared(nanobind::handle value, const Buffer& result);

// Copies an array that CheckArray has just passed, with no Python code run in between: the user may
// hold the array, and change its shape. XLA's memory is written here and nowhere else.
void CopyOut(nanobind::handle array, const Buffer& result);

// Copies data that lies in memory as the result is to, whose sizes are all static.
void StoreBytes(const void* data, const Buffer& result);

}  // namespace hostcall
