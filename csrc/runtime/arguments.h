// What a callback is called with: an array or a tensor for each operand, and arrays for the results
// where it writes these itself.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.h"
#include "call.h"
#include "deferred_decref.h"
#include "loans.h"
#include "results.h"
#include "small_vector.h"

namespace hostcall {

class Arguments {
 public:
  // All that it makes of Python's it gives to `decrefs`, which has to outlive it.
  // `target` is that of the callback.
  Arguments(const HostCall& call, nanobind::handle target, DeferredDecrefScope& decrefs);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // What the function returns.
  nanobind::handle Call(nanobind::handle function, DeferredDecrefScope& decrefs) const;

  // Stores what the function has written into the arrays for its results, as far as they do not lie
  // in XLA's memory already. Throws Failure where it returned something else than these.
  void StoreOut(nanobind::handle returned, const HostCall& call, const Who& who) const;

  // Whether anybody still refers to an array that was borrowed for the call alone, or has the
  // memory of one that was lent. What the function has returned must have been let go. May run code
  // of the user's.
  bool AnyIsStillReferenced() const;

 private:
  struct Out {
    nanobind::handle array;
    bool borrowed;
  };

  void MakeInputs(const HostCall& call, nanobind::handle target, DeferredDecrefScope& decrefs);
  void MakeOut(const HostCall& call, DeferredDecrefScope& decrefs);
  bool IsOut(nanobind::handle returned) const;
  bool AnyIsReferredTo() const;

  const size_t size_;
  SmallVector<nanobind::handle, 4> borrowed_;  // of the inputs
  Loans loans_;
  SmallVector<Out, 4> outs_;
  nanobind::handle out_;  // an array, or a tuple of several; null where there is none
  mutable SmallVector<PyObject*, 8> slots_;  // calls may write to the first one
};

}  // namespace hostcall
