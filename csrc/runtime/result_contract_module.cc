// The contract of results for callers in Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "failure.h"
#include "gil.h"
#include "numpy.h"
#include "result_contract.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

using Sizes = std::vector<int64_t>;
using Shapes = std::vector<std::optional<Sizes>>;

// Returns the class of errors for results that do not fit. Leaked like everything that holds Python
// objects.
nb::object& ResultError() {
  static auto* error = new nb::object();
  return *error;
}

[[noreturn]] void Raise(const Failure& failure) {
  nb::object error = ResultError()(failure.what(), static_cast<int>(failure.code()));
  PyErr_SetObject(ResultError().ptr(), error.ptr());
  throw nb::python_error();
}

// Returns a dtype by its name. A dtype that arrays lack is that of strings, or fits no array.
Dtype DtypeNamed(const std::string& name, nb::handle convert) {
  if (const Dtype* known = FindDtype(name)) return *known;
  PyObject* objects = reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_OBJECT));
  return {nb::steal(objects), name, nb::borrow(convert)};
}

// Converts a checked array to the byte order of this machine.
nb::object InNativeOrder(nb::handle array) {
  if (PyArray_ISNOTSWAPPED(AsArray(array)) || PyArray_ISSTRING(AsArray(array))) {
    return nb::borrow(array);
  }
  PyArray_Descr* native = PyArray_DescrNewByteorder(PyArray_DESCR(AsArray(array)), NPY_NATIVE);
  return Checked(UntilExit([&] { return PyArray_CastToType(AsArray(array), native, 0); }));
}

// The declared results of one callback.
class ResultContract {
 public:
  ResultContract(std::string title, std::string description, const std::vector<std::string>& dtypes,
                 Shapes shapes, const std::vector<std::vector<bool>>& bounded, nb::handle convert)
      : title_(std::move(title)), description_(std::move(description)), shapes_(std::move(shapes)) {
    if (shapes_.size() != dtypes.size() || bounded.size() != dtypes.size()) {
      throw nb::value_error("hostcall: there is a shape for each dtype");
    }
    for (const std::string& name : dtypes) dtypes_.push_back(DtypeNamed(name, convert));
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const Dims dims = shapes_[i].has_value() ? Dims(*shapes_[i]) : Dims();
      declared_.push_back({&dtypes_[i], dims, bounded[i], !shapes_[i].has_value()});
    }
  }
  ResultContract(const ResultContract&) = delete;
  ResultContract& operator=(const ResultContract&) = delete;

  nb::list Arrays(nb::handle returned) const {
    DeferredDecrefScope decrefs;
    nb::list arrays;
    try {
      for (nb::handle array : ConvertResults(returned, declared_, Who(), decrefs)) {
        arrays.append(InNativeOrder(array));
      }
    } catch (const Failure& failure) {
      Raise(failure.In(description_));
    }
    return arrays;
  }

  void CheckShapes(const std::vector<Sizes>& shapes) const {
    try {
      for (size_t i = 0; i < shapes.size(); ++i) CheckShape(shapes[i], declared_.at(i), i, Who());
    } catch (const Failure& failure) {
      Raise(failure.In(description_));
    }
  }

 private:
  hostcall::Who Who() const {
    return [this] { return title_; };
  }

  const std::string title_;
  const std::string description_;
  const Shapes shapes_;
  std::vector<Dtype> dtypes_;
  std::vector<DeclaredResult> declared_;
};

}  // namespace

void DefineResultContract(nb::module_& m) {
  nb::class_<ResultContract>(m, "ResultContract", "What is declared of the results of a callback.")
      .def(
          nb::init<std::string, std::string, const std::vector<std::string>&, Shapes,
                   const std::vector<std::vector<bool>>&, nb::handle>(),
          nb::arg("title"), nb::arg("description"), nb::arg("dtypes"), nb::arg("shapes"),
          nb::arg("bounded"), nb::arg("convert"),
          "For each result the name of its dtype; its sizes, ANY_SIZE for unknown ones, or None; "
          "and "
          "which of these are bounds. `convert` makes an array of a value, and of a dtype or None, "
          "where the result is of a dtype that set_dtype does not know.")
      .def("arrays", &ResultContract::Arrays, nb::arg("returned").none(),
           "What a callback has returned, as a list of arrays in this machine's byte order, which "
           "share its memory where they can. Raises the class of set_result_error where it is not "
           "as declared.")
      .def("check_shapes", &ResultContract::CheckShapes, nb::arg("shapes"),
           "Raises that error where a shape is not as declared.");
  m.attr("ANY_SIZE") = DeclaredResult::kAnySize;
  m.def(
      "set_result_error", [](nb::object error) { ResultError() = std::move(error); },
      nb::arg("error"),
      "Sets the class of errors that are raised for results, of a message and a status code.");
  m.def("count_message", &CountMessage, nb::arg("who"), nb::arg("returned"), nb::arg("declared"),
        "The message for a wrong number of results.");
  m.def("shape_message", &ShapeMessage, nb::arg("who"), nb::arg("index"), nb::arg("actual"),
        nb::arg("declared"), "The message for a result of a wrong shape.");
}

}  // namespace hostcall
