// Turns of the addresses of a host, over the attempts of a broker.
#pragma once

#include <cstddef>

namespace millrace::broker::direct {

// One attempt tries each address once, from number `first` on, modulo their number. The next
// attempt begins behind the address at which this one ended, so an address that never answers is
// passed.
class AddressTurns {
 public:
  explicit AddressTurns(std::size_t first) : first_(first) {}

  // False when each of `count` addresses was tried.
  bool Next(std::size_t count, std::size_t* index) {
    if (tried_ >= count) return false;
    *index = (first_ + tried_++) % count;
    return true;
  }
  // Number of the address behind the last one that was tried.
  std::size_t next() const { return first_ + tried_; }

 private:
  std::size_t first_;
  std::size_t tried_ = 0;
};

}  // namespace millrace::broker::direct
