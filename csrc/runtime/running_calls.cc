#include "running_calls.h"

#include <nanobind/nanobind.h>

#include <tuple>
#include <vector>

#include "module.h"
#include "numpy.h"

namespace nb = nanobind;

namespace hostcall {
namespace {

RunningCall* latest = nullptr;
uint64_t numbers = 0;

nb::list RunningCalls() {
  // To make Python objects may collect garbage, and so let other threads change the list.
  std::vector<std::tuple<uint64_t, std::string, unsigned long>> found;
  for (const RunningCall* call = RunningCall::Latest(); call != nullptr; call = call->next()) {
    found.emplace_back(call->number(), call->label(), call->thread());
  }
  nb::list calls;
  for (const auto& [number, label, thread] : found) {
    nb::object text = Checked(
        PyUnicode_DecodeUTF8(label.data(), static_cast<Py_ssize_t>(label.size()), "replace"));
    calls.append(nb::make_tuple(number, text, thread));
  }
  return calls;
}

}  // namespace

RunningCall::RunningCall(const std::string& label)
    : label_(label), number_(++numbers), thread_(PyThread_get_thread_ident()), next_(latest) {
  if (latest != nullptr) latest->previous_ = this;
  latest = this;
}

RunningCall::~RunningCall() { Unlink(); }

void RunningCall::Unlink() {
  (previous_ != nullptr ? previous_->next_ : latest) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

const RunningCall* RunningCall::Latest() { return latest; }

void RunningCall::ForgetOtherThreads() {
  const unsigned long here = PyThread_get_thread_ident();
  for (RunningCall* call = latest; call != nullptr; call = call->next_) {
    if (call->thread_ != here) call->Unlink();
  }
}

void DefineRunningCalls(nb::module_& m) {
  m.def("forget_calls_of_other_threads", &RunningCall::ForgetOtherThreads,
        "Forget the calls of other threads, which a forked child does not have.");
  m.def("running_calls", &RunningCalls,
        "Return the calls from compiled programs that run now: the number, the callback's label "
        "and the thread of each.");
}

}  // namespace hostcall
