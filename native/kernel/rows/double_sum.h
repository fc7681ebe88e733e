// Sum of doubles whose bits do not depend on the order of the additions. A double is an integer
// times a power of two; its bits are divided into digits of 24 bits at fixed positions, and every
// position has a sum of its own. Only the highest kDigits positions are kept: up to the highest
// digit of the largest value, which is the same in any order.
//
// A sum holds 2^39 values: digits are signed and 64 bits wide.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace::kernel::double_sum {

inline constexpr int kDigitBits = 24;
inline constexpr std::size_t kDigits = 6;
// Cells of a sum: the head, then the digits, the highest first.
inline constexpr std::size_t kCells = 1 + kDigits;
// Digits that the bits of one value can touch.
inline constexpr std::size_t kSpread = 4;
// Head: the position of the highest digit plus 1 (0: no digits), and flags of values that are no
// numbers.
inline constexpr std::int64_t kTopMask = 0xffff;
inline constexpr std::int64_t kPositiveInfinity = std::int64_t{1} << 16;
inline constexpr std::int64_t kNegativeInfinity = std::int64_t{1} << 17;
inline constexpr std::int64_t kNotANumber = std::int64_t{1} << 18;
inline constexpr std::int64_t kFlags = kPositiveInfinity | kNegativeInfinity | kNotANumber;
// Bit 0 has the weight of the least double, 2^-1074; the highest bit of the largest is 2097.
inline constexpr std::int64_t kTopMax = 2097 / kDigitBits + static_cast<std::int64_t>(kSpread);

inline std::int64_t Add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// Raises the highest position to `top`; digits below the lowest kept position are dropped.
inline void Raise(std::int64_t top, std::int64_t* sum) {
  const std::int64_t by = top - (sum[0] & kTopMask);
  if (by <= 0) return;
  std::int64_t* const digits = sum + 1;
  for (std::size_t i = kDigits; i-- > 0;) {
    digits[i] = i >= static_cast<std::size_t>(by) ? digits[i - static_cast<std::size_t>(by)] : 0;
  }
  sum[0] = (sum[0] & kFlags) | top;
}

inline void Fold(double value, std::int64_t* sum) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto exponent = static_cast<std::int64_t>((bits >> 52) & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  const bool is_negative = (bits >> 63) != 0;
  if (exponent == 0x7ff) {
    sum[0] |= mantissa != 0 ? kNotANumber : is_negative ? kNegativeInfinity : kPositiveInfinity;
    return;
  }
  if (exponent > 0) mantissa |= std::uint64_t{1} << 52;
  if (mantissa == 0) return;
  const std::int64_t lowest_bit = exponent > 0 ? exponent - 1 : 0;
  const std::int64_t lowest = lowest_bit / kDigitBits;
  const std::int64_t top = lowest + static_cast<std::int64_t>(kSpread);
  Raise(top, sum);
  __extension__ using Wide = unsigned __int128;
  Wide rest = static_cast<Wide>(mantissa) << (lowest_bit % kDigitBits);
  // Index of the value's lowest digit among the kept ones.
  std::int64_t at = (sum[0] & kTopMask) - 1 - lowest;
  for (std::size_t i = 0; i < kSpread; i++, at--, rest >>= kDigitBits) {
    if (at >= static_cast<std::int64_t>(kDigits)) continue;
    const auto digit = static_cast<std::int64_t>(rest & ((1U << kDigitBits) - 1));
    sum[1 + at] = Add(sum[1 + at], is_negative ? -digit : digit);
  }
}

inline void Merge(const std::int64_t* other, std::int64_t* into) {
  const std::int64_t top = other[0] & kTopMask;
  Raise(top, into);
  into[0] |= other[0] & kFlags;
  const auto by = static_cast<std::size_t>((into[0] & kTopMask) - top);
  for (std::size_t i = 0; i + by < kDigits; i++)
    into[1 + i + by] = Add(into[1 + i + by], other[1 + i]);
}

inline bool IsSound(const std::int64_t* sum) {
  return (sum[0] & ~(kTopMask | kFlags)) == 0 && (sum[0] & kTopMask) <= kTopMax;
}

}  // namespace millrace::kernel::double_sum
