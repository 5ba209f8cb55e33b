// Frames over a Unix socket. Nothing here waits without end, or raises SIGPIPE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "descriptor.h"
#include "frames.h"

namespace hostcall::serving {

struct Frame {
  Header header;
  std::string body;
};

class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

  // Sends a frame, and with it a file descriptor if `fd` is one. Throws Closed, or BadFrame if the
  // other side does not take the frame in time.
  void Send(Kind kind, uint32_t number, std::string_view body, int fd = -1);

  // Returns the next frame. Throws Closed or BadFrame, or a Failure with DEADLINE_EXCEEDED if no
  // frame has begun by `end`.
  Frame Receive(Clock::time_point end);

  // Returns true if the other side is there and has sent nothing, as required between calls.
  bool IsQuiet() const;

 private:
  std::string ReceiveBytes(size_t count, Clock::time_point end);

  Descriptor socket_;
};

// Returns the two ends of a new connection. Throws a Failure.
std::pair<Descriptor, Descriptor> MakeSocketPair();

// Connects to a worker's socket. If no worker listens, returns an empty Descriptor and keeps errno.
// Throws a Failure if the path is too long or another user's process listens.
Descriptor ConnectTo(const std::string& path, Clock::time_point end);

// Sends a descriptor with a byte. Returns true if the other side has taken it.
bool SendDescriptor(int socket, int fd);

}  // namespace hostcall::serving
