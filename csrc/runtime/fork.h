// Mutexes and fork().
#pragma once

#include <pthread.h>

#include <mutex>

namespace hostcall {

// Makes a mutex of static life free in a forked child, whatever the parent's other threads were
// doing: fork() waits for it. To be called once for each.
template <std::mutex& (*mutex)()>
void HoldAcrossFork() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

}  // namespace hostcall
