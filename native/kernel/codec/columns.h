// Columns of a batch while a kernel fills them, a row at a time. src/core/columns defines the
// memory; src/addon/reference/codec/column-writer.ts is the reference implementation.
//
// Invariants: (1) a value is appended only where all its buffers have room, else Need() is set and
// the call returns false; (2) Rollback() restores the state behind the last complete row; (3) the
// bits behind the last value of a bitmap's last byte are zero.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel::codec {

// Column of a schema: kind, nesting and bytes of a cell.
struct ColumnType {
  std::int32_t kind = 0;
  bool nullable = false;
  std::uint32_t size = 0;
  // Index behind the subtree.
  std::uint32_t next = 0;
};

// Reads and checks the table of a column schema, COLUMN_CELL.COUNT words a column. kBadArgument for
// a table that is no tree in preorder, or exceeds COLUMN_LIMIT.
Status ReadColumnTypes(Span<const std::int32_t> table, std::vector<ColumnType>* out);

inline bool IsText(std::int32_t kind) {
  return kind == layout::kColumnKindUtf8 || kind == layout::kColumnKindBinary;
}

// Copies `size` bytes in steps of fixed length: most texts are short. Returns the bits of all bytes
// or-ed together, so that bit 7 tells whether the bytes are ASCII. REQUIRES: no overlap.
inline std::uint64_t CopyBytes(std::uint8_t* into, const std::uint8_t* from, std::size_t size) {
  std::uint64_t seen = 0;
  const auto word = [&](std::size_t at) {
    std::uint64_t bits;
    std::memcpy(&bits, from + at, sizeof bits);
    std::memcpy(into + at, &bits, sizeof bits);
    seen |= bits;
  };
  if (size >= 8) {
    std::size_t at = 0;
    for (; at + 16 <= size; at += 16) {
      word(at);
      word(at + 8);
    }
    if (at + 8 <= size) word(at);
    // Overlaps the bytes before, so that the tail is one step.
    word(size - 8);
    return seen;
  }
  if (size >= 4) {
    std::uint32_t first;
    std::uint32_t last;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&last, from + size - 4, sizeof last);
    std::memcpy(into, &first, sizeof first);
    std::memcpy(into + size - 4, &last, sizeof last);
    const std::uint64_t both = first | last;
    return both | both << 32;
  }
  for (std::size_t i = 0; i < size; i++) {
    into[i] = from[i];
    seen |= from[i];
  }
  return seen | seen << 8 | seen << 16;
}

class Columns {
 public:
  // Bytes that no buffer has: the column has its greatest number of elements.
  static constexpr std::uint32_t kMoreThanAny = 0xffffffffU;

  explicit Columns(std::vector<ColumnType> types);

  const std::vector<ColumnType>& types() const { return types_; }

  // Opens a batch: `buffer` and `state` as in src/core/columns/batch.ts. kNotThisBatch where they
  // do not belong to these columns. The memory is borrowed until the next call.
  Status Open(Span<std::uint8_t> buffer, Span<std::uint32_t> state);

  std::uint32_t row_count() const { return row_count_; }
  std::uint32_t row_capacity() const { return row_capacity_; }

  // Makes the appended values a row with this verdict.
  void Commit(std::uint8_t status, std::uint32_t error_at) {
    status_[row_count_] = status;
    error_at_[row_count_] = error_at;
    row_count_++;
    std::copy(counts_.begin(), counts_.end(), committed_.begin());
  }
  // Removes the values behind the last complete row.
  void Rollback();
  // Appends a null or zero value to every top column. False where room lacks.
  bool AppendEmptyRow();
  // Writes row count, lengths and the needed room to the state.
  void Save();

