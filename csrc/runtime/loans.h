// Arrays lent to a function for one call. Other libraries take them by DLPack, or by
// __cuda_array_interface__, on a device or the host.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "arrays.h"

namespace hostcall {

// A lent array. The class DeviceArray of hostcall_runtime._device_arrays shows it to users. All
// members need the GIL.
class Loan {
 public:
  // Lends a NumPy array, which is kept while its memory has a user.
  explicit Loan(nanobind::object array);

  // Lends a device's memory, which nothing can keep from being freed.
  Loan(const Buffer& buffer, const Place& place);

  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  bool is_over() const { return over_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }  // in elements
  nanobind::object dtype() const { return dtype_; }
  const Place& place() const { return place_; }

  // Returns an object with DLPack's two methods, for one more user of the memory. `code` and `bits`
  // are DLPack's dtype.
  static nanobind::object Export(const std::shared_ptr<Loan>& loan, int code, int bits);

  // Returns a read-only NumPy array, for one more user of the host's memory.
  static nanobind::object View(const std::shared_ptr<Loan>& loan);

  // Returns the address, for a user who keeps the object that shows the loan.
  uintptr_t Expose();

  // Returns whether the memory has a user. `shown` shows this loan, and has one reference.
  bool IsUsed(nanobind::handle shown) const;

  // Ends the loan: the object that shows it refuses all use from now on.
  void End();

 private:
  struct Use;

  void CheckLasts() const;
  static nanobind::object NewUse(const std::shared_ptr<Loan>& loan);

  nanobind::object owner_;  // null for a device's memory, and when the loan is over
  void* data_;
  nanobind::object dtype_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  Place place_;
  std::atomic<int> uses_{0};
  bool exposed_ = false;
  bool over_ = false;
};

// The loans of one call, which end with this object.
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
