// Random numbers and comparisons of the unit checks.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernel/window/row.h"

namespace millrace::test {

// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  std::uint64_t Below(std::uint64_t n) { return Next() % n; }

 private:
  std::uint64_t state_;
};

inline bool Same(const kernel::Accumulator& a, const kernel::Accumulator& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace millrace::test
