#include "kernel/codec/text.h"

namespace millrace::kernel::codec {
namespace {

// Copies a text of fewer than 16 bytes, and returns the bits of all of them or-ed together.
std::uint64_t CopyTail(std::uint8_t* into, Bytes text, std::size_t size) {
  if (size >= 8) {
    const std::uint64_t first = LoadWord(text);
    const std::uint64_t last = LoadWord(text + size - 8);
    std::memcpy(into, &first, sizeof first);
    std::memcpy(into + size - 8, &last, sizeof last);
    return first | last;
  }
  if (size >= 4) {
    std::uint32_t first;
    std::uint32_t last;
    std::memcpy(&first, text, sizeof first);
    std::memcpy(&last, text + size - 4, sizeof last);
    std::memcpy(into, &first, sizeof first);
    std::memcpy(into + size - 4, &last, sizeof last);
    return first | last;
  }
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < size; i++) {
    into[i] = text[i];
    seen |= text[i];
  }
  return seen;
}

typedef signed char SignedBlock __attribute__((vector_size(16)));

// Bytes of a block moved up by N, behind zeros.
template <int N>
Block Shifted(Block block) {
#ifdef __SSE2__
  return reinterpret_cast<Block>(_mm_slli_si128(reinterpret_cast<__m128i>(block), N));
#else
  std::uint8_t bytes[32] = {};
  StoreBlock(bytes + N, block);
  return LoadBlock(bytes);
#endif
}

// a - b where a is greater, else 0.
inline Block Excess(Block a, Block b) {
#ifdef __SSE2__
  return reinterpret_cast<Block>(
      _mm_subs_epu8(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a - b) & reinterpret_cast<Block>(a > b);
#endif
}

// A block of equal bytes.
inline Block Of(std::uint8_t byte) { return Block{} + byte; }

// Sets bit 7 of the bytes of a block that cannot be in UTF-8, by the three bytes before each.
// Source: The Unicode Standard 15, table 3-7.
inline Block FaultsOf(Block block, Block last, Block second_last, Block third_last) {
  // A byte continues a character if and only if a byte >= c0, e0 or f0 before it requires it.
  const auto continues = reinterpret_cast<Block>(reinterpret_cast<SignedBlock>(block) < -64);
  const Block must_continue = Excess(last, Of(0xc0 - 0x80)) | Excess(second_last, Of(0xe0 - 0x80)) |
                              Excess(third_last, Of(0xf0 - 0x80));
  // Characters in a longer form than needed, surrogates, and what is beyond U+10FFFF.
  const auto below_a0 = reinterpret_cast<Block>(reinterpret_cast<SignedBlock>(block) < -96);
  const auto below_90 = reinterpret_cast<Block>(reinterpret_cast<SignedBlock>(block) < -112);
  const auto is = [&](std::uint8_t byte) { return reinterpret_cast<Block>(last == byte); };
  return (continues ^ must_continue) | (is(0xe0) & below_a0) | (is(0xed) & ~below_a0) |
         (is(0xf0) & below_90) | (is(0xf4) & ~below_90) | Excess(block, Of(0xf5 - 0x80)) |
         reinterpret_cast<Block>((block & 0xfe) == 0xc0);
}

// The same by the bytes in memory before the block.
inline Block FaultsAt(Bytes at) {
  return FaultsOf(LoadBlock(at), LoadBlock(at - 1), LoadBlock(at - 2), LoadBlock(at - 3));
}

// Sets bit 7 of a last byte that begins a character which the bytes behind it would continue.
inline Block UnfinishedOf(Block last) {
  constexpr Block kGreatest = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                               0xff, 0xff, 0xff, 0xff, 0xff, 0xef, 0xdf, 0xbf};
  return reinterpret_cast<Block>(last > kGreatest);
}

}  // namespace

bool IsLongAscii(Bytes text, std::size_t size) {
  if (size < 16) {
    std::uint8_t copy[16];
    return (CopyTail(copy, text, size) & kHighBits) == 0;
  }
  // Overlaps the bytes before, so that the tail is one step.
  Block seen = LoadBlock(text + size - 16);
  for (std::size_t at = 0; at + 16 < size; at += 16) seen |= LoadBlock(text + at);
  return !HasHighBit(seen);
}

bool CopyLong(std::uint8_t* into, Bytes text, std::size_t size) {
  if (size < 16) return (CopyTail(into, text, size) & kHighBits) == 0;
  const Block last = LoadBlock(text + size - 16);
  Block seen = last;
  for (std::size_t at = 0; at + 16 < size; at += 16) {
    const Block block = LoadBlock(text + at);
    StoreBlock(into + at, block);
    seen |= block;
  }
  StoreBlock(into + size - 16, last);
  return !HasHighBit(seen);
}

bool IsUtf8Beyond(Bytes text, std::uint32_t size) {
  constexpr std::uint32_t kLeast = 32;
  std::uint8_t padded[kLeast];
  if (size < kLeast) {
    // Zeros behind the text do not continue its last character.
    std::memset(padded, 0, sizeof padded);
    CopyLong(padded, text, size);
    text = padded;
    size = kLeast;
  }
  const Block first = LoadBlock(text);
  Block faults = FaultsOf(first, Shifted<1>(first), Shifted<2>(first), Shifted<3>(first));
  const Bytes last = text + size - 16;
  for (Bytes at = text + 16; at < last; at += 16) faults |= FaultsAt(at);
  // Overlaps the block before.
  return !HasHighBit(faults | FaultsAt(last) | UnfinishedOf(LoadBlock(last)));
}

}  // namespace millrace::kernel::codec
