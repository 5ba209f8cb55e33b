// Threads for the callbacks that XLA asks for on threads of its own.
#pragma once

#include <functional>
#include <optional>

#include "xla/ffi/api/ffi.h"

namespace hostcall {

// Runs `task` on another thread, at once: the pool grows whenever no thread is idle. A callback may
// wait for another one, so a pool of a fixed size could hang.
void RunOnPool(std::function<void()> task);

// Runs `task` on another thread, or on this one if none can be started.
void RunOnPoolOrHere(const std::function<void()>& task) noexcept;

// Returns whether this thread is one of the pool's, all of which run callbacks.
bool OnPoolThread();

// Completes a future of XLA's, which may go on within, with a program that another thread has
// started.
void Complete(xla::ffi::Promise& promise, std::optional<xla::ffi::Error> error);

// Returns whether this thread is within `Complete`.
bool XlaGoesOnHere();

}  // namespace hostcall
