// Threefry-4x32-20: random words as a pure function of a key and a counter. Source: Salmon, Moraes,
// Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011). The TypeScript reference
// implementation is src/core/random/threefry.ts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::kernel {

inline constexpr std::uint32_t kThreefryParity = 0x1bd11bda;

// Four words in one vector register; the round functions work on one word and on four.
inline constexpr std::size_t kLanes = 4;
typedef std::uint32_t Words __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));

template <int kBits, typename W>
inline W Rotl(W word) {
  return (word << kBits) | (word >> (32 - kBits));
}

template <int kA, int kB, typename W>
inline void EvenRound(W (&x)[4]) {
  x[0] += x[1];
  x[1] = Rotl<kA>(x[1]) ^ x[0];
  x[2] += x[3];
  x[3] = Rotl<kB>(x[3]) ^ x[2];
}

template <int kA, int kB, typename W>
inline void OddRound(W (&x)[4]) {
  x[0] += x[3];
  x[3] = Rotl<kA>(x[3]) ^ x[0];
  x[2] += x[1];
  x[1] = Rotl<kB>(x[1]) ^ x[2];
}

template <std::uint32_t kInjection, typename W>
inline void FourRounds(W (&x)[4], const std::uint32_t (&key)[5]) {
  if constexpr ((kInjection & 1U) == 1) {
    EvenRound<10, 26>(x);
    OddRound<11, 21>(x);
    EvenRound<13, 27>(x);
    OddRound<23, 5>(x);
  } else {
    EvenRound<6, 20>(x);
    OddRound<17, 11>(x);
    EvenRound<25, 10>(x);
    OddRound<18, 20>(x);
  }
  x[0] += key[kInjection % 5];
  x[1] += key[(kInjection + 1) % 5];
  x[2] += key[(kInjection + 2) % 5];
  x[3] += key[(kInjection + 3) % 5] + kInjection;
}

// Replaces the counters in `x` by their Threefry-4x32-20 words.
template <typename W>
inline void Threefry(const std::uint32_t (&key)[4], W (&x)[4]) {
  const std::uint32_t five[5] = {key[0], key[1], key[2], key[3],
                                 kThreefryParity ^ key[0] ^ key[1] ^ key[2] ^ key[3]};
  for (std::size_t i = 0; i < 4; i++) x[i] += five[i];
  FourRounds<1>(x, five);
  FourRounds<2>(x, five);
  FourRounds<3>(x, five);
  FourRounds<4>(x, five);
  FourRounds<5>(x, five);
}

}  // namespace millrace::kernel
