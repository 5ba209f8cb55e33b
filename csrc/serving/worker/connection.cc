#include "connection.h"

#include <algorithm>
#include <utility>

#include "failure.h"
#include "frames.h"

namespace hostcall::serving {
namespace {

void CheckResults(const std::vector<ArrayPlace>& results, const WorkerCall& call) {
  bool fits = results.size() == call.result_dtypes.size();
  for (size_t i = 0; fits && i < results.size(); ++i) {
    fits = results[i].dtype == call.result_dtypes[i];
  }
  if (!fits) throw BadFrame("the results have other dtypes than were asked for");
}

}  // namespace

Connection::Connection(Descriptor socket, uint64_t max_bytes, Clock::time_point end)
    : channel_(std::move(socket)), max_bytes_(max_bytes) {
  try {
    channel_.Send(Kind::kHello, number_, EncodeHello(max_bytes), arena_.fd());
  } catch (const Closed&) {
    // The worker may have sent the reason first.
  }
  const Frame reply = channel_.Receive(end);
  if (reply.header.kind == Kind::kError) {
    const Outcome refused = DecodeError(reply.body);
    throw Failure(refused.code, refused.message);
  }
  if (reply.header.kind != Kind::kWelcome) throw BadFrame("it does not welcome clients");
  const Welcome welcome = DecodeWelcome(reply.body);
  max_bytes_ = std::min(max_bytes, welcome.max_arena);
  pid_ = welcome.pid;
}

Outcome Connection::Call(const WorkerCall& call, ResultSink& sink, Clock::time_point end) {
  const std::vector<ArrayPlace> places = arena_.Write(call.arguments, max_bytes_);
  const Frame reply = Ask(Kind::kCall, EncodeCall(call, places), end);
  if (reply.header.kind == Kind::kError) return DecodeError(reply.body);
  const std::vector<ArrayPlace> results = DecodeResults(reply.body);
  CheckResults(results, call);
  arena_.Read(results, max_bytes_, sink);
  arena_.Trim();
  return {};
}

Outcome Connection::AskShapes(const WorkerCall& call, Shapes& shapes, Clock::time_point end) {
  std::vector<ArrayPlace> places;
  for (const Argument& argument : call.arguments) {
    places.push_back({argument.dtype, argument.shape, 0, 0});
  }
  const Frame reply = Ask(Kind::kShapes, EncodeCall(call, places), end);
  if (reply.header.kind == Kind::kError) return DecodeError(reply.body);
  std::vector<ArrayPlace> results = DecodeResults(reply.body);
  CheckResults(results, call);
  shapes.clear();
  for (ArrayPlace& result : results) shapes.push_back(std::move(result.shape));
  return {};
}

Frame Connection::Ask(Kind kind, std::string_view body, Clock::time_point end) {
  channel_.Send(kind, ++number_, body);
  Frame reply = channel_.Receive(end);
  const bool is_reply = reply.header.kind == Kind::kResults || reply.header.kind == Kind::kError;
  if (!is_reply || reply.header.number != number_) throw BadFrame("it does not answer the call");
  return reply;
}

}  // namespace hostcall::serving
