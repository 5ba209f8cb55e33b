// Memory of compiled programs that arrays may lie in: the views that callbacks borrow.
#pragma once

#include <cstddef>

namespace hostcall {

// The functions of the program's side. A callback, or an object that it made of a view, may keep
// the view: the provider must be able to keep the memory from being freed.
struct BufferProviderApi {
  // Keeps memory until `release` gets the returned hold. Returns null if it cannot.
  void* (*hold)(const void* data, size_t size);
  void (*release)(void* hold);
};

// Sets the provider of views, and returns the one before; both live as long as the process. If it
// holds nothing, like the first one, callbacks get copies.
const BufferProviderApi* SetBufferProviderApi(const BufferProviderApi* api);

}  // namespace hostcall
