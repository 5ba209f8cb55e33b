// Frames over a Unix socket. Nothing in here waits without end, or raises SIGPIPE.
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

  // Sends a frame, and with it a file descriptor if `fd` is one. Throws Closed, or BadFrame where
  // the other side does not take it for long.
  void Send(Kind kind, uint32_t number, std::string_view body, int fd = -1);

  // The next frame. Throws Closed or BadFrame, or a Failure with DEADLINE_EXCEEDED where none has
  // begun at `end`.
  Frame Receive(Clock::time_point end);

  // Whether the other side is there and has sent nothing, as it must be between two calls.
  bool IsQuiet() const;

 private:
  std::string ReceiveBytes(size_t count, Clock::time_point end);

  Descriptor socket_;
};

// Two ends of a new connection. Throws a Failure.
std::pair<Descriptor, Descriptor> MakeSocketPair();

// A connection to a worker's socket; none where nobody listens, with errno as it was. Throws a
// Failure where the path is too long, or another user listens.
Descriptor ConnectTo(const std::string& path, Clock::time_point end);

// Sends a descriptor with a byte; whether the other side has taken it.
bool SendDescriptor(int socket, int fd);

}  // namespace hostcall::serving
