// Columns of a batch while a kernel fills them, a row at a time. src/core/columns defines the
// memory; src/addon/reference/codec/column-writer.ts is the reference implementation.
//
// Invariants: (1) a value is appended only where all its buffers have room, else Need() is set and
// the call returns false; (2) Rollback() restores the state behind the last complete row; (3) the
// bits behind the last value of a bitmap's last byte are zero.
//
// A row costs nothing to commit: every length is derived from the number of rows and the offsets
// of lists and texts. Only the branches of a dense union have lengths that must be recorded.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/batch.h"
#include "kernel/codec/text.h"
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

// Write position of a column, and the memory of its buffers: one cache line.
struct alignas(64) Cursor {
  std::uint8_t* validity = nullptr;  // null: the column is not nullable
  std::int32_t* offsets = nullptr;
  std::uint8_t* values = nullptr;
  std::uint32_t length = 0;
  // Bytes of a text or binary column.
  std::int32_t used = 0;
  // Greatest number of them behind which a short text fits; below 0 for none.
  std::int32_t last_short = -1;
  // Elements that fit, apart from the bytes of texts.
  std::uint32_t room = 0;
  std::uint32_t values_room = 0;
  // Bytes of a cell.
  std::uint32_t size = 0;
  std::int32_t kind = 0;
};

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

  // Cursors of the columns in preorder: the first child of a column is behind it.
  Cursor* cursors() { return cursors_.data(); }
  Cursor& operator[](std::uint32_t column) { return cursors_[column]; }

  // Makes the appended values a row with this verdict.
  void Commit(std::uint8_t status, std::uint32_t error_at) {
    status_[row_count_] = status;
    error_at_[row_count_] = error_at;
    row_count_++;
    for (Branch& branch : branches_) branch.committed = cursors_[branch.column].length;
  }
  // Removes the values behind the last complete row.
  void Rollback();
  // Appends a null or zero value to every top column. False where room lacks.
  bool AppendEmptyRow();
  // Writes row count, lengths and the needed room to the state. REQUIRES: no values behind the last
  // complete row.
  void Save();

  // Appends a cell whose bytes `value` has. REQUIRES: sizeof(T) is the column's size.
  template <typename T>
  bool AppendCell(Cursor& into, T value) {
    if (into.length >= into.room) [[unlikely]]
      return Lack(into);
    std::memcpy(into.values + std::size_t{into.length} * sizeof value, &value, sizeof value);
    return Finish(into);
  }

  bool AppendBool(Cursor& into, bool value) {
    if (into.length >= into.room) [[unlikely]]
      return Lack(into);
    SetBit(into.values, into.length, value);
    return Finish(into);
  }

  bool AppendFixed(Cursor& into, Bytes from) {
    if (into.length >= into.room) [[unlikely]]
      return Lack(into);
    CopyLong(into.values + std::size_t{into.length} * into.size, from, into.size);
    return Finish(into);
  }

  // Appends a decimal from `size` bytes of a big-endian two's complement number.
  bool AppendDecimal(Cursor& into, Bytes from, std::uint32_t size);

  // True where one more text fits that is handled as a short one.
  static bool HasShortRoom(const Cursor& into) {
    return into.length < into.room && into.used <= into.last_short;
  }
  // Appends a text and returns whether it is ASCII. REQUIRES: HasShortRoom(); size <= kShortText;
  // kShortText bytes may be read.
  static bool AppendShort(Cursor& into, Bytes from, std::uint32_t size) {
    const bool is_ascii = CopyShort(into.values + into.used, from, size);
    FinishText(into, size);
    return is_ascii;
  }

  // Appends a text or binary value. `is_ascii` is set where it was appended. REQUIRES: size is
  // below 2^31.
  bool AppendText(Cursor& into, Bytes from, std::uint32_t size, bool* is_ascii) {
    if (into.length >= into.room) return Lack(into);
    if (size > into.values_room - static_cast<std::uint32_t>(into.used))
      return LackText(into, size);
    *is_ascii = CopyLong(into.values + into.used, from, size);
    FinishText(into, size);
    return true;
  }
  bool AppendBinary(Cursor& into, Bytes from, std::uint32_t size) {
    bool is_ascii = false;
    return AppendText(into, from, size, &is_ascii);
  }

  // The same with a byte before the value.
  bool AppendTagged(Cursor& into, std::uint8_t tag, Bytes from, std::uint32_t size);

  // Selects the branch of a union: the next element of the child is the union's value.
  bool Pick(Cursor& into, std::uint8_t branch, const Cursor& child) {
    if (into.length >= into.room) [[unlikely]]
      return Lack(into);
    into.values[into.length] = branch;
    into.offsets[into.length] = static_cast<std::int32_t>(child.length);
    into.length++;
    return true;
  }

  // Appends an element of a list or map over the elements that its child has.
  bool CloseList(Cursor& into) {
    if (into.length >= into.room) [[unlikely]]
      return Lack(into);
    const Cursor& child = *(&into + 1);
    into.offsets[into.length + 1] = static_cast<std::int32_t>(child.length);
    return Finish(into);
  }

  // Appends an element of a struct, whose fields have been appended.
  bool CloseStruct(Cursor& into) {
    if (into.length >= into.room) [[unlikely]]
      return Lack(into);
    return Finish(into);
  }

  // Appends an element of a list, map or struct.
  bool Close(Cursor& into) {
    return into.kind == layout::kColumnKindStruct ? CloseStruct(into) : CloseList(into);
  }

  // Appends null, or the zero value of a column that is not nullable.
  bool AppendEmpty(Cursor& into);

  // Removes the elements of lists and maps that are not closed yet, in the fields of the struct
  // `column`, whose own element is not closed either.
  void TruncateOpen(std::uint32_t column);

 private:
  // Child of a union, and its elements that belong to complete rows.
  struct Branch {
    std::uint32_t column;
    std::uint32_t committed = 0;
  };

  static bool Finish(Cursor& into) {
    if (into.validity != nullptr) [[unlikely]]
      SetBit(into.validity, into.length, true);
    into.length++;
    return true;
  }
  static void FinishText(Cursor& into, std::uint32_t size) {
    into.used += static_cast<std::int32_t>(size);
    into.offsets[into.length + 1] = into.used;
    Finish(into);
  }
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

  std::uint32_t IndexOf(const Cursor& cursor) const {
    return static_cast<std::uint32_t>(&cursor - cursors_.data());
  }
  // Elements of the child, or bytes, that belong to the elements of a list, map or text.
  static std::uint32_t OpenStart(const Cursor& cursor) {
    const std::int32_t start = cursor.offsets[cursor.length];
    return start < 0 ? 0 : static_cast<std::uint32_t>(start);
  }
  // Keeps the first `length` elements, and of the columns below what belongs to them.
  void Truncate(std::uint32_t column, std::uint32_t length);

  // Record what the next value needs; return false.
  [[gnu::cold]] bool Lack(const Cursor& into);
  [[gnu::cold]] bool LackText(const Cursor& into, std::uint32_t size);

  Status OpenColumn(std::uint32_t column, Span<std::uint8_t> buffer, Span<std::uint32_t> state);

  std::vector<ColumnType> types_;
  std::vector<std::uint32_t> top_;
  std::vector<Cursor> cursors_;
  std::vector<Branch> branches_;
  Span<std::uint32_t> state_;
  std::uint32_t* error_at_ = nullptr;
  std::uint8_t* status_ = nullptr;
  std::uint32_t row_count_ = 0;
  std::uint32_t row_capacity_ = 0;
  std::uint32_t need_slot_ = 0;
  std::uint32_t need_bytes_ = 0;
};

}  // namespace millrace::kernel::codec
