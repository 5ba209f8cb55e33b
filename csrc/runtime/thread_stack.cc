// The stack of another Python thread.
#include "module.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

// A scope without collections on any thread, under the GIL.
class WithoutCollections {
 public:
  WithoutCollections() : was_on_(PyGC_Disable()) {}
  ~WithoutCollections() {
    if (was_on_) PyGC_Enable();
  }
  WithoutCollections(const WithoutCollections&) = delete;
  WithoutCollections& operator=(const WithoutCollections&) = delete;

 private:
  int was_on_;
};

// Returns the frames of a thread with their current lines, innermost first, as traceback.walk_stack
// does for the calling thread. Returns an empty list if the thread runs no Python.
//
// Turns collections off: Python makes frame objects on request. Up to 3.11 that may collect
// garbage, and sys._current_frames does it under a lock that a collected threading.local takes,
// too: the process hangs. A finalizer may also release the GIL, and the thread leave the frame
// meanwhile. In C++, since another thread may run between two lines of Python and see the collector
// off.
nb::list StackOf(unsigned long thread) {
  nb::list stack;
  nb::object ask = nb::module_::import_("sys").attr("_current_frames");
  nb::object frames;
  const WithoutCollections off;
  frames = ask();
  nb::object frame = frames.attr("get")(thread);
  while (!frame.is_none()) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    stack.append(nb::make_tuple(frame, PyFrame_GetLineNumber(raw)));
    auto* back = reinterpret_cast<PyObject*>(PyFrame_GetBack(raw));
    frame = back == nullptr ? nb::none() : nb::steal(back);
  }
  return stack;
}

}  // namespace

void DefineThreadStack(nb::module_& m) {
  m.def("stack_of", &StackOf, nb::arg("thread"),
        "Return the frames of the thread with that identifier, and their current lines, "
        "the innermost first: what traceback.StackSummary.extract takes.");
}

}  // namespace hostcall
