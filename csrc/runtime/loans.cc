#include "loans.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "failure.h"
#include "gil.h"
#include "module.h"
#include "numpy.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// Returns the class that shows a loan. Leaked like everything that holds Python objects.
nb::object& device_array = *new nb::object();

// The time of one wait for others to let go of memory, and the number of waits.
constexpr std::chrono::milliseconds kPause{5};
constexpr int kTries = 100;

std::vector<int64_t> ToVector(Dims dims) { return {dims.begin(), dims.end()}; }

std::vector<int64_t> StridesOf(Dims allocated) {
  std::vector<int64_t> strides(allocated.size());
  int64_t stride = 1;
  for (size_t i = allocated.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= allocated[i];
  }
  return strides;
}

// Returns a copy without other users, an array even for rank 0.
nb::object Copy(const Buffer& buffer, Dims dims) {
  nb::object view = View(buffer, dims, /*flags=*/0);
  return Checked(UntilExit([&] { return PyArray_NewCopy(AsArray(view), NPY_CORDER); }));
}

bool IsPlain(const Buffer& buffer) { return buffer.visible_dtype == buffer.dtype; }

void CheckIsPlain(const Buffer& buffer) {
  if (IsPlain(buffer)) return;
  throw Failure::InvalidArgument(
      "hostcall: an operand is " + DtypeOf(buffer.visible_dtype).name +
      ", whose elements take less than a byte, and memory=\"device\" has no arrays of such. Cast "
      "it to int8 around the call, or remove memory=\"device\".");
}

}  // namespace

// A lent array, which a DeviceArray shows to users. All members need the GIL.
class Loan {
 public:
  // Lends a NumPy array, which is kept while its memory has a user.
  explicit Loan(nb::object array)
      : owner_(Checked(UntilExit([&] {
          return PyArray_FromAny(array.ptr(), nullptr, 0, 0,
                                 NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_ENSUREARRAY,
                                 nullptr);
        }))),
        data_(PyArray_DATA(AsArray(owner_))),
        dtype_(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(AsArray(owner_))))),
        shape_(ToVector(DimsOf(AsArray(owner_)))),
        strides_(StridesOf(DimsOf(AsArray(owner_)))) {}

  // Lends a device's memory, which nothing can keep from being freed.
  Loan(const Buffer& buffer, const Place& place)
      : data_(buffer.data),
        dtype_(DtypeOf(buffer.dtype).descr),
        shape_(ToVector(buffer.shape())),
        strides_(StridesOf(buffer.dims)),
        place_(place) {}

  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  bool is_over() const { return over_; }
  nb::tuple shape() const { return TupleOf(shape_); }
  nb::tuple strides() const { return TupleOf(strides_); }  // in elements
  nb::object dtype() const { return dtype_; }
  const Place& place() const { return place_; }

  // Returns an object with DLPack's two methods, for one more user of the memory. `code` and `bits`
  // are DLPack's dtype.
  static nb::object Export(const std::shared_ptr<Loan>& loan, int code, int bits) {
    const nb::dlpack::dtype dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
    const std::vector<size_t> shape(loan->shape_.begin(), loan->shape_.end());
    const nb::object use = NewUse(loan);
    return nb::cast(nb::ndarray<nb::array_api, nb::ro>(loan->data_, shape.size(), shape.data(), use,
                                                       loan->strides_.data(), dtype,
                                                       loan->place_.type, loan->place_.id));
  }

  // Returns a read-only NumPy array, for one more user of the host's memory.
  static nb::object View(const std::shared_ptr<Loan>& loan) {
    nb::object use = NewUse(loan);
    if (!loan->owner_.is_valid()) throw nb::buffer_error("hostcall: the array is on a device");
    return ArrayOver(loan->data_, loan->dtype_, loan->shape_, nullptr, /*flags=*/0, std::move(use));
  }

  // Returns the address, for a user who keeps the object that shows the loan.
  uintptr_t Expose() {
    CheckLasts();
    exposed_ = true;
    return reinterpret_cast<uintptr_t>(data_);
  }

  // Returns whether the memory has a user. `shown` shows this loan, and has one reference.
  bool IsUsed(nb::handle shown) const {
    return uses_ > 0 || (exposed_ && Py_REFCNT(shown.ptr()) > 1);
  }

  // Ends the loan: the object that shows it refuses all use from now on.
  void End() {
    over_ = true;
    owner_ = nb::object();  // users have their own references
  }

 private:
  // One user of the memory, which keeps it by its owner.
  struct Use {
    explicit Use(const std::shared_ptr<Loan>& of) : loan(of), owner(of->owner_) { ++loan->uses_; }
    ~Use() { --loan->uses_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    const std::shared_ptr<Loan> loan;
    const nb::object owner;
  };

  void CheckLasts() const {
    if (over_) throw nb::buffer_error("hostcall: the array was lent for a call that has ended");
  }

  static nb::object NewUse(const std::shared_ptr<Loan>& loan) {
    loan->CheckLasts();
    auto use = std::make_unique<Use>(loan);
    nb::capsule capsule(use.get(), [](void* used) noexcept { delete static_cast<Use*>(used); });
    use.release();
    return capsule;
  }

  nb::object owner_;  // null for a device's memory, and when the loan is over
  void* const data_;
  const nb::object dtype_;
  const std::vector<int64_t> shape_;
  const std::vector<int64_t> strides_;
  const Place place_;
  std::atomic<int> uses_{0};
  bool exposed_ = false;
  bool over_ = false;
};

