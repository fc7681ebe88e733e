// Columns of packed integers: the encoding of rows in the changelog. A column is ceil(n / 2) bytes
// of 4-bit lengths, the low half first. Then follows each integer, little-endian without its
// leading zero bytes, so that every column has exactly one encoding.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/form.h"
#include "kernel/span.h"
#include "kernel/window/row.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

static_assert(std::endian::native == std::endian::little, "encodings are little-endian");
__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

inline constexpr std::size_t kPackedBytesMax = 8;  // greatest length of an integer
// Greatest count of a delta.
inline constexpr std::uint64_t kDeltaCountMax = std::uint64_t{1} << 53;

// Rows of one form in several parts, in order.
struct RowParts {
  // First row of a part, and its number of rows.
  Span<const Span<const Accumulator>> parts;
  const RowForm& form;

  template <typename Each>
  void ForEach(const Each& each) const {
    for (std::size_t part = 0; part < parts.size; part++) {
      const Span<const Accumulator>& rows = parts.data[part];
      for (std::size_t i = 0; i < rows.size; i++) each(rows.data[i * form.lines()]);
    }
  }
};

// Bytes of the lengths of a column.
inline std::size_t LengthBytes(std::size_t count) { return (count + 1) / 2; }
// Upper bound of the bytes of a column. A writer may write up to kPackedBytesMax - 1 bytes behind
// it.
inline std::size_t ColumnBytesMax(std::size_t count) {
  return LengthBytes(count) + count * kPackedBytesMax;
}

inline std::uint64_t ZigZag(std::int64_t x) {
  return (static_cast<std::uint64_t>(x) << 1) ^ static_cast<std::uint64_t>(x >> 63);
}
inline std::int64_t UnZigZag(std::uint64_t x) {
  return static_cast<std::int64_t>((x >> 1) ^ (0 - (x & 1)));
}

inline Wide SumOf(const Accumulator& row) {
  return static_cast<Wide>((UnsignedWide{row.sum_high} << 64) | row.sum_low);
}
inline UnsignedWide ZigZagSum(const Accumulator& row) {
  const Wide sum = SumOf(row);
  return (static_cast<UnsignedWide>(sum) << 1) ^ static_cast<UnsignedWide>(sum >> 127);
}

template <typename T>
void Store(std::uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
template <typename T>
T Load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Writes a column of packed integers. May write up to 7 bytes behind end().
class ColumnWriter {
 public:
  ColumnWriter(std::uint8_t* at, std::size_t count) : lengths_(at), at_(at + LengthBytes(count)) {
    std::memset(at, 0, LengthBytes(count));
  }
  void Put(std::uint64_t value) {
    const auto length = static_cast<unsigned>(71 - std::countl_zero(value)) / 8;
    Store(at_, value);
    at_ += length;
    lengths_[number_ / 2] =
        static_cast<std::uint8_t>(lengths_[number_ / 2] | (length << (number_ % 2 * 4)));
    number_++;
  }
  std::uint8_t* end() const { return at_; }

 private:
  std::uint8_t* lengths_;
  std::uint8_t* at_;
  std::size_t number_ = 0;
};

// Place of a column in an encoding: its lengths, then its integers.
struct ColumnPlace {
  std::size_t from;
  std::size_t count;
  std::size_t value_bytes;
};

// Output of columns, one behind the other. Writes go up to 7 bytes behind the last column.
struct ColumnOut {
  std::uint8_t* at;
  const std::uint8_t* base = nullptr;
  // Receives the place of each column, relative to the base; null: not needed.
  std::vector<ColumnPlace>* places = nullptr;

  // Writes a column of `count` integers: put(&writer) writes all of them.
  template <typename Put>
  void Column(std::size_t count, const Put& put) {
    ColumnWriter writer(at, count);
    put(&writer);
    if (places != nullptr) {
      const auto value_bytes = static_cast<std::size_t>(writer.end() - at) - LengthBytes(count);
      places->push_back({static_cast<std::size_t>(at - base), count, value_bytes});
    }
    at = writer.end();
  }
};

// Writes each(row) for all rows, or only for rows with more than one event.
template <typename Each>
void WriteColumn(const RowParts& parts, std::size_t count, bool only_more, const Each& each,
                 ColumnOut* out) {
  out->Column(count, [&](ColumnWriter* column) {
    parts.ForEach([&](const Accumulator& row) {
      if (!only_more || row.count > 1) column->Put(each(row));
    });
  });
}

// Reads a column that Open has checked.
class ColumnReader {
 public:
  // Consumes a column of `count` integers from the front of [*left, end). False when the column is
  // truncated, or has a length above 8, a leading zero byte, or a length too many.
  bool Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t count) {
    const std::size_t length_bytes = LengthBytes(count);
    if (static_cast<std::size_t>(end - *left) < length_bytes) return false;
    lengths_ = *left;
    at_ = lengths_ + length_bytes;
    const std::uint8_t* at = at_;
    for (std::size_t i = 0; i < count; i++) {
      const std::size_t length = LengthAt(i);
      if (length > kPackedBytesMax || static_cast<std::size_t>(end - at) < length) return false;
      at += length;
      if (length > 0 && at[-1] == 0) return false;
    }
    if (count % 2 == 1 && LengthAt(count) != 0) return false;
    *left = at;
    return true;
  }
  std::size_t LengthAt(std::size_t i) const { return (lengths_[i / 2] >> (i % 2 * 4)) & 15U; }
  std::uint64_t Next() {
    std::uint64_t value = 0;
    const std::size_t length = LengthAt(number_++);
    std::memcpy(&value, at_, length);
    at_ += length;
    return value;
  }

 private:
  const std::uint8_t* lengths_ = nullptr;
  const std::uint8_t* at_ = nullptr;
  std::size_t number_ = 0;
};

