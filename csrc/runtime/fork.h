// Mutexes and fork().
#pragma once

#include <pthread.h>

#include <mutex>

namespace hostcall {

// A base of classes with one object, which all threads share under `mutex_`. fork() waits for the
// mutex, so that it is free in the child, whatever the parent's other threads were doing. The
// object is leaked: threads may still use it while the process exits.
template <typename T>
class HeldAcrossFork {
 public:
  static T& Global() {
    static T* const global = [] {
      pthread_atfork([] { Global().mutex_.lock(); }, [] { Global().mutex_.unlock(); },
                     [] { Global().mutex_.unlock(); });
      return new T();
    }();
    return *global;
  }

 protected:
  std::mutex mutex_;
};

}  // namespace hostcall
