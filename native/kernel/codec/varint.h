// Zigzag varints of Avro. A reader returns the position behind the number, or nullptr when the
// bytes end inside it or it has too many bits.
#pragma once

#include <bit>
#include <cstdint>

#include "kernel/codec/utf8.h"

namespace millrace::kernel::codec {

static_assert(std::endian::native == std::endian::little);

constexpr std::int64_t Unzigzag(std::uint64_t bits) {
  return static_cast<std::int64_t>((bits >> 1) ^ (0 - (bits & 1U)));
}

// Numbers of nine and ten bytes, and numbers near the end of the payload.
inline const std::uint8_t* ReadSlowVarint(const std::uint8_t* at, const std::uint8_t* end,
                                          std::uint64_t* bits) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 10; i++) {
    if (at == end) return nullptr;
    const std::uint8_t byte = *at++;
    // The tenth byte holds the last bit.
    if (i == 9 && byte > 1) return nullptr;
    value |= std::uint64_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) {
      *bits = value;
      return at;
    }
  }
  return nullptr;
}

inline const std::uint8_t* ReadVarint(const std::uint8_t* at, const std::uint8_t* end,
                                      std::uint64_t* bits) {
  if (at != end && *at < 0x80) [[likely]] {
    *bits = *at;
    return at + 1;
  }
  if (end - at >= 8) [[likely]] {
    std::uint64_t word = LoadWord(at);
    const std::uint64_t stops = ~word & kHighBits;
    if (stops != 0) [[likely]] {
      // Keeps the bytes up to the first without a continuation bit, then joins groups of 7 bits.
      word &= stops ^ (stops - 1);
      word &= ~kHighBits;
      word = (word & 0x007f007f007f007fU) | (word & 0x7f007f007f007f00U) >> 1;
      word = (word & 0x00003fff00003fffU) | (word & 0x3fff00003fff0000U) >> 2;
      word = (word & 0x000000000fffffffU) | (word & 0x0fffffff00000000U) >> 4;
      *bits = word;
      return at + (std::countr_zero(stops) >> 3) + 1;
    }
  }
  return ReadSlowVarint(at, end, bits);
}

inline const std::uint8_t* ReadLong(const std::uint8_t* at, const std::uint8_t* end,
                                    std::int64_t* value) {
  std::uint64_t bits = 0;
  at = ReadVarint(at, end, &bits);
  *value = Unzigzag(bits);
  return at;
}

inline const std::uint8_t* ReadInt(const std::uint8_t* at, const std::uint8_t* end,
                                   std::int32_t* value) {
  const std::uint8_t* const begun = at;
  std::uint64_t bits = 0;
  at = ReadVarint(at, end, &bits);
  // Five bytes at most, even where the ones behind them are zeros.
  if (at - begun > 5 || bits > 0xffffffffU) return nullptr;
  *value = static_cast<std::int32_t>(Unzigzag(bits));
  return at;
}

}  // namespace millrace::kernel::codec
