// The parts of the extension module that nothing but the module uses, and the runtime's functions.
#pragma once

#include <nanobind/nanobind.h>

#include "runtime/host_api.h"

namespace hostcall {

// The functions of the runtime; set before hostcall is enabled.
inline const RuntimeApi* runtime = nullptr;

// For the runtime, which knows no TensorFlow: EagerTensors, and memory that callbacks borrow.
extern const TensorApi kEagerTensors;
extern const BufferProviderApi kBufferProvider;

void DefineBufferProvider(nanobind::module_& m);  // a count of the borrowed memory
void DefineCompilations(nanobind::module_& m);    // of clusters: their bound and counts
void DefineEagerTensors(nanobind::module_& m);    // copies of arrays as tensors
void DefineHostScriptOp(nanobind::module_& m);    // the script op of partitioned functions
void DefineLaunches(nanobind::module_& m);        // what is kept for as long as a program runs
void DefinePlainCalls(nanobind::module_& m);      // calls without TensorFlow's Python
void DefinePythonHooks(nanobind::module_& m);     // the functions that decide
void DefineRegionShapes(nanobind::module_& m);    // shapes of regions' results, for explanations
void DefineRelays(nanobind::module_& m);          // handlers of other versions of XLA's FFI
void DefineStarters(nanobind::module_& m);        // the settings of whoever runs a program

// Returns an EagerTensor on the CPU with the values of an array, or None if the caller must copy
// them: the array is not in C order or has no buffer, or the dtype, a number of TensorFlow's, has
// no fixed size.
nanobind::object CopyOfArray(nanobind::handle array, int dtype);

// Takes the text of an error of XLA's FFI, which it destroys; null if `error` is null.
nanobind::object TakeText(XLA_FFI_Error* error);

// Puts hostcall's kernel creator in the place of TensorFlow's, to which it delegates.
void InstallKernelCreator();

}  // namespace hostcall

// Custom call target "hostcall_region", by which a program calls a region. Its operands are the
// address of the launch's RegionScope, the inputs of the region, and perhaps a token. Its attribute
// `region` is the index of the region in the scope.
extern "C" XLA_FFI_Error* HostcallRegionHandler(XLA_FFI_CallFrame* frame);

// Custom call target "hostcall_order", a barrier between calls with side effects and a loop or a
// branch that holds some. Its operands are an integer, which it returns, and a token.
extern "C" XLA_FFI_Error* HostcallOrderHandler(XLA_FFI_CallFrame* frame);

// Custom call target "hostcall_where", which looks for the elements of a mask that are true. Its
// operands are the mask and its sizes, its results the places of these elements and their number.
extern "C" XLA_FFI_Error* HostcallWhereHandler(XLA_FFI_CallFrame* frame);
