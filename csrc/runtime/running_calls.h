// The calls into Python that run now, for the thread that logs those that take long.
#pragma once

#include <cstdint>
#include <string>

namespace hostcall {

// An entry of the list of running calls, for as long as it lives. Needs the GIL, which guards the
// list: so an entry costs a call some nanoseconds.
class RunningCall {
 public:
  // The label must outlive the entry.
  explicit RunningCall(const std::string& label);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  const RunningCall* next() const { return next_; }
  const std::string& label() const { return label_; }
  uint64_t number() const { return number_; }       // no other call has it
  unsigned long thread() const { return thread_; }  // as Python numbers threads

  // Returns the latest call that runs, or null.
  static const RunningCall* Latest();

  // Takes the calls of other threads off the list, in a forked child: it has none of these threads,
  // and gives the memory of their stacks, where the entries are, to new ones.
  static void ForgetOtherThreads();

 private:
  void Unlink();

  const std::string& label_;
  const uint64_t number_;
  const unsigned long thread_;
  RunningCall* previous_ = nullptr;
  RunningCall* next_;
};

}  // namespace hostcall
