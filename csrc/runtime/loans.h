// Arrays that a function is lent for the length of a call: what others take by DLPack, or by
// __cuda_array_interface__, wherever they lie.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "arrays.h"
#include "device.h"

namespace hostcall {

// One array. The class DeviceArray of hostcall_runtime._device_arrays shows it to users. All of it
// wants the GIL.
class Loan {
 public:
  // Of an array of NumPy's, which is kept as long as somebody has the memory.
  explicit Loan(nanobind::object array);

  // Of a device's memory, which nobody can keep.
  Loan(const Buffer& buffer, const Place& place);

  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  bool is_over() const { return over_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }  // in elements
  nanobind::object dtype() const { return dtype_; }
  const Place& place() const { return place_; }

  // What has the two methods of DLPack, for one more user of the memory. `code` and `bits` are
  // DLPack's dtype.
  static nanobind::object Export(const std::shared_ptr<Loan>& loan, int code, int bits);

  // A read-only array of NumPy's, for one more user of the host's memory.
  static nanobind::object View(const std::shared_ptr<Loan>& loan);

  // The address, for somebody who keeps the object that shows it.
  uintptr_t Expose();

  // Whether somebody has the memory; `shown` is the object that shows this, and has one reference.
  bool IsUsed(nanobind::handle shown) const;

  // What shows it refuses from now on.
  void End();

 private:
  struct Use;

  void CheckLasts() const;
  static nanobind::object NewUse(const std::shared_ptr<Loan>& loan);

  nanobind::object owner_;  // null where the memory is a device's, or the loan is over
  void* data_;
  nanobind::object dtype_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  Place place_;
  std::atomic<int> uses_{0};
  bool exposed_ = false;
  bool over_ = false;
};

// Those of one call, which end with this.
class Loans {
 public:
  Loans() = default;
  ~Loans() { End(); }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // What shows an operand to the function: over the memory of the operand itself on a device, and
  // where that can be kept if `share` says so, and else over a copy.
  nanobind::object Lend(const Buffer& operand, const Place& place, bool share);

  // What shows an array of NumPy's.
  nanobind::object Lend(nanobind::object array);

  // Whether somebody has the memory of one. The objects that show them must have one reference by
  // now, but for what others have. May run code of the user's.
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

// Defines the Python side of the above.
void DefineLoans(nanobind::module_& m);

}  // namespace hostcall
