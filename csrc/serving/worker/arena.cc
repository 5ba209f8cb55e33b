#include "arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "failure.h"

namespace hostcall::serving {
namespace {

constexpr uint64_t kAlignment = 64;
// Bytes that a connection keeps between two calls.
constexpr off_t kKept = 16 << 20;

uint64_t Aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

Failure Broken(const char* what) {
  return Failure(
      kResourceExhausted,
      std::string("hostcall: the memory that is shared with a Python worker cannot be ") + what +
          ": " + std::strerror(errno) + ".");
}

Failure NotAnArray(size_t index) {
  return Failure(kInvalidArgument, "hostcall: argument " + std::to_string(index) +
                                       " of a call of a Python worker has no such dtype and shape "
                                       "as arrays have.");
}

Failure RefusedResult(size_t index) {
  return Failure(kInvalidArgument, "hostcall: result " + std::to_string(index) +
                                       " of a Python function has a shape that the caller does "
                                       "not take.");
}

// Returns the lengths of strings, followed by the strings.
std::string Packed(const std::vector<std::string_view>& strings) {
  std::string packed;
  for (const std::string_view text : strings) {
    const uint64_t length = text.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof(length));
  }
  for (const std::string_view text : strings) packed.append(text);
  return packed;
}

// Returns true if the size of an array of numbers is that of `count` elements.
bool Fits(const ArrayPlace& place, int64_t count) {
  const size_t element = ElementSize(place.dtype);
  return element > 0 && place.size % element == 0 &&
         place.size / element == static_cast<uint64_t>(count);
}

ArrayPlace PlaceOf(const Argument& argument, size_t index) {
  const int64_t count = CountElements(argument.shape);
  ArrayPlace place{argument.dtype, argument.shape, 0, 0};
  if (argument.dtype == kString) {
    if (count < 0 || argument.strings.size() != static_cast<size_t>(count)) throw NotAnArray(index);
    place.size = argument.strings.size() * sizeof(uint64_t);
    for (const std::string_view text : argument.strings) place.size += text.size();
    return place;
  }
  place.size = argument.bytes.size();
  if (count < 0 || !Fits(place, count)) throw NotAnArray(index);
  return place;
}

}  // namespace

Arena::Arena() : file_(memfd_create("hostcall_arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!file_ || fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    throw Broken("made");
  }
}

std::vector<ArrayPlace> Arena::Write(const std::vector<Argument>& arguments, uint64_t limit) {
  std::vector<ArrayPlace> places;
  uint64_t end = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    ArrayPlace place = PlaceOf(arguments[i], i);
    place.offset = Aligned(end);
    end = place.offset + place.size;
    if (end > limit) {
      throw Failure(kResourceExhausted,
                    "hostcall: the arguments of a call of a Python worker have more than the " +
                        std::to_string(limit) +
                        " bytes that HOSTCALL_WORKER_BYTES, or the worker's --bytes, allows.");
    }
    places.push_back(std::move(place));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_strings = arguments[i].dtype == kString;
    WriteAt(places[i].offset, is_strings ? Packed(arguments[i].strings) : arguments[i].bytes);
  }
  return places;
}

void Arena::Read(const std::vector<ArrayPlace>& results, uint64_t limit, ResultSink& sink) const {
  struct stat file{};
  if (fstat(file_.get(), &file) != 0) throw Broken("read");
  const uint64_t total = std::min<uint64_t>(file.st_size, limit);
  uint64_t left = total;  // so that overlapping places cannot ask for more
  for (size_t i = 0; i < results.size(); ++i) {
    const ArrayPlace& place = results[i];
    const int64_t count = CountElements(place.shape);
    if (count < 0) throw BadFrame("a result has a shape that no array has");
    if (place.offset > total || place.size > total - place.offset) {
      throw BadFrame("a result lies outside of the shared memory");
    }
    if (place.size > left) throw BadFrame("the results are larger than the shared memory");
    left -= place.size;
    if (place.dtype == kString) {
      ReadStrings(i, place, count, sink);
      continue;
    }
    if (!Fits(place, count)) throw BadFrame("a result has another size than its shape");
    char* bytes = sink.Allocate(i, place.shape, place.size);
    if (bytes == nullptr) throw RefusedResult(i);
    ReadAt(place.offset, bytes, place.size);
  }
}

void Arena::Trim() {
  struct stat file{};
  if (fstat(file_.get(), &file) != 0 || file.st_size <= kKept) return;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kKept, file.st_size - kKept);
}

void Arena::WriteAt(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw Broken("written");
    offset += written;
    bytes.remove_prefix(written);
  }
}

void Arena::ReadAt(uint64_t offset, char* bytes, size_t count) const {
  while (count > 0) {
    const ssize_t got = pread(file_.get(), bytes, count, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Broken("read");
    offset += got;
    bytes += got;
    count -= got;
  }
}

void Arena::ReadStrings(size_t index, const ArrayPlace& place, int64_t count,
                        ResultSink& sink) const {
  const uint64_t lengths_size = static_cast<uint64_t>(count) * sizeof(uint64_t);
  if (static_cast<uint64_t>(count) > place.size / sizeof(uint64_t)) {
    throw BadFrame("a result of strings has no room for their lengths");
  }
  std::string packed(place.size, '\0');
  ReadAt(place.offset, packed.data(), packed.size());
  const std::string_view lengths = std::string_view(packed).substr(0, lengths_size);
  std::string_view rest = std::string_view(packed).substr(lengths_size);
  std::vector<std::string_view> strings;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, &lengths[i * sizeof(length)], sizeof(length));
    if (length > rest.size()) throw BadFrame("the strings of a result are longer than their place");
    strings.push_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  if (!rest.empty()) throw BadFrame("the strings of a result are shorter than their place");
  if (!sink.AllocateStrings(index, place.shape)) throw RefusedResult(index);
  for (size_t i = 0; i < strings.size(); ++i) sink.SetString(index, i, strings[i]);
}

}  // namespace hostcall::serving
