// Python's strings as C++ strings, with any contents.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "gil.h"

namespace hostcall {

// Returns str(object) as UTF-8. Escapes characters that UTF-8 cannot encode (lone surrogates, as in
// the names of files that are not UTF-8) and NUL, which would cut a C string off. Never throws.
inline std::string Text(nanobind::handle object) {
  nanobind::object str = nanobind::steal(UntilExit([&] { return PyObject_Str(object.ptr()); }));
  nanobind::object bytes;
  if (str.is_valid()) {
    bytes = nanobind::steal(PyUnicode_AsEncodedString(str.ptr(), "utf-8", "backslashreplace"));
  }
  if (!bytes.is_valid()) {
    PyErr_Clear();
    return "(a text that Python could not make)";
  }
  std::string text(PyBytes_AS_STRING(bytes.ptr()), PyBytes_GET_SIZE(bytes.ptr()));
  for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) {
    text.replace(at, 1, "\\x00");
  }
  return text;
}

}  // namespace hostcall
