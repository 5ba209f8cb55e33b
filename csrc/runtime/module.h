// The parts of the extension module, which define their Python sides.
#pragma once

#include <nanobind/nanobind.h>

namespace hostcall {

void DefineAnnotations(nanobind::module_& m);     // calls as events of a profiler
void DefineDeviceResults(nanobind::module_& m);   // returned arrays of other libraries
void DefineLoans(nanobind::module_& m);           // arrays that are lent for a call
void DefineNative(nanobind::module_& m);          // native code
void DefineResultContract(nanobind::module_& m);  // the results of callers other than custom calls
void DefineRunningCalls(nanobind::module_& m);    // the calls that run now
void DefineThreadStack(nanobind::module_& m);     // the stack of another thread

}  // namespace hostcall
