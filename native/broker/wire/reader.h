// Bounded reading of Kafka's wire format: big-endian numbers, varints, texts and arrays.
//
// Invariant: nothing outside the given bytes is read. After the first field that does not fit,
// `ok()` is false and every further field is 0 or empty. A count is checked against the bytes that
// are left before anything is allocated for it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace millrace::broker::wire {

struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

template <typename T>
inline T BigEndian(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (sizeof(T) == 1 || std::endian::native == std::endian::big) return value;
  if constexpr (sizeof(T) == 2)
    return static_cast<T>(__builtin_bswap16(static_cast<std::uint16_t>(value)));
  if constexpr (sizeof(T) == 4)
    return static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
}

// Reads a varint of at most 64 bits. Null for one that is cut or longer.
inline const std::uint8_t* ReadLongVarint(const std::uint8_t* at, const std::uint8_t* end,
                                          std::uint64_t* out) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at == end) return nullptr;
    const std::uint8_t byte = *at++;
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) {
      // The tenth byte has one bit of the number.
      if (shift == 63 && byte > 1) return nullptr;
      *out = value;
      return at;
    }
  }
  return nullptr;
}

// Reads a varint as above. Most have one byte or two.
[[gnu::always_inline]] inline const std::uint8_t* ReadVarint(const std::uint8_t* at,
                                                             const std::uint8_t* end,
                                                             std::uint64_t* out) {
  if (end - at < 2) [[unlikely]]
    return ReadLongVarint(at, end, out);
  const std::uint64_t first = at[0];
  if (first < 0x80U) {
    *out = first;
    return at + 1;
  }
  const std::uint64_t second = at[1];
  if (second < 0x80U) {
    *out = (first & 0x7fU) | (second << 7);
    return at + 2;
  }
  return ReadLongVarint(at, end, out);
}

// Reads a signed number in ZigZag form.
[[gnu::always_inline]] inline const std::uint8_t* ReadSigned(const std::uint8_t* at,
                                                             const std::uint8_t* end,
                                                             std::int64_t* out) {
  std::uint64_t raw = 0;
  at = ReadVarint(at, end, &raw);
  *out = static_cast<std::int64_t>((raw >> 1) ^ (~(raw & 1) + 1));
  return at;
}

class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  explicit Reader(Bytes bytes) : Reader(bytes.data, bytes.size) {}

  bool ok() const { return ok_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  std::int8_t I8() { return Number<std::int8_t>(); }
  std::int16_t I16() { return Number<std::int16_t>(); }
  std::int32_t I32() { return Number<std::int32_t>(); }
  std::int64_t I64() { return Number<std::int64_t>(); }

  std::uint64_t Unsigned() {
    std::uint64_t value = 0;
    const std::uint8_t* next = ok_ ? ReadVarint(at_, end_, &value) : nullptr;
    if (next == nullptr) return Fail();
    at_ = next;
    return value;
  }

  // Null text reads as empty.
  std::string_view Text() {
    const std::int16_t length = I16();
    return length < 0 ? std::string_view{} : View(static_cast<std::size_t>(length));
  }
  std::string_view CompactText() {
    const std::uint64_t length = Unsigned();
    return length == 0 ? std::string_view{} : View(length - 1);
  }
  // Null bytes read as empty.
  Bytes Block() {
    const std::int32_t length = I32();
    return length < 0 ? Bytes{} : Take(static_cast<std::size_t>(length));
  }
  Bytes CompactBlock() {
    const std::uint64_t length = Unsigned();
    return length == 0 ? Bytes{} : Take(length - 1);
  }

  // Number of items of an array; null reads as 0. Fails for more items than can follow, each of at
  // least `item_bytes`.
  std::size_t Count(std::size_t item_bytes) {
    const std::int32_t count = I32();
    return count < 0 ? 0 : Checked(static_cast<std::uint64_t>(count), item_bytes);
  }
  std::size_t CompactCount(std::size_t item_bytes) {
    const std::uint64_t count = Unsigned();
    return count == 0 ? 0 : Checked(count - 1, item_bytes);
  }

  void Skip(std::uint64_t size) { Take(size); }
  void SkipTags() {
    for (std::size_t count = TagCount(); count > 0; count--) {
      Unsigned();
      Skip(Unsigned());
    }
  }
  // A tag has at least two bytes.
  std::size_t TagCount() { return Checked(Unsigned(), 2); }

  Bytes Take(std::uint64_t size) {
    if (!ok_ || size > left()) {
      Fail();
      return {};
    }
    const Bytes taken{at_, static_cast<std::size_t>(size)};
    at_ += size;
    return taken;
  }

 private:
  template <typename T>
  T Number() {
    if (!ok_ || left() < sizeof(T)) return static_cast<T>(Fail());
    const T value = BigEndian<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  std::string_view View(std::uint64_t size) {
    const Bytes bytes = Take(size);
    return {reinterpret_cast<const char*>(bytes.data), bytes.size};
  }
  std::size_t Checked(std::uint64_t count, std::size_t item_bytes) {
    if (!ok_ || count > left() / item_bytes) return static_cast<std::size_t>(Fail());
    return static_cast<std::size_t>(count);
  }
  std::uint64_t Fail() {
    ok_ = false;
    at_ = end_;
    return 0;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool ok_ = true;
};

}  // namespace millrace::broker::wire
