#include "kernel/codec/utf8.h"

#include <cstring>

#include "kernel/codec/columns.h"

namespace millrace::kernel::codec {
namespace {

std::uint64_t Word(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

bool IsAscii(const std::uint8_t* text, std::size_t size) {
  std::uint64_t seen = 0;
  if (size >= 8) {
    std::size_t at = 0;
    for (; at + 32 <= size; at += 32) {
      seen |= Word(text + at) | Word(text + at + 8) | Word(text + at + 16) | Word(text + at + 24);
    }
    for (; at + 8 <= size; at += 8) seen |= Word(text + at);
    // Overlaps the bytes before, so that the tail is one step.
    seen |= Word(text + size - 8);
  } else {
    for (std::size_t i = 0; i < size; i++) seen |= text[i];
  }
  return (seen & kHighBits) == 0;
}

bool IsTail(std::uint8_t byte) { return (byte & 0xc0U) == 0x80U; }

// Length of the character at `at`, which begins with a byte >= 0x80; 0 if it is none. Source: The
// Unicode Standard 15, table 3-7.
std::size_t CharacterBytes(const std::uint8_t* at, std::size_t size) {
  const std::uint8_t first = at[0];
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return size >= 2 && IsTail(at[1]) ? 2 : 0;
  if (first < 0xf0) {
    if (size < 3 || !IsTail(at[1]) || !IsTail(at[2])) return 0;
    if (first == 0xe0 && at[1] < 0xa0) return 0;
    return first == 0xed && at[1] > 0x9f ? 0 : 3;
  }
  if (size < 4 || !IsTail(at[1]) || !IsTail(at[2]) || !IsTail(at[3])) return 0;
  if (first == 0xf0 && at[1] < 0x90) return 0;
  return first == 0xf4 && at[1] > 0x8f ? 0 : 4;
}

}  // namespace

bool IsUtf8(const std::uint8_t* text, std::size_t size) {
  // Most texts are ASCII as a whole.
  if (IsAscii(text, size)) return true;
  std::size_t at = 0;
  while (at < size) {
    if (size - at >= 8 && IsAscii(text + at, 8)) {
      at += 8;
      continue;
    }
    if (text[at] < 0x80) {
      at++;
      continue;
    }
    const std::size_t bytes = CharacterBytes(text + at, size - at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

}  // namespace millrace::kernel::codec
