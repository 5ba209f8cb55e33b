// What callbacks return, into XLA's buffers.
#pragma once

#include <nanobind/nanobind.h>

#include "arrays.h"
#include "result_contract.h"

namespace hostcall {

// What the program that a buffer belongs to was compiled for.
DeclaredResult DeclaredAs(const Buffer& result);

// Whether a value is an array that CheckArray would pass, and that can be copied as it lies in
// memory. Runs no code of the user's.
bool IsAsDeclared(nanobind::handle value, const Buffer& result);
void CopyAsDeclared(nanobind::handle array, const Buffer& result);

// The same of a lone value, which is no array: a scalar of NumPy's, a float or a bool.
bool IsScalarAsDeclared(nanobind::handle value, const Buffer& result);
void CopyScalarOut(nanobind::handle value, const Buffer& result);

// Copies an array that CheckArray has just passed, with no Python code run in between: the user may
// hold the array, and change its shape. XLA's memory is written here and nowhere else.
void CopyOut(nanobind::handle array, const Buffer& result);

// Copies data that lies in memory as all of the result is to.
void StoreBytes(const void* data, size_t size, const Buffer& result);

}  // namespace hostcall
