// Checks of texts: UTF-8 against a check of one character at a time, with every pair and triple of
// bytes, and copies of every size in memory without a byte to spare.
#include "kernel/codec/text.h"

#include <cstdio>
#include <cstring>

#include "test/input.h"
#include "test/planted.h"

namespace {

using namespace millrace;
using namespace millrace::kernel::codec;

bool IsTail(std::uint8_t byte) { return (byte & 0xc0U) == 0x80U; }

// Length of the character at `at`; 0 if it is none. Source: The Unicode Standard 15, table 3-7.
std::size_t CharacterBytes(Bytes at, std::size_t size) {
  const std::uint8_t first = at[0];
  if (first < 0x80) return 1;
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

bool IsUtf8ByCharacter(Bytes text, std::size_t size) {
  for (std::size_t at = 0; at < size;) {
    const std::size_t bytes = CharacterBytes(text + at, size - at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

// Texts of letters, with a sequence of bytes inside a block, between two, and at the end.
class Places {
 public:
  void Check(Bytes sequence, std::size_t size) {
    const std::size_t places[] = {0, 20, 32 - 1, kSize - size};
    const bool expected = IsUtf8ByCharacter(sequence, size);
    for (const std::size_t at : places) {
      std::memcpy(text_ + at, sequence, size);
      // A letter behind it ends the last character.
      MILLRACE_CHECK(IsUtf8Beyond(text_, kSize) == expected);
      std::memset(text_ + at, 'a', size);
    }
    std::memcpy(short_, sequence, size);
    MILLRACE_CHECK(IsUtf8Beyond(short_, static_cast<std::uint32_t>(size)) == expected);
  }

 private:
  static constexpr std::uint32_t kSize = 53;
  std::uint8_t text_[kSize + 1] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  std::uint8_t short_[4] = {};
};

void EverySequenceIsJudgedAsByCharacter() {
  Places places;
  for (std::uint32_t bits = 0; bits < 0x10000; bits++) {
    const std::uint8_t pair[] = {static_cast<std::uint8_t>(bits >> 8),
                                 static_cast<std::uint8_t>(bits)};
    places.Check(pair, 2);
  }
  constexpr std::uint8_t kBounds[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
                                      0xbf, 0xc0, 0xc2, 0xe0, 0xed, 0xf0, 0xff};
  for (std::uint32_t bits = 0; bits < 0x10000; bits++) {
    for (const std::uint8_t third : kBounds) {
      const std::uint8_t triple[] = {static_cast<std::uint8_t>(bits >> 8),
                                     static_cast<std::uint8_t>(bits), third};
      places.Check(triple, 3);
      if (triple[0] < 0xe0) continue;
      for (const std::uint8_t fourth : kBounds) {
        const std::uint8_t all[] = {triple[0], triple[1], third, fourth};
        places.Check(all, 4);
      }
    }
  }
}

// A buffer ends behind the text, so that a sanitizer finds every access beyond it.
void TextsOfEverySizeAreCopied() {
  for (std::uint32_t size = 0; size <= 200; size++) {
    test::Buffer text(size);
    for (std::uint32_t i = 0; i < size; i++) text.data()[i] = static_cast<std::uint8_t>(i % 128);
    test::Buffer copy(size);
    MILLRACE_CHECK(CopyLong(copy.data(), text.data(), size));
    MILLRACE_CHECK(size == 0 || std::memcmp(copy.data(), text.data(), size) == 0);
    MILLRACE_CHECK(IsLongAscii(text.data(), size));
    for (std::uint32_t i = 0; i < size; i++) {
      text.data()[i] |= 0x80;
      MILLRACE_CHECK(!CopyLong(copy.data(), text.data(), size));
      MILLRACE_CHECK(!IsLongAscii(text.data(), size));
      MILLRACE_CHECK(!IsUtf8(text.data(), size, text.data() + size));
      text.data()[i] &= 0x7f;
    }
  }
}

void ShortTextsAreJudgedWithoutTheBytesBehind() {
  test::Buffer text(kShortText);
  test::Buffer copy(kShortText);
  for (std::uint32_t size = 0; size <= kShortText; size++) {
    std::memset(text.data(), 0xff, text.size());
    std::memset(text.data(), 'a', size);
    MILLRACE_CHECK(IsShortAscii(text.data(), size));
    MILLRACE_CHECK(CopyShort(copy.data(), text.data(), size));
    MILLRACE_CHECK(size == 0 || std::memcmp(copy.data(), text.data(), size) == 0);
    for (std::uint32_t i = 0; i < size; i++) {
      text.data()[i] = 0x80;
      MILLRACE_CHECK(!IsShortAscii(text.data(), size));
      MILLRACE_CHECK(!CopyShort(copy.data(), text.data(), size));
      text.data()[i] = 'a';
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  EverySequenceIsJudgedAsByCharacter();
  TextsOfEverySizeAreCopied();
  ShortTextsAreJudgedWithoutTheBytesBehind();
  std::printf("checks=3\n");
  return 0;
}
