// Threads for the callbacks that XLA asks for on threads of its own.
#pragma once

#include <functional>

namespace hostcall {

// Runs `task` on another thread, at once: the pool grows whenever no thread is idle. A callback may
// wait for another one, so that a pool of a fixed size could hang.
void RunOnPool(std::function<void()> task);

// Whether this thread is one of the pool's, all of which run callbacks.
bool OnPoolThread();

}  // namespace hostcall
