// Records of the objects that each thread uses, visible to others, so that none is freed meanwhile.
//
// These are hazard pointers. Counting users costs two locked instructions a use, which take as long
// as the rest of a small call. Here a use costs two plain stores: a thread that wants to free an
// object has the system interrupt all threads of the process instead.
#pragma once

#include <array>
#include <atomic>

namespace hostcall {

class ThreadUses {
 public:
  // The address of the object in use, or null. Any thread may set it back to null.
  using Slot = std::atomic<const void*>;

  // Returns a free slot of this thread; null if all are taken, the thread is about to end, or the
  // system cannot interrupt the others.
  static Slot* FreeSlot() {
    Record* record = record_;
    if (record == nullptr && (record = Prepare()) == nullptr) return nullptr;
    for (Slot& slot : record->slots) {
      if (slot.load(std::memory_order_relaxed) == nullptr) return &slot;
    }
    return nullptr;
  }

  // Returns whether a thread uses an object.
  static bool Any(const void* used) {
    for (Record* record = first_.load(); record != nullptr; record = record->next) {
      for (const Slot& slot : record->slots) {
        if (slot.load(std::memory_order_acquire) == used) return true;
      }
    }
    return false;
  }

  // Orders the change of a slot before the check that the object can still be used, in the thread
  // that uses it. A thread that takes an object away calls `Settle` between that and `Any`: then
  // either the check has seen it, or `Any` sees the change.
  static void Changed() { std::atomic_signal_fence(std::memory_order_seq_cst); }

  // Returns false if the system refuses: then nothing may be freed.
  static bool Settle();

 private:
  // The slots of a thread. It has few uses at a time: one for each call nested in another.
  struct Record {
    std::array<Slot, 8> slots{};
    std::atomic<bool> taken{true};
    Record* next = nullptr;
  };

  struct End;

  static Record* Prepare();
  static Record* TakeRecord();

  // The records; those of ended threads are taken again, and none is ever freed.
  inline static std::atomic<Record*> first_{nullptr};

  // Without a destructor: a program may run while its thread, or the process, ends.
  inline static thread_local Record* record_ = nullptr;
  inline static thread_local bool is_over_ = false;
};

}  // namespace hostcall
