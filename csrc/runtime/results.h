// Results of callbacks: the contract of their number, dtypes and shapes, and the storing of results
// in XLA's buffers. All code that calls callbacks has the results checked here.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "arrays.h"
#include "gil.h"

namespace hostcall {

struct Abandonment;
struct HostCall;
struct Dtype;

// The declaration of a result.
struct DeclaredResult {
  const Dtype* dtype;
  // The sizes: upper bounds where `bounded` says so, and kAnySize where unknown.
  Dims dims = {};
  std::vector<bool> bounded = {};  // empty if no size is bounded
  bool any_shape = false;          // the rank is unknown, too

  // No buffer has this size, not even a malformed one with a size below 0.
  static constexpr int64_t kAnySize = INT64_MIN;
};

// Which of a callback's results is meant, and how many are declared.
struct Which {
  size_t index;
  size_t count;
};

// The name of the callback in messages.
using Who = std::function<std::string()>;

// Converts the values that a callback returned to arrays that fit `declared`. A lone value counts
// as one, None as none. May run user code (`__array__`). Throws Failure for anything that does not
// fit, and names the callback by `who` in it. Gives all new Python objects to `decrefs`.
std::vector<nanobind::handle> ConvertResults(nanobind::handle returned,
                                             const std::vector<DeclaredResult>& declared,
                                             const Who& who, DeferredDecrefScope& decrefs);

// Converts one value that a callback returned to an array. May run user code.
nanobind::object ToArray(nanobind::handle value, const Dtype& expected, Which which,
                         const Who& who);

// Throws Failure if the dtype or the shape of an array is not as declared.
void CheckArray(nanobind::handle array, const DeclaredResult& declared, Which which,
                const Who& who);

void CheckShape(Dims dims, const DeclaredResult& declared, Which which, const Who& who);

// Write the messages for a wrong count or shape, and for rows of different lengths.
std::string CountMessage(const std::string& who, size_t returned, size_t declared);
std::string ShapeMessage(const std::string& who, size_t index, const std::string& actual,
                         const std::string& declared);
std::string RowsMessage(const std::string& who, size_t index);

// Returns the declaration that the buffer's program was compiled for.
DeclaredResult DeclaredAs(const Buffer& result);

// Stores what the callback, whose target and title these are, has returned. Runs user code.
void StoreResults(nanobind::handle returned, const HostCall& call, nanobind::handle target,
                  const Who& who, DeferredDecrefScope& decrefs);

// Copies an array that CheckArray has just passed, with no Python code run in between: the user may
// hold the array, and change its shape. Python's values reach XLA's memory in this file alone.
void CopyOut(nanobind::handle array, const Buffer& result);

// Converts the values that a callback returned, checks all of them, and then copies them, unless
// the call was given up; `abandonment` is null if it cannot be.
void ConvertAndStore(nanobind::handle returned, const Buffers& results, Abandonment* abandonment,
                     const Who& who, DeferredDecrefScope& decrefs);

// Returns `returned`, one value, a tuple or a list, with NumPy arrays in the place of other arrays
// in the host's memory. Runs user code.
nanobind::handle WithArraysOfHost(nanobind::handle returned, const Who& who,
                                  DeferredDecrefScope& decrefs);

// Stores results in the memory of the call's device: arrays there are copied directly, others
// through the host. Releases the GIL while it copies.
void StoreOnDevice(nanobind::handle returned, const HostCall& call, const Who& who,
                   DeferredDecrefScope& decrefs);

}  // namespace hostcall
