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

using SignedBlock [[gnu::vector_size(16)]] = signed char;

// Bytes of `block` moved up by N, with the last bytes of the block before it.
template <int N>
Block Shifted(Block before, Block block) {
#ifdef __SSE2__
  return reinterpret_cast<Block>(
      _mm_or_si128(_mm_slli_si128(reinterpret_cast<__m128i>(block), N),
                   _mm_srli_si128(reinterpret_cast<__m128i>(before), 16 - N)));
#else
  std::uint8_t bytes[32];
  StoreBlock(bytes, before);
  StoreBlock(bytes + 16, block);
  return LoadBlock(bytes + 16 - N);
#endif
}

// Bytes of a block that cannot be in UTF-8 as 0xff, others as 0. Each byte is compared with the
// three before it; source: The Unicode Standard 15, table 3-7.
inline Block FaultsOf(Block before, Block block) {
  const Block last = Shifted<1>(before, block);
  const Block second_last = Shifted<2>(before, block);
  const Block third_last = Shifted<3>(before, block);
  // A byte continues a character if and only if one of them requires it.
  const auto continues = reinterpret_cast<SignedBlock>(block) < -64;
  const auto must_continue = (last >= 0xc0) | (second_last >= 0xe0) | (third_last >= 0xf0);
  auto faults = continues ^ must_continue;
  // Characters in a longer form than needed, surrogates, and what is beyond U+10FFFF.
  const auto is_below_a0 = reinterpret_cast<SignedBlock>(block) < -96;
  const auto is_below_90 = reinterpret_cast<SignedBlock>(block) < -112;
  faults |= ((last == 0xe0) & is_below_a0) | ((last == 0xed) & ~is_below_a0);
  faults |= ((last == 0xf0) & is_below_90) | ((last == 0xf4) & ~is_below_90);
  faults |= ((block & 0xfe) == 0xc0) | (block >= 0xf5);
  return reinterpret_cast<Block>(faults);
}

// The same for a block of ASCII: where the block before it ends inside a character.
inline Block FaultsBeforeAscii(Block before) {
  constexpr Block kGreatest = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                               0xff, 0xff, 0xff, 0xff, 0xff, 0xef, 0xdf, 0xbf};
  return reinterpret_cast<Block>(before > kGreatest);
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

bool IsUtf8Beyond(Bytes text, std::uint32_t size, Bytes end) {
  Block faults{};
  Block before{};
  for (; size >= 16; size -= 16, text += 16) {
    const Block block = LoadBlock(text);
    faults |= HasHighBit(block) ? FaultsOf(before, block) : FaultsBeforeAscii(before);
    before = block;
  }
  // The zeros behind the text do not continue its last character.
  Block last;
  if (end - text >= 16) {
    last = LoadShort(text, size, 0);
  } else {
    std::uint8_t bytes[16] = {};
    CopyTail(bytes, text, size);
    last = LoadBlock(bytes);
  }
  faults |= HasHighBit(last) ? FaultsOf(before, last) : FaultsBeforeAscii(before);
  return !HasHighBit(faults);
}

}  // namespace millrace::kernel::codec
