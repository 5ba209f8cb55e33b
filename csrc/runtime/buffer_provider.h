// Memory of compiled programs that arrays may lie in: the views that callbacks borrow.
#pragma once

#include <cstddef>

namespace hostcall {

// What the program's side provides. A view of a program's memory may be kept by the callback, or by
// what it has made of the view: the provider has to be able to keep the memory from being freed.
struct BufferProviderApi {
  // Keeps memory until `release` is called with what this returns. Null where it cannot be kept.
  void* (*hold)(const void* data, size_t size);
  void (*release)(void* hold);
};

// Sets the one that views are borrowed from, and returns the one before; both live as long as the
// process. Where it holds nothing, as the first one does, callbacks get copies.
const BufferProviderApi* SetBufferProviderApi(const BufferProviderApi* api);

}  // namespace hostcall
