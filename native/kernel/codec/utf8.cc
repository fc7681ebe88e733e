#include "kernel/codec/utf8.h"

namespace millrace::kernel::codec {
namespace {

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

bool IsUtf8Beyond(const std::uint8_t* text, std::size_t size) {
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
