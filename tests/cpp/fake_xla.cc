#include "fake_xla.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace {

std::atomic<int64_t> live_objects{0};

struct Counted {
  Counted() { ++live_objects; }
  ~Counted() { --live_objects; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

// Reports a misuse of the API by the handler, which no test should survive.
[[noreturn]] void Misuse(const char* what) {
  std::fprintf(stderr, "fake XLA: %s\n", what);
  std::abort();
}

}  // namespace

struct XLA_FFI_Error : Counted {
  hostcall::fakes::Outcome outcome;
};

struct XLA_FFI_Future : Counted {
  std::mutex mutex;
  std::condition_variable completed;
  std::optional<hostcall::fakes::Outcome> outcome;
};

namespace hostcall::fakes {
namespace {

XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  if (args->struct_size != XLA_FFI_Error_Create_Args_STRUCT_SIZE) Misuse("error of a wrong size");
  if (args->errc <= XLA_FFI_Error_Code_OK || args->errc > XLA_FFI_Error_Code_UNAUTHENTICATED) {
    Misuse("error with a code that is none");
  }
  auto* error = new XLA_FFI_Error();
  error->outcome = {args->errc, args->message};
  return error;
}

void GetErrorMessage(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->outcome.message.c_str();
}

void DestroyError(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* CreateFuture(XLA_FFI_Future_Create_Args* args) {
  args->future = new XLA_FFI_Future();
  return nullptr;
}

void Complete(XLA_FFI_Future* future, Outcome outcome) {
  std::lock_guard<std::mutex> lock(future->mutex);
  if (future->outcome.has_value()) Misuse("future completed twice");
  future->outcome = std::move(outcome);
  // Under the lock: once it is released, the future may be gone.
  future->completed.notify_all();
}

XLA_FFI_Error* SetAvailable(XLA_FFI_Future_SetAvailable_Args* args) {
  Complete(args->future, Outcome());
  return nullptr;
}

XLA_FFI_Error* SetError(XLA_FFI_Future_SetError_Args* args) {
  Complete(args->future, Consume(args->error));
  return nullptr;
}

XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->stream;
  if (args->stream != nullptr) return nullptr;
  auto* error = new XLA_FFI_Error();
  error->outcome = {XLA_FFI_Error_Code_UNIMPLEMENTED, "there is no GPU stream"};
  return error;
}

XLA_FFI_Error* GetRunId(XLA_FFI_RunId_Get_Args* args) {
  args->run_id = args->ctx->run;
  return nullptr;
}

XLA_FFI_Api MakeApi(int minor_version) {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, minor_version};
  api.XLA_FFI_Error_Create = &CreateError;
  api.XLA_FFI_Error_GetMessage = &GetErrorMessage;
  api.XLA_FFI_Error_Destroy = &DestroyError;
  api.XLA_FFI_Future_Create = &CreateFuture;
  api.XLA_FFI_Future_SetAvailable = &SetAvailable;
  api.XLA_FFI_Future_SetError = &SetError;
  api.XLA_FFI_Stream_Get = &GetStream;
  api.XLA_FFI_RunId_Get = &GetRunId;
  return api;
}

std::atomic<Age> current_age{Age::kNewest};

}  // namespace

void SetAge(Age age) { current_age = age; }

Age CurrentAge() { return current_age; }

const XLA_FFI_Api* FakeApi() {
  static const XLA_FFI_Api apis[] = {MakeApi(XLA_FFI_API_MINOR), MakeApi(1)};
  return &apis[static_cast<int>(CurrentAge())];
}

Outcome Await(XLA_FFI_Future* future) {
  std::unique_ptr<XLA_FFI_Future> owned(future);
  std::unique_lock<std::mutex> lock(future->mutex);
  future->completed.wait(lock, [&] { return future->outcome.has_value(); });
  Outcome outcome = *std::move(future->outcome);
  lock.unlock();
  return outcome;
}

Outcome Consume(XLA_FFI_Error* error) {
  std::unique_ptr<XLA_FFI_Error> owned(error);
  return std::move(error->outcome);
}

int64_t LiveObjects() { return live_objects; }

}  // namespace hostcall::fakes
