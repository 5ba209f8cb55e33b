// Arrays lent to a function for one call, on a device or the host. Users see them as the class
// DeviceArray of hostcall_runtime._device_arrays.
//
// nanobind's ndarray makes DLPack's capsules here and reads them in device_results.cc. It cannot be
// the lent array itself: it does not end with a call, nor say whether others still have the memory.
// It shows Python no address, shape and strides of a device's memory, so that there can be no
// __cuda_array_interface__. NumPy takes no bfloat16 and no float8 from it. And it asks other
// libraries for a capsule without the stream that their arrays have to be ready on.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "arrays.h"

namespace hostcall {

class Loan;

// The loans of one call, which end with this object. All members need the GIL.
class Loans {
 public:
  Loans() = default;
  ~Loans() { End(); }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // Returns an object that shows an operand to the function: over the operand's own memory on a
  // device, or on the host if `share` is set and that memory can be kept; otherwise over a copy.
  nanobind::object Lend(const Buffer& operand, const Place& place, bool share);

  // Returns an object that shows a NumPy array.
  nanobind::object Lend(nanobind::object array);

  // Returns whether any lent memory has a user. By now only users may hold further references to
  // the objects that show the loans. May run user code.
  bool AnyIsUsed() const;

  void End();

 private:
  struct Lent {
    std::shared_ptr<Loan> loan;
    nanobind::handle shown;
  };

  nanobind::object Show(std::shared_ptr<Loan> loan);

  std::vector<Lent> lent_;
};

}  // namespace hostcall
