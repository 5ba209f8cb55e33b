// Threads for the callbacks that XLA asks for on threads of its own.
#pragma once

#include <functional>

namespace hostcall {

// Runs `task` on another thread, at once: the pool grows whenever no thread is idle. A callback may
// wait for another one, so a pool of a fixed size could hang.
void RunOnPool(std::function<void()> task);

// Returns whether this thread is one of the pool's, all of which run callbacks.
bool OnPoolThread();

// A scope in which XLA may go on, on this thread, with a program that another thread has started.
class GoingOn {
 public:
  GoingOn();
  ~GoingOn();
  GoingOn(const GoingOn&) = delete;
  GoingOn& operator=(const GoingOn&) = delete;

 private:
  const bool before_;
};

// Returns whether this thread is in a `GoingOn` scope.
bool XlaGoesOnHere();

}  // namespace hostcall
