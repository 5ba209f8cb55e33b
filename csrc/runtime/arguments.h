// The arguments of a callback: an array or a tensor for each operand, and arrays for the results if
// it writes these itself.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "arrays.h"
#include "call.h"
#include "gil.h"
#include "results.h"
#include "small_vector.h"

namespace hostcall {

class Loans;

class Arguments {
 public:
  // Makes the arguments for `target`, that of the callback. Gives all new Python objects to
  // `decrefs`, which has to outlive this.
  Arguments(const HostCall& call, nanobind::handle target, DeferredDecrefScope& decrefs);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // Calls the function and returns its value.
  nanobind::handle Call(nanobind::handle function, DeferredDecrefScope& decrefs) const;

  // Stores the values that the function has written into the arrays for its results, unless they
  // lie in XLA's memory already. Throws Failure if it returned anything other than these arrays.
  void StoreOut(nanobind::handle returned, const HostCall& call, const Who& who) const;

  // Returns whether something still refers to an array that was borrowed for the call alone, or
  // uses the memory of a lent one. The returned objects must have been dropped. May run user code.
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
  std::unique_ptr<Loans> loans_;               // null unless arrays are lent
  SmallVector<Out, 4> outs_;
  nanobind::handle out_;                     // an array, or a tuple of several; null without any
  mutable SmallVector<PyObject*, 8> slots_;  // calls may write to the first one
};

}  // namespace hostcall
