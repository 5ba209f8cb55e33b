// Lends the memory of call frames made by hand, and keeps it where arrays do.
#pragma once

#include <cstdint>

#include "frame.h"
#include "runtime/lending.h"

namespace hostcall::fuzz {

// As long as this lives, the memory of the call's buffers can be lent.
class Lending {
 public:
  explicit Lending(const Call& call);
  ~Lending();
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

 private:
  const Call& call_;
};

const LenderApi* Lender();

// How often memory is held now.
int64_t Holds();

}  // namespace hostcall::fuzz
