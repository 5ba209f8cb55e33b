#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "failure.h"
#include "module.h"
#include "numpy.h"
#include "results.h"
#include "text.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace hostcall {
namespace {

bool IsBounded(const DeclaredResult& declared, size_t dim) {
  return dim < declared.bounded.size() && declared.bounded[dim];
}

std::string ShapeString(const DeclaredResult& declared) {
  const Dims dims = declared.dims;
  std::string text = "(";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    if (IsBounded(declared, i)) text += "<=";
    text += dims[i] == DeclaredResult::kAnySize ? "None" : std::to_string(dims[i]);
  }
  return text + (dims.size() == 1 ? ",)" : ")");
}

bool ShapeFits(Dims dims, const DeclaredResult& declared) {
  if (declared.any_shape) return true;
  if (dims.size() != declared.dims.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = declared.dims[i];
    if (size == DeclaredResult::kAnySize) continue;
    if (IsBounded(declared, i) ? dims[i] > size : dims[i] != size) return false;
  }
  return true;
}

// Functions of hostcall_runtime._remedies. Leaked like everything that holds Python objects.
nb::object& remedy_of_count = *new nb::object();
nb::object& remedy_of_dtype = *new nb::object();
nb::object& remedy_of_shape = *new nb::object();
nb::object& remedy_of_rows = *new nb::object();

// Returns the lines to write, or "" where nobody has set the functions.
template <typename... Arguments>
std::string Remedy(nb::handle function, const Arguments&... arguments) {
  return function.is_valid() ? Text(nb::str(function(arguments...))) : "";
}

std::string DtypeRemedy(Which which, const Dtype& expected, const std::string& actual) {
  return Remedy(remedy_of_dtype, which.index, which.count, expected.name, actual);
}

std::string CountRemedy(nb::handle returned, const std::vector<DeclaredResult>& declared) {
  nb::list dtypes;
  for (const DeclaredResult& one : declared) dtypes.append(one.dtype->name);
  return Remedy(remedy_of_count, returned, dtypes);
}

std::string ShapeRemedy(Which which, Dims dims, const DeclaredResult& declared) {
  nb::list bounded;
  for (size_t i = 0; i < declared.dims.size(); ++i) {
    if (IsBounded(declared, i)) bounded.append(i);
  }
  return Remedy(remedy_of_shape, which.index, which.count, declared.dtype->name, TupleOf(dims),
                TupleOf(declared.dims), bounded);
}

std::string RowsRemedy(Which which, const Dtype& expected) {
  return Remedy(remedy_of_rows, which.index, which.count, expected.name);
}

// Returns whether an error is NumPy's or TensorFlow's for nested lists of different lengths.
bool IsOfRows(const nb::python_error& error) {
  if (!error.matches(PyExc_ValueError)) return false;
  const std::string text = Text(error.value());
  return text.find("inhomogeneous shape") != std::string::npos;
}

std::string Subject(size_t index, const std::string& who) {
  return std::to_string(index) + "-th value returned by " + who;
}

bool IsEmptyList(nb::handle value) {
  return nb::isinstance<nb::list>(value) && nb::len(value) == 0;
}

// Accepts NumPy's form of a lone None, too: stock TensorFlow counts it as no value at all.
bool IsNone(nb::handle value) {
  if (value.is_none()) return true;
  if (!PyArray_Check(value.ptr())) return false;
  PyArrayObject* array = AsArray(value);
  if (PyArray_TYPE(array) != NPY_OBJECT || PyArray_NDIM(array) != 0) return false;
  return Checked(PyArray_GETITEM(array, static_cast<char*>(PyArray_DATA(array)))).is_none();
}

// Returns the values for `count` results, as a tuple.
nb::object SplitResults(nb::handle returned, size_t count) {
  if (count == 1 && IsEmptyList(returned)) {
    return nb::make_tuple(returned);  // one empty value, rather than no value
  }
  if (nb::isinstance<nb::list>(returned) || nb::isinstance<nb::tuple>(returned)) {
    return Checked(PySequence_Tuple(returned.ptr()));
  }
  return IsNone(returned) ? nb::make_tuple() : nb::make_tuple(returned);
}

// Makes an array of the value, of the wanted dtype if that is valid.
nb::object Converted(nb::handle value, const Dtype& expected, nb::object& wanted) {
  if (expected.convert.is_valid()) {
    return Checked(UntilExit([&] {
      return PyObject_CallFunctionObjArgs(expected.convert.ptr(), value.ptr(),
                                          wanted.is_valid() ? wanted.ptr() : Py_None, nullptr);
    }));
  }
  return Checked(UntilExit([&] {
    return PyArray_FromAny(value.ptr(), AsDescr(wanted.release()), 0, 0, NPY_ARRAY_ENSUREARRAY,
                           nullptr);
  }));
}

}  // namespace

nb::object ToArray(nb::handle value, const Dtype& expected, Which which, const Who& who) {
  if (IsNone(value)) {
    // TensorFlow's class for this error.
    throw Failure(ffi::ErrorCode::kInternal,
                  "Unsupported object type NoneType: " + Subject(which.index, who()) +
                      " is None, but expects " + expected.name + ".")
        .With(DtypeRemedy(which, expected, "None"));
  }
  // An empty list's own dtype would be float64, whatever the function means to return.
  nb::object wanted = IsEmptyList(value) ? expected.descr : nb::object();
  try {
    return Converted(value, expected, wanted);
  } catch (const nb::python_error& error) {
    if (!IsOfRows(error)) throw;
  }
  throw Failure::InvalidArgument(RowsMessage(who(), which.index)).With(RowsRemedy(which, expected));
}

