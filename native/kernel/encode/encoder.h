// Encoder of columns into frames: what the programs of every format have in common. The memory of
// the columns is defined in src/core/columns/batch.ts, that of the frames in
// src/core/columns/frames.ts; the reference implementation is src/addon/reference/encode.
//
// Invariants: (1) a column is read only within its length, which its buffers hold, and an offset or
// type id only after it has been checked; (2) a variable number of bytes is written only where they
// fit with `spare_` bytes behind them. Between two such checks a program writes less than
// ENCODE_LIMIT.SPARE_BYTES for each column, so that other values need no check.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/batch.h"
#include "kernel/codec/columns.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel::encode {

// Frames of a call, one after the other: frame i is bytes[offsets[i], offsets[i + 1]).
struct Frames {
  Span<std::uint8_t> bytes;
  Span<std::uint32_t> offsets;
  Span<std::uint8_t> status;
  // Column whose value was refused.
  Span<std::uint32_t> error_column;
  Span<std::uint32_t> state;
};

// Opened program. Not thread-safe: it has the state of the call in progress.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends a frame for each row [from, to) of the columns in `buffer` and `state`, and stops
  // before a row that lacks room; FRAMES_STATE.NEED_BYTES then tells how many bytes the buffer must
  // hold. A row that is refused has an empty frame. `rows` is the number of rows appended. With
  // `skips` the first row is appended as TOO_LARGE. kTooFewRows when `into` has fewer free rows;
  // nothing is appended then.
  virtual Status Encode(Span<std::uint8_t> buffer, Span<std::uint32_t> state, std::uint32_t from,
                        std::uint32_t to, Span<const std::uint8_t> prefix, bool skips,
                        const Frames& into, std::uint32_t* rows) = 0;
};

// Column of the batch that is read.
struct Column {
  const std::uint8_t* validity = nullptr;  // null: the column is not nullable
  const std::int32_t* offsets = nullptr;
  const std::uint8_t* values = nullptr;
  std::uint32_t length = 0;
  std::uint32_t values_bytes = 0;
  std::int32_t kind = 0;
  std::uint32_t size = 0;
  // Index behind the subtree.
  std::uint32_t next = 0;
  bool nullable = false;

  bool IsNull(std::uint32_t at) const {
    return validity != nullptr && (validity[at >> 3] >> (at & 7U) & 1U) == 0;
  }
  bool Bit(std::uint32_t at) const { return (values[at >> 3] >> (at & 7U) & 1U) != 0; }
  template <typename T>
  T Cell(std::uint32_t at) const {
    T value;
    std::memcpy(&value, values + std::size_t{at} * sizeof value, sizeof value);
    return value;
  }
  // Reads where the elements of a list, map or text begin and how many there are. False where they
  // are not among the first `most`.
  bool Elements(std::uint32_t at, std::uint32_t most, std::uint32_t* start,
                std::uint32_t* count) const {
    const std::int32_t from = offsets[at];
    const std::int32_t to = offsets[at + 1];
    if (from < 0 || to < from || static_cast<std::uint32_t>(to) > most) return false;
    *start = static_cast<std::uint32_t>(from);
    *count = static_cast<std::uint32_t>(to - from);
    return true;
  }
};

// Lists of words behind each other, each after its length. False where they leave `words`.
bool ReadTables(Span<const std::int32_t> words, std::vector<std::vector<std::int32_t>>* out);

// Loop over the rows of a call.
class RowEncoder : public Encoder {
 public:
  Status Encode(Span<std::uint8_t> buffer, Span<std::uint32_t> state, std::uint32_t from,
                std::uint32_t to, Span<const std::uint8_t> prefix, bool skips, const Frames& into,
                std::uint32_t* rows) final;

 protected:
  using Bytes = std::uint8_t*;

  explicit RowEncoder(const std::vector<codec::ColumnType>& types);

  // Writes the payload of a row and returns the position behind it. nullptr ends the row: with a
  // verdict, or where room lacks.
  virtual Bytes PutRow(std::uint32_t row, Bytes to) = 0;

  const Column& At(std::uint32_t column) const { return columns_[column]; }
  const std::vector<std::uint32_t>& top() const { return top_; }

  bool HasRoom(Bytes to, std::size_t more) const {
    return static_cast<std::size_t>(end_ - to) >= more + spare_;
  }
  [[gnu::cold]] Bytes Lack(Bytes to, std::size_t more);
  [[gnu::cold]] Bytes Refuse(std::uint32_t column);
  [[gnu::cold]] Bytes Break(std::uint32_t column);

  // Writes a text or binary value behind its length, which is shifted by `shift` bits.
  Bytes PutBytes(std::uint32_t column, std::uint32_t at, unsigned shift, Bytes to);

 private:
  // No value of ENCODE_STATUS.
  static constexpr std::uint8_t kNoRoom = 0xff;

  Status OpenColumns(Span<std::uint8_t> buffer, Span<std::uint32_t> state);
  Status OpenColumn(std::uint32_t column, Span<std::uint8_t> buffer, Span<std::uint32_t> state);
  Status OpenFrames(const Frames& into, std::uint32_t rows);
  // False where room lacks.
  bool AppendRow(std::uint32_t row, Span<const std::uint8_t> prefix, const Frames& into,
                 std::uint32_t at, bool skips);

  std::vector<Column> columns_;
  std::vector<std::uint32_t> top_;
  std::size_t spare_;
  const std::uint8_t* row_status_ = nullptr;
  std::uint32_t row_count_ = 0;
  Bytes base_ = nullptr;
  Bytes end_ = nullptr;
  Bytes used_ = nullptr;
  Bytes payload_ = nullptr;
  std::uint8_t verdict_ = 0;
  std::uint32_t error_column_ = 0;
  std::uint32_t need_bytes_ = 0;
};

// Writes a varint. May write up to ten bytes; those behind the returned position are undefined.
inline std::uint8_t* PutVarint(std::uint8_t* to, std::uint64_t bits) {
  if (bits < 0x80) [[likely]] {
    *to = static_cast<std::uint8_t>(bits);
    return to + 1;
  }
  if (bits < std::uint64_t{1} << 56) [[likely]] {
    // Spreads groups of 7 bits over the bytes of a word, then sets the continuation bits.
    std::uint64_t word = (bits & 0x000000000fffffffU) | (bits & 0x00fffffff0000000U) << 4;
    word = (word & 0x00003fff00003fffU) | (word & 0x0fffc0000fffc000U) << 2;
    word = (word & 0x007f007f007f007fU) | (word & 0x3f803f803f803f80U) << 1;
    const auto bytes = static_cast<unsigned>(64 - std::countl_zero(bits) + 6) / 7;
    word |= 0x8080808080808080U & ((std::uint64_t{1} << (8 * (bytes - 1))) - 1);
    std::memcpy(to, &word, sizeof word);
    return to + bytes;
  }
  for (; bits >= 0x80; bits >>= 7) *to++ = static_cast<std::uint8_t>(bits | 0x80U);
  *to = static_cast<std::uint8_t>(bits);
  return to + 1;
}

constexpr std::uint64_t Zigzag(std::int64_t value) {
  return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
}

}  // namespace millrace::kernel::encode
