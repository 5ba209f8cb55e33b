#include "thread_uses.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace hostcall {
namespace {

bool Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool Register() { return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

// False on old systems, and if a sandbox refuses it. Asked when the module is loaded: it takes long
// if there are many threads, and a child forked meanwhile would wait for ever.
const bool can_interrupt = Register();

}  // namespace

bool ThreadUses::Settle() {
  if (!can_interrupt || Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
  // A forked child may have to register anew.
  return Register() && Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

// The end of a thread, which gives its record back. Objects in use may have gone to another thread.
struct ThreadUses::End {
  ~End() {
    std::exchange(record_, nullptr)->taken.store(false, std::memory_order_release);
    is_over_ = true;
  }
};

ThreadUses::Record* ThreadUses::Prepare() {
  if (is_over_ || !can_interrupt) return nullptr;
  record_ = TakeRecord();
  static thread_local const End end;
  (void)end;
  return record_;
}

ThreadUses::Record* ThreadUses::TakeRecord() {
  for (Record* record = first_.load(); record != nullptr; record = record->next) {
    bool taken = false;
    if (record->taken.compare_exchange_strong(taken, true)) return record;
  }
  auto* made = new Record();
  made->next = first_.load();
  while (!first_.compare_exchange_weak(made->next, made)) {
  }
  return made;
}

}  // namespace hostcall
