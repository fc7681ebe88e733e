// Writing of Kafka's wire format.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace millrace::broker::wire {

class Writer {
 public:
  void I8(std::int8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void I16(std::int16_t value) { Number(static_cast<std::uint16_t>(value), 2); }
  void I32(std::int32_t value) { Number(static_cast<std::uint32_t>(value), 4); }
  void I64(std::int64_t value) { Number(static_cast<std::uint64_t>(value), 8); }
  void Unsigned(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80U));
    bytes_.push_back(static_cast<char>(value));
  }
  void Text(std::string_view text) {
    I16(static_cast<std::int16_t>(text.size()));
    bytes_.append(text);
  }
  void CompactText(std::string_view text) {
    CompactCount(text.size());
    bytes_.append(text);
  }
  void Block(std::string_view block) {
    I32(static_cast<std::int32_t>(block.size()));
    bytes_.append(block);
  }
  void Count(std::size_t count) { I32(static_cast<std::int32_t>(count)); }
  void CompactCount(std::size_t count) { Unsigned(count + 1); }
  // An empty list of tagged fields.
  void NoTags() { bytes_.push_back(0); }

  // Overwrites the number at the start with the size of all that follows it.
  std::string Finish() {
    const auto size = static_cast<std::uint32_t>(bytes_.size() - 4);
    for (std::size_t i = 0; i < 4; i++) bytes_[i] = static_cast<char>(size >> (24 - 8 * i));
    return std::move(bytes_);
  }

 private:
  void Number(std::uint64_t value, unsigned size) {
    for (unsigned i = size; i > 0; i--) bytes_.push_back(static_cast<char>(value >> (8 * (i - 1))));
  }

  std::string bytes_;
};

}  // namespace millrace::broker::wire