nb::object Loans::Lend(const Buffer& operand, const Place& place, bool share) {
  // Checked first: NumPy gets these dimensions if the operand is copied.
  if (SizeInBytes(operand) < 0 || operand.dims.size() > NPY_MAXDIMS) throw Failure::Malformed();
  if (place.type != Place::kCpu) {
    CheckIsPlain(operand);
    return Show(std::make_shared<Loan>(operand, place));
  }
  if (!IsPlain(operand)) return Lend(ToNumpy(operand));
  if (share && operand.dims.size() > 0) return Lend(Borrow(operand, /*share=*/true));
  return Lend(Copy(operand, operand.shape()));
}

nb::object Loans::Lend(nb::object array) { return Show(std::make_shared<Loan>(std::move(array))); }

nb::object Loans::Show(std::shared_ptr<Loan> loan) {
  nb::object shown = device_array(loan);
  lent_.push_back({std::move(loan), shown});
  return shown;
}

bool Loans::AnyIsUsed() const {
  const auto used = [](const Lent& lent) { return lent.loan->IsUsed(lent.shown); };
  if (std::none_of(lent_.begin(), lent_.end(), used)) return false;
  // A cycle that the function has left behind has no user any more.
  CollectGarbage();
  // Libraries with threads of their own, like JAX, let go a little after they have returned.
  for (int i = 0; i < kTries && std::any_of(lent_.begin(), lent_.end(), used); ++i) {
    WithoutGil([] { std::this_thread::sleep_for(kPause); });
  }
  return std::any_of(lent_.begin(), lent_.end(), used);
}

void Loans::End() {
  for (const Lent& lent : lent_) lent.loan->End();
}

namespace {

// The loans of a call that no compiled program makes, and the objects that show them.
struct LoansOfArrays : Loans {
  explicit LoansOfArrays(const nb::list& arrays) {
    for (nb::handle array : arrays) shown.append(Lend(nb::borrow(array)));
  }
  ~LoansOfArrays() { End(); }  // before others see that the objects go

  nb::list shown;
};

}  // namespace

void DefineLoans(nb::module_& m) {
  nb::class_<Loan>(m, "Loan", "An array that is lent for a call.")
      .def_prop_ro("is_over", &Loan::is_over)
      .def_prop_ro("shape", &Loan::shape)
      .def_prop_ro("strides", &Loan::strides)
      .def_prop_ro("dtype", &Loan::dtype)
      .def_prop_ro("device",
                   [](const Loan& loan) { return std::pair(loan.place().type, loan.place().id); })
      .def_prop_ro("stream", [](const Loan& loan) { return loan.place().stream; })
      .def("export", &Loan::Export, nb::arg("code"), nb::arg("bits"),
           "Return an object with DLPack's methods and dtype, for one more user of the memory.")
      .def("view", &Loan::View, "Return a read-only array, for one more user of the host's memory.")
      .def("expose", &Loan::Expose,
           "Return the address, for a user who keeps the object that shows the loan.");
  nb::class_<LoansOfArrays>(m, "Loans", "NumPy arrays that are lent for a call.")
      .def(nb::init<const nb::list&>(), nb::arg("arrays"))
      .def_ro("shown", &LoansOfArrays::shown, "The arguments of the function.")
      .def("any_is_used", &LoansOfArrays::AnyIsUsed,
           "Return whether an array is still used, or an argument referred to elsewhere.")
      .def("end", &LoansOfArrays::End,
           "End the loans, so that the objects that show them refuse further use.");
  m.def(
      "set_device_array", [](nb::object shows) { device_array = std::move(shows); },
      nb::arg("shows"), "Set the class that shows a Loan to users.");
}

}  // namespace hostcall