// Numbers of rows in all parts, and of rows with more than one event.
struct RowCounts {
  std::size_t all = 0;
  std::size_t more = 0;
};
// Counts rows. kBadArgument for more than `rows_max` rows or a count above kDeltaCountMax.
Status CountRows(const RowParts& parts, std::size_t rows_max, RowCounts* counts);

// Aggregates of deltas with more than one event as three columns: greatest - least value, and the
// two halves of the sum.
inline constexpr std::size_t kMoreColumns = 3;
void WriteMore(const RowParts& parts, std::size_t more, ColumnOut* out);

class MoreReader {
 public:
  // Consumes the three columns, as ColumnReader::Open does.
  bool Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t more);
  // Completes a row that holds its least value to a row of `others` + 1 events. False when no
  // events have these aggregates.
  bool Complete(std::uint64_t others, Accumulator* row);

 private:
  ColumnReader width_;
  ColumnReader sum_low_;
  ColumnReader sum_high_;
};

// Number of cells of all sketches of all rows.
std::size_t SketchCells(const RowParts& parts);
// Upper bound of the bytes of all cells of all rows, with their sketches.
std::size_t CellBytesMax(const RowParts& parts);
// The cells of all rows, a column each. Behind them three columns for each sketch: the headers, and
// the cells of all rows in one column each of buckets and of their numbers, or one of hashes or
// registers.
void WriteCells(const RowParts& parts, std::size_t count, ColumnOut* out);

// Columns of the rows of one shard, encoded apart from those of the others.
class ShardColumns {
 public:
  void Clear() {
    places_.clear();
    rows_ = {};
    status_ = Status::kOk;
  }
  // Counts the rows and encodes write(rows, out), whose output takes at most `bytes_max`.
  template <typename Write>
  void Encode(const RowParts& parts, std::size_t rows_max, std::size_t bytes_max,
              const Write& write) {
    Clear();
    status_ = CountRows(parts, rows_max, &rows_);
    if (status_ != Status::kOk) return;
    if (bytes_.size() < bytes_max) bytes_.resize(bytes_max);
    ColumnOut out{bytes_.data(), bytes_.data(), &places_};
    write(rows_, &out);
  }

  Status status() const { return status_; }
  const RowCounts& rows() const { return rows_; }
  const std::vector<ColumnPlace>& places() const { return places_; }
  const std::uint8_t* bytes() const { return bytes_.data(); }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<ColumnPlace> places_;
  RowCounts rows_;
  Status status_ = Status::kOk;
};

// Counts the rows of all shards. kBadArgument for more than `rows_max` rows, or as one of the
// shards.
Status CountRows(Span<const ShardColumns* const> shards, std::size_t rows_max, std::size_t* count);
// Joins the columns of all shards: each column becomes that of the rows of the first shard, then of
// the second, and so on, the same bytes as one encoding of all rows. Returns the end.
std::uint8_t* JoinColumns(Span<const ShardColumns* const> shards, std::uint8_t* at);

class CellReader {
 public:
  explicit CellReader(const RowForm& form)
      : form_(form), columns_(form.cells()), sketches_(form.sketches()) {}
  // Consumes the columns, as ColumnReader::Open does.
  bool Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t count);
  // Reads the cells of the next row, which is zeroed behind its head. False when they are not
  // sound; the row has blocks then too.
  bool Next(Accumulator* row);

 private:
  struct SketchReader {
    ColumnReader headers;
    ColumnReader cells;
    ColumnReader numbers;
  };
  void NextSketch(std::size_t number, Accumulator* row);

  const RowForm& form_;
  std::vector<ColumnReader> columns_;
  std::vector<SketchReader> sketches_;
};

}  // namespace millrace::kernel