  // Appends a cell whose bytes `value` has. REQUIRES: sizeof(T) is the column's size.
  template <typename T>
  bool AppendCell(std::uint32_t column, T value) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    std::memcpy(place.values + std::size_t{count.length} * sizeof value, &value, sizeof value);
    SetValid(place, count.length);
    count.length++;
    return true;
  }

  bool AppendBool(std::uint32_t column, bool value) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    SetBit(place.values, count.length, value);
    SetValid(place, count.length);
    count.length++;
    return true;
  }

  bool AppendFixed(std::uint32_t column, const std::uint8_t* from) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    const std::size_t size = types_[column].size;
    CopyBytes(place.values + count.length * size, from, size);
    SetValid(place, count.length);
    count.length++;
    return true;
  }

  // Appends a decimal from `size` bytes of a big-endian two's complement number.
  bool AppendDecimal(std::uint32_t column, const std::uint8_t* from, std::uint32_t size);

  // Appends a text or binary value. `seen` gets the bits of all its bytes. REQUIRES: size is below
  // 2^31.
  bool AppendText(std::uint32_t column, const std::uint8_t* from, std::uint32_t size,
                  std::uint64_t* seen) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    if (size > place.values_room - count.used) [[unlikely]]
      return LackText(column, size);
    *seen = CopyBytes(place.values + count.used, from, size);
    count.used += size;
    place.offsets[count.length + 1] = static_cast<std::int32_t>(count.used);
    SetValid(place, count.length);
    count.length++;
    return true;
  }

  // The same with a byte before the value.
  bool AppendTagged(std::uint32_t column, std::uint8_t tag, const std::uint8_t* from,
                    std::uint32_t size);

  // Selects the branch of a union: the next element of the child is the union's value.
  bool Pick(std::uint32_t column, std::uint8_t branch, std::uint32_t child) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    place.values[count.length] = branch;
    place.offsets[count.length] = static_cast<std::int32_t>(counts_[child].length);
    count.length++;
    return true;
  }

  // Appends an element of a list or map over the elements that its child has.
  bool CloseList(std::uint32_t column) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    place.offsets[count.length + 1] = static_cast<std::int32_t>(counts_[column + 1].length);
    SetValid(place, count.length);
    count.length++;
    return true;
  }

  // Appends an element of a struct, whose fields have been appended.
  bool CloseStruct(std::uint32_t column) {
    const Place& place = places_[column];
    Count& count = counts_[column];
    if (count.length >= place.room) [[unlikely]]
      return Lack(column);
    SetValid(place, count.length);
    count.length++;
    return true;
  }

  // Appends an element of a list, map or struct.
  bool Close(std::uint32_t column) {
    return types_[column].kind == layout::kColumnKindStruct ? CloseStruct(column)
                                                            : CloseList(column);
  }

  // Appends null, or the zero value of a column that is not nullable.
  bool AppendEmpty(std::uint32_t column);

  // Removes the elements of lists and maps that are not closed yet, in the fields of the struct
  // `column`, whose own element is not closed either.
  void TruncateOpen(std::uint32_t column);

 private:
  struct Count {
    std::uint32_t length = 0;
    // Bytes of a text or binary column.
    std::uint32_t used = 0;
  };
  struct Place {
    std::uint8_t* validity = nullptr;  // null: the column is not nullable
    std::int32_t* offsets = nullptr;
    std::uint8_t* values = nullptr;
    // Elements that fit, apart from the bytes of texts.
    std::uint32_t room = 0;
    std::uint32_t values_room = 0;
  };

  static void SetBit(std::uint8_t* bitmap, std::uint32_t at, bool value) {
    const std::uint32_t bit = at & 7U;
    const std::uint32_t kept = bitmap[at >> 3] & ((1U << bit) - 1U);
    bitmap[at >> 3] = static_cast<std::uint8_t>(kept | (value ? 1U : 0U) << bit);
  }
  // Clears the bits behind the first `length` in their byte.
  static void ClearBits(std::uint8_t* bitmap, std::uint32_t length) {
    const std::uint32_t bit = length & 7U;
    if (bit == 0) return;
    bitmap[length >> 3] = static_cast<std::uint8_t>(bitmap[length >> 3] & ((1U << bit) - 1U));
  }
  static void SetValid(const Place& place, std::uint32_t at) {
    if (place.validity != nullptr) SetBit(place.validity, at, true);
  }

  // Elements of the child, or bytes, that belong to the closed elements of a list, map or text.
  std::uint32_t OpenStart(std::uint32_t column) const;
  void Truncate(std::uint32_t column, std::uint32_t length);

  // Record what the next value needs; return false.
  bool Lack(std::uint32_t column);
  bool LackText(std::uint32_t column, std::uint32_t size);

  Status OpenColumn(std::uint32_t column, Span<std::uint8_t> buffer, Span<std::uint32_t> state);

  std::vector<ColumnType> types_;
  std::vector<std::uint32_t> top_;
  std::vector<Place> places_;
  std::vector<Count> counts_;
  std::vector<Count> committed_;
  Span<std::uint32_t> state_;
  std::uint32_t* error_at_ = nullptr;
  std::uint8_t* status_ = nullptr;
  std::uint32_t row_count_ = 0;
  std::uint32_t row_capacity_ = 0;
  std::uint32_t need_slot_ = 0;
  std::uint32_t need_bytes_ = 0;
};

}  // namespace millrace::kernel::codec
