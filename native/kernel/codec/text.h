// Texts: copies, and checks of ASCII and UTF-8, without a branch for each byte.
//
// Most texts have at most 64 bytes, and bytes behind them. Such a text is handled as four blocks,
// whatever its size: the blocks are independent, and no branch depends on the size, which the
// processor could not predict. Bytes behind the text are masked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace millrace::kernel::codec {

using Bytes = const std::uint8_t*;

// Bit 7 of each byte of a word.
inline constexpr std::uint64_t kHighBits = 0x8080808080808080U;

inline std::uint64_t LoadWord(Bytes at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// 16 bytes in a vector register, of which every 64-bit processor has some.
typedef std::uint8_t Block __attribute__((vector_size(16)));

inline Block LoadBlock(Bytes at) {
  Block block;
  std::memcpy(&block, at, sizeof block);
  return block;
}
inline void StoreBlock(std::uint8_t* at, Block block) { std::memcpy(at, &block, sizeof block); }

// True where bit 7 of a byte is set.
inline bool HasHighBit(Block block) {
#ifdef __SSE2__
  return _mm_movemask_epi8(reinterpret_cast<__m128i>(block)) != 0;
#else
  std::uint64_t words[2];
  std::memcpy(words, &block, sizeof words);
  return ((words[0] | words[1]) & kHighBits) != 0;
#endif
}

// Greatest size of a short text, and the bytes that are accessed for it.
inline constexpr std::uint32_t kShortText = 64;

// Behind the first 64 - n bytes: n bytes of ones, then zeros.
struct alignas(64) ShortMask {
  std::uint8_t bytes[2 * kShortText] = {};
  constexpr ShortMask() {
    for (std::uint32_t i = 0; i < kShortText; i++) bytes[i] = 0xff;
  }
};
inline constexpr ShortMask kShortMask;

// True for a text without bytes >= 0x80. REQUIRES: size <= kShortText; kShortText bytes may be
// read.
inline bool IsShortAscii(Bytes text, std::uint32_t size) {
  const Bytes mask = kShortMask.bytes + kShortText - size;
  return !HasHighBit((LoadBlock(text) & LoadBlock(mask)) |
                     (LoadBlock(text + 16) & LoadBlock(mask + 16)) |
                     (LoadBlock(text + 32) & LoadBlock(mask + 32)) |
                     (LoadBlock(text + 48) & LoadBlock(mask + 48)));
}

// Copies a text and returns whether it is ASCII. REQUIRES: size <= kShortText; kShortText bytes may
// be read, and written; no overlap.
inline bool CopyShort(std::uint8_t* into, Bytes text, std::uint32_t size) {
  const Block a = LoadBlock(text);
  const Block b = LoadBlock(text + 16);
  const Block c = LoadBlock(text + 32);
  const Block d = LoadBlock(text + 48);
  StoreBlock(into, a);
  StoreBlock(into + 16, b);
  StoreBlock(into + 32, c);
  StoreBlock(into + 48, d);
  const Bytes mask = kShortMask.bytes + kShortText - size;
  return !HasHighBit((a & LoadBlock(mask)) | (b & LoadBlock(mask + 16)) |
                     (c & LoadBlock(mask + 32)) | (d & LoadBlock(mask + 48)));
}

// The same for a text of any size, of which only its bytes are accessed.
bool IsLongAscii(Bytes text, std::size_t size);
bool CopyLong(std::uint8_t* into, Bytes text, std::size_t size);

// Checks UTF-8 without the fast path: no surrogates, nothing beyond U+10FFFF, and each character in
// its shortest form.
bool IsUtf8Beyond(Bytes text, std::uint32_t size);

// True for UTF-8. `end` is behind the bytes that may be read, text + size or more. Most texts are
// ASCII as a whole.
inline bool IsUtf8(Bytes text, std::uint32_t size, Bytes end) {
  const bool is_ascii = size <= kShortText && end - text >= kShortText ? IsShortAscii(text, size)
                                                                       : IsLongAscii(text, size);
  return is_ascii || IsUtf8Beyond(text, size);
}

}  // namespace millrace::kernel::codec
