// Mutexes and fork().
#pragma once

#include <pthread.h>

#include <mutex>

namespace hostcall {

// Makes a mutex of static life free in a forked child, whatever the parent's other threads were
// doing: fork() waits for it. Call it once for each mutex.
template <std::mutex& (*mutex)()>
void HoldAcrossFork() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

// A base of classes with one object, which all threads share under `mutex_`. The object is leaked:
// threads may still use it while the process exits.
template <typename T>
class HeldAcrossFork {
 public:
  static T& Global() {
    static T* const global = [] {
      HoldAcrossFork<&HeldAcrossFork::Mutex>();
      return new T();
    }();
    return *global;
  }

 protected:
  std::mutex mutex_;

 private:
  static std::mutex& Mutex() { return Global().mutex_; }
};

}  // namespace hostcall