std::string CountMessage(const std::string& who, size_t returned, size_t declared) {
  return who + " returns " + std::to_string(returned) + " values, but expects to see " +
         std::to_string(declared) + " values.";
}

std::string ShapeMessage(const std::string& who, size_t index, const std::string& actual,
                         const std::string& declared) {
  return Subject(index, who) + " has shape " + actual + ", but its declared shape is " + declared +
         ".";
}

std::string RowsMessage(const std::string& who, size_t index) {
  return Subject(index, who) + " is not an array: it has rows of different lengths.";
}

void CheckShape(Dims dims, const DeclaredResult& declared, Which which, const Who& who) {
  if (ShapeFits(dims, declared)) return;
  throw Failure::InvalidArgument(
      ShapeMessage(who(), which.index, ShapeString({nullptr, dims}), ShapeString(declared)))
      .With(ShapeRemedy(which, dims, declared));
}

void CheckArray(nb::handle array, const DeclaredResult& declared, Which which, const Who& who) {
  if (!HasDtype(array, *declared.dtype)) {
    const std::string actual = NameOfDtype(array);
    throw Failure::InvalidArgument(Subject(which.index, who()) + " is " + actual +
                                   ", but expects " + declared.dtype->name + ".")
        .With(DtypeRemedy(which, *declared.dtype, actual));
  }
  CheckShape(DimsOf(AsArray(array)), declared, which, who);
}

std::vector<nb::handle> ConvertResults(nb::handle returned,
                                       const std::vector<DeclaredResult>& declared, const Who& who,
                                       DeferredDecrefScope& decrefs) {
  nb::handle values = decrefs.Defer(SplitResults(returned, declared.size()));
  if (nb::len(values) != declared.size()) {
    throw Failure::InvalidArgument(CountMessage(who(), nb::len(values), declared.size()))
        .With(CountRemedy(returned, declared));
  }
  const size_t count = declared.size();
  std::vector<nb::handle> arrays;
  for (size_t i = 0; i < declared.size(); ++i) {
    nb::handle value = PyTuple_GET_ITEM(values.ptr(), static_cast<Py_ssize_t>(i));
    arrays.push_back(decrefs.Defer(ToArray(value, *declared[i].dtype, {i, count}, who)));
  }
  for (size_t i = 0; i < count; ++i) CheckArray(arrays[i], declared[i], {i, count}, who);
  return arrays;
}

namespace {

using Sizes = std::vector<int64_t>;
using Shapes = std::vector<std::optional<Sizes>>;

// Returns the class of errors for results that do not fit. Leaked like everything that holds Python
// objects.
nb::object& result_error = *new nb::object();

[[noreturn]] void Raise(const Failure& failure) {
  nb::object error = result_error(failure.what(), static_cast<int>(failure.code()));
  PyErr_SetObject(result_error.ptr(), error.ptr());
  throw nb::python_error();
}

// Returns a dtype by its name. A dtype that arrays lack is that of strings, or fits no array.
Dtype DtypeNamed(const std::string& name, nb::handle convert) {
  for (const Dtype& known : *dtypes) {
    if (known.descr.is_valid() && known.name == name) return known;
  }
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
      for (size_t i = 0; i < shapes.size(); ++i) {
        CheckShape(shapes[i], declared_.at(i), {i, declared_.size()}, Who());
      }
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
  nb::class_<ResultContract>(m, "ResultContract", "The declared results of a callback.")
      .def(nb::init<std::string, std::string, const std::vector<std::string>&, Shapes,
                    const std::vector<std::vector<bool>>&, nb::handle>(),
           nb::arg("title"), nb::arg("description"), nb::arg("dtypes"), nb::arg("shapes"),
           nb::arg("bounded"), nb::arg("convert"),
           "For each result the name of its dtype; its sizes, ANY_SIZE for unknown ones, or None; "
           "and which of these are bounds. `convert` makes an array of a value, and of a dtype or "
           "None, where the result is of a dtype that set_dtype does not know.")
      .def("arrays", &ResultContract::Arrays, nb::arg("returned").none(),
           "Return a callback's results as a list of arrays in this machine's byte order, which "
           "share its memory where they can. Raises the class of set_result_error where it is not "
           "as declared.")
      .def("check_shapes", &ResultContract::CheckShapes, nb::arg("shapes"),
           "Raise that error where a shape is not as declared.");
  m.attr("ANY_SIZE") = DeclaredResult::kAnySize;
  m.def(
      "set_result_error", [](nb::object error) { result_error = std::move(error); },
      nb::arg("error"),
      "Set the class of errors that are raised for results, of a message and a status code.");
  m.def(
      "set_remedies",
      [](nb::object of_count, nb::object of_dtype, nb::object of_shape, nb::object of_rows) {
        remedy_of_count = std::move(of_count);
        remedy_of_dtype = std::move(of_dtype);
        remedy_of_shape = std::move(of_shape);
        remedy_of_rows = std::move(of_rows);
      },
      nb::arg("of_count"), nb::arg("of_dtype"), nb::arg("of_shape"), nb::arg("of_rows"),
      "Set the functions that return the lines to write for results of a wrong number, dtype or "
      "shape, and of rows of different lengths; see hostcall_runtime._remedies.");
  m.def("count_message", &CountMessage, nb::arg("who"), nb::arg("returned"), nb::arg("declared"),
        "Return the message for a wrong number of results.");
  m.def("shape_message", &ShapeMessage, nb::arg("who"), nb::arg("index"), nb::arg("actual"),
        nb::arg("declared"), "Return the message for a result of a wrong shape.");
}

}  // namespace hostcall
