// What each thread is using, written down where others see it, so that nobody frees it meanwhile.
//
// These are hazard pointers. To count users costs two locked instructions a use, which take as long
// as all else that is done for a small call. Here it costs two plain stores: who wants to free
// something has the system interrupt all threads of the process instead.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace hostcall {

class ThreadUses {
 public:
  // Holds the address of what is used, or null. Any thread may set it back to null.
  using Slot = std::atomic<const void*>;

  // A free slot of this thread's; null where all are taken, the thread is about to end, or the
  // system cannot interrupt the others.
  static Slot* FreeSlot() {
    Record* record = record_;
    if (record == nullptr && (record = Prepare()) == nullptr) return nullptr;
    for (Slot& slot : record->slots) {
      if (slot.load(std::memory_order_relaxed) == nullptr) return &slot;
    }
    return nullptr;
  }

  // Whether a thread uses something.
  static bool Any(const void* used) {
    for (Record* record = first_.load(); record != nullptr; record = record->next) {
      for (const Slot& slot : record->slots) {
        if (slot.load(std::memory_order_acquire) == used) return true;
      }
    }
    return false;
  }

  // Stands between the change of a slot and a look whether what is used is still to be used, in the
  // thread that uses it. Who takes something away calls `Settle` between that and `Any`: then
  // either the look has seen it, or `Any` sees the change.
  static void Changed() { std::atomic_signal_fence(std::memory_order_seq_cst); }

  // Returns false where the system refuses, so that nothing may be freed.
  static bool Settle();

 private:
  // A thread has few uses at a time: one for each call that is nested in another.
  struct Record {
    std::array<Slot, 8> slots{};
    std::atomic<bool> taken{true};
    Record* next = nullptr;
  };

  struct End;

  static Record* Prepare();
  static Record* TakeRecord();

  // Those of threads that have ended are taken again, and none is ever freed.
  inline static std::atomic<Record*> first_{nullptr};

  // Without a destructor of its own: a program may run while its thread, or the process, ends.
  inline static thread_local Record* record_ = nullptr;
  inline static thread_local bool is_over_ = false;
};

}  // namespace hostcall
