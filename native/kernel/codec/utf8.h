// Check of UTF-8: no surrogates, nothing beyond U+10FFFF, and each character in its shortest form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::kernel::codec {

// Bit 7 of each byte of a word.
inline constexpr std::uint64_t kHighBits = 0x8080808080808080U;

inline std::uint64_t LoadWord(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline bool IsAscii(const std::uint8_t* text, std::size_t size) {
  std::uint64_t seen = 0;
  if (size >= 8) {
    std::size_t at = 0;
    for (; at + 32 <= size; at += 32) {
      seen |= LoadWord(text + at) | LoadWord(text + at + 8) | LoadWord(text + at + 16) |
              LoadWord(text + at + 24);
    }
    for (; at + 8 <= size; at += 8) seen |= LoadWord(text + at);
    // Overlaps the bytes before, so that the tail is one step.
    seen |= LoadWord(text + size - 8);
  } else {
    for (std::size_t i = 0; i < size; i++) seen |= text[i];
  }
  return (seen & kHighBits) == 0;
}

// IsUtf8 without the fast path.
bool IsUtf8Beyond(const std::uint8_t* text, std::size_t size);

// Most texts are ASCII as a whole.
inline bool IsUtf8(const std::uint8_t* text, std::size_t size) {
  return IsAscii(text, size) || IsUtf8Beyond(text, size);
}

}  // namespace millrace::kernel::codec
