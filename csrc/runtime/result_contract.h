// What a callback has to return: how many results, of what dtypes and shapes. Whoever calls
// callbacks has their results checked here.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arrays.h"
#include "deferred_decref.h"
#include "recycled.h"

namespace hostcall {

struct Dtype;

// What is declared of a result.
struct DeclaredResult {
  const Dtype* dtype;
  // A size or, where `bounded` says so, the largest one; kAnySize where none is known.
  Dims dims = {};
  std::vector<bool> bounded = {};  // empty where no size is
  bool any_shape = false;          // not even the rank is known

  // No buffer has it, not even a malformed one of a size below 0.
  static constexpr int64_t kAnySize = INT64_MIN;
};

// What messages call the callback.
using Who = std::function<std::string()>;

// The values that a callback returned for `declared`, as arrays that fit it. A lone value counts as
// one, None as none. May run code of the user's (`__array__`). Throws Failure for all that does not
// fit, and names the callback by `who` in it. What it makes of Python's it gives to `decrefs`.
RecycledVector<nanobind::handle> ConvertResults(nanobind::handle returned,
                                                const std::vector<DeclaredResult>& declared,
                                                const Who& who, DeferredDecrefScope& decrefs);

// An array of one value that a callback returned. May run code of the user's.
nanobind::object ToArray(nanobind::handle value, const Dtype& expected, size_t index,
                         const Who& who);

// Throws Failure when the dtype or the shape of an array is not as declared.
void CheckArray(nanobind::handle array, const DeclaredResult& declared, size_t index,
                const Who& who);

void CheckShape(Dims dims, const DeclaredResult& declared, size_t index, const Who& who);

// The messages for a wrong count or shape.
std::string CountMessage(const std::string& who, size_t returned, size_t declared);
std::string ShapeMessage(const std::string& who, size_t index, const std::string& actual,
                         const std::string& declared);

// Defines the Python side of the above: what callers have that are no custom calls.
void DefineResultContract(nanobind::module_& m);

}  // namespace hostcall
