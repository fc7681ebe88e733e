// Varints of Avro and Protobuf. A reader returns the position behind the number, or nullptr when
// the bytes end inside it or it has too many bits.
#pragma once

#include <bit>
#include <cstdint>

#include "kernel/codec/text.h"

namespace millrace::kernel::codec {

static_assert(std::endian::native == std::endian::little);

constexpr std::int64_t Unzigzag(std::uint64_t bits) {
  return static_cast<std::int64_t>((bits >> 1) ^ (0 - (bits & 1U)));
}

// Reads a varint of up to ten bytes. Avro limits it to 64 bits, Protobuf drops the bits beyond.
template <bool kDropsBits>
Bytes ReadLongVarint(Bytes at, Bytes end, std::uint64_t* bits) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 10; i++) {
    if (at == end) return nullptr;
    const std::uint8_t byte = *at++;
    // The tenth byte holds the last bit.
    if (!kDropsBits && i == 9 && byte > 1) return nullptr;
    value |= std::uint64_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) {
      *bits = value;
      return at;
    }
  }
  return nullptr;
}

// Numbers of more than four bytes, and numbers near the end of the payload.
template <bool kDropsBits>
Bytes ReadWideVarint(Bytes at, Bytes end, std::uint64_t* bits) {
  if (end - at < 8) return ReadLongVarint<kDropsBits>(at, end, bits);
  std::uint64_t word = LoadWord(at);
  const std::uint64_t stops = ~word & kHighBits;
  if (stops == 0) return ReadLongVarint<kDropsBits>(at, end, bits);
  word &= stops ^ (stops - 1);
  word = (word & 0x007f007f007f007fU) | (word & 0x7f007f007f007f00U) >> 1;
  word = (word & 0x00003fff00003fffU) | (word & 0x3fff00003fff0000U) >> 2;
  word = (word & 0x000000000fffffffU) | (word & 0x0fffffff00000000U) >> 4;
  *bits = word;
  return at + (std::countr_zero(stops) >> 3) + 1;
}

// Reads a varint of any length. All lengths up to four bytes take the same steps: the bytes up to
// the first one without a continuation bit are kept, then groups of 7 bits are joined.
template <bool kDropsBits>
[[gnu::always_inline]] inline Bytes ReadVarint(Bytes at, Bytes end, std::uint64_t* bits) {
  if (end - at >= 4) [[likely]] {
    std::uint32_t word;
    std::memcpy(&word, at, sizeof word);
    const std::uint32_t stops = ~word & static_cast<std::uint32_t>(kHighBits);
    if (stops != 0) [[likely]] {
      word &= stops ^ (stops - 1);
      word = (word & 0x007f007fU) | (word & 0x7f007f00U) >> 1;
      *bits = (word & 0x00003fffU) | (word & 0x3fff0000U) >> 2;
      return at + (std::countr_zero(stops) >> 3) + 1;
    }
  }
  return ReadWideVarint<kDropsBits>(at, end, bits);
}

// Reads an Avro long.
inline Bytes ReadLong(Bytes at, Bytes end, std::int64_t* value) {
  std::uint64_t bits = 0;
  at = ReadVarint<false>(at, end, &bits);
  *value = Unzigzag(bits);
  return at;
}

// Reads an Avro int. Most are small.
inline Bytes ReadInt(Bytes at, Bytes end, std::int32_t* value) {
  if (at != end && *at < 0x80) [[likely]] {
    *value = static_cast<std::int32_t>(Unzigzag(*at));
    return at + 1;
  }
  std::uint64_t bits = 0;
  const Bytes next = ReadVarint<false>(at, end, &bits);
  // Five bytes at most, even where the ones behind them are zeros.
  if (next == nullptr || next - at > 5 || bits > 0xffffffffU) return nullptr;
  *value = static_cast<std::int32_t>(Unzigzag(bits));
  return next;
}

// Reads a Protobuf varint that is small in most payloads.
inline Bytes ReadSmallVarint(Bytes at, Bytes end, std::uint64_t* bits) {
  if (at != end && *at < 0x80) [[likely]] {
    *bits = *at;
    return at + 1;
  }
  return ReadVarint<true>(at, end, bits);
}

// Reads a tag or length of Protobuf: a varint of at most five bytes and 32 bits.
inline Bytes ReadShortVarint(Bytes at, Bytes end, std::uint32_t* bits) {
  if (at != end && *at < 0x80) [[likely]] {
    *bits = *at;
    return at + 1;
  }
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 5; i++) {
    if (at == end) return nullptr;
    const std::uint8_t byte = *at++;
    if (i == 4 && byte > 0x0f) return nullptr;
    value |= std::uint32_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) {
      *bits = value;
      return at;
    }
  }
  return nullptr;
}

}  // namespace millrace::kernel::codec
