#include "channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "failure.h"

namespace hostcall::serving {
namespace {

// Seconds within which a frame that has begun must end.
constexpr double kFrameSeconds = 10;

// Returns true once the socket is ready or has failed, as the next call tells; false at `end`.
bool Await(int socket, short events, Clock::time_point end) {
  for (;;) {
    pollfd waiting{socket, events, 0};
    const int ready = poll(&waiting, 1, PollMilliseconds(end));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw Closed();
    if (ready == 0 && Clock::now() >= end) return false;
  }
}

ssize_t SendSome(int socket, std::string_view bytes, int fd) {
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void CheckUser(int socket, const std::string& path) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (known && peer.uid == geteuid()) return;
  throw Failure(kFailedPrecondition, "hostcall: the worker at " + path +
                                         " runs as another user than this process. Start both as "
                                         "the same user.");
}

}  // namespace

void Channel::Send(Kind kind, uint32_t number, std::string_view body, int fd) {
  const std::string frame = EncodeFrame(kind, number, body);
  const Clock::time_point end = After(kFrameSeconds);
  std::string_view rest = frame;
  while (!rest.empty()) {
    const ssize_t sent = SendSome(socket_.get(), rest, fd);
    if (sent >= 0) {
      rest.remove_prefix(sent);
      fd = -1;  // sent with the first byte
    } else if (errno == EAGAIN) {
      if (!Await(socket_.get(), POLLOUT, end)) throw BadFrame("it takes no frames");
    } else if (errno != EINTR) {
      throw Closed();
    }
  }
}

Frame Channel::Receive(Clock::time_point end) {
  if (!Await(socket_.get(), POLLIN, end)) {
    throw Failure(kDeadlineExceeded, "the worker does not answer in time");
  }
  const Clock::time_point frame_end = After(kFrameSeconds);
  Frame frame;
  frame.header = DecodeHeader(ReceiveBytes(kHeaderSize, frame_end));
  frame.body = ReceiveBytes(frame.header.body_size, frame_end);
  return frame;
}

bool Channel::IsQuiet() const {
  pollfd now{socket_.get(), POLLIN | POLLRDHUP, 0};
  return poll(&now, 1, 0) == 0;
}

std::string Channel::ReceiveBytes(size_t count, Clock::time_point end) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t got = recv(socket_.get(), &bytes[done], count - done, MSG_DONTWAIT);
    if (got > 0) {
      done += got;
    } else if (got < 0 && errno == EAGAIN) {
      if (!Await(socket_.get(), POLLIN, end)) throw BadFrame("a frame does not end");
    } else if (got == 0 || errno != EINTR) {
      throw Closed();
    }
  }
  return bytes;
}

std::pair<Descriptor, Descriptor> MakeSocketPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Failure(kResourceExhausted,
                  std::string("hostcall: no connection to a Python worker can be made: ") +
                      std::strerror(errno) + ".");
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Descriptor ConnectTo(const std::string& path, Clock::time_point end) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    throw Failure(kFailedPrecondition,
                  "hostcall: HOSTCALL_WORKER_SOCKET names no path of a socket, which has from 1 to "
                  "107 bytes: '" +
                      path + "'.");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection) return connection;
  while (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    // EAGAIN: too many clients wait to be accepted, and poll() cannot wait for that.
    if ((errno != EAGAIN && errno != EINTR) || Clock::now() >= end) return Descriptor();
    poll(nullptr, 0, 5);
  }
  CheckUser(connection.get(), path);
  return connection;
}

bool SendDescriptor(int socket, int fd) {
  for (;;) {
    const ssize_t sent = SendSome(socket, "c", fd);
    if (sent >= 0 || errno != EINTR) return sent == 1;
  }
}

}  // namespace hostcall::serving
