// Rows in one block of memory, in the shapes of src/core/rows.ts.
//
// The memory belongs to JavaScript, which may write to it during a read: every number is read once
// and checked before it is used.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/span.h"
#include "state/status.h"

namespace millrace::state {

inline constexpr std::uint32_t kKeyBytesMax = 4096;
inline constexpr std::uint32_t kValueBytesMax = 64U << 20;
// Bytes of the little-endian word of a record that ends its key.
inline constexpr std::uint32_t kWordBytes = 8;

enum class Shape : std::int32_t { kSpans = 0, kFixed = 1, kRecords = 2, kKeyed = 3 };

struct Bytes {
  const char* data = nullptr;
  std::size_t size = 0;
};

// LIFETIME: borrows `bytes`, `ends` and `keys`.
struct Rows {
  Shape shape = Shape::kSpans;
  kernel::Span<std::uint8_t> bytes;
  // kSpans: for each row the end of its key and of its value; kKeyed: the end of each key in `keys`
  kernel::Span<std::uint32_t> ends;
  kernel::Span<std::uint8_t> keys;  // kKeyed: keys without the prefix, one after the other
  std::uint32_t count = 0;
  std::uint32_t key_bytes = 0;    // kFixed
  std::uint32_t value_bytes = 0;  // kFixed: of a value, kRecords and kKeyed: of a record
  std::uint32_t word_at = 0;      // kRecords
  // kRecords: number of records in one value; the last value may have fewer
  std::uint32_t per_value = 1;
  std::string prefix;            // kRecords, kKeyed
  std::uint32_t zero_bytes = 0;  // kKeyed: bytes at the start of a value that are zeros

  // Checks that the counts fit the memory. The content of `ends` is checked row by row.
  Status Check() const;
};

// Keys and values of rows of the shape kKeyed, composed in memory of its own.
class KeyedRow {
 public:
  // REQUIRES: `rows` outlives it and Check() succeeded.
  explicit KeyedRow(const Rows& rows)
      : rows_(rows), key_(rows.prefix), value_(rows.value_bytes, 0) {}
  // REQUIRES: row < count, and the key is within its bounds. LIFETIME: until the next call.
  void Compose(std::uint32_t row, std::size_t key_at, std::size_t key_end, Bytes* key,
               Bytes* value);

 private:
  const Rows& rows_;
  std::string key_;
  std::string value_;
};

// Iterator over rows.
class RowReader {
 public:
  // REQUIRES: `rows` outlives the reader and Check() succeeded.
  explicit RowReader(const Rows& rows) : rows_(rows), key_(rows.prefix), keyed_(rows) {
    key_.resize(rows.prefix.size() + kWordBytes);
  }
  // Reads the next row. False at the end, and at an invalid row, whose error is in status().
  // LIFETIME: the bytes of the key are valid until the next call.
  bool Next(Bytes* key, Bytes* value);
  const Status& status() const { return status_; }

 private:
  bool NextSpan(Bytes* key, Bytes* value);
  bool NextRecords(Bytes* key, Bytes* value);
  bool NextKeyed(Bytes* key, Bytes* value);
  bool Bad(Code code, const char* what);

  const Rows& rows_;
  std::string key_;
  KeyedRow keyed_;
  std::uint32_t row_ = 0;
  std::size_t at_ = 0;
  std::uint64_t last_word_ = 0;
  Status status_;
};

// Keys without values, of one size or delimited by their ends.
struct Keys {
  kernel::Span<std::uint8_t> bytes;
  kernel::Span<std::uint32_t> ends;  // end of each key; empty where all keys have `key_bytes`
  std::uint32_t count = 0;
  std::uint32_t key_bytes = 0;

  Status Check() const;
  // Reads a key and advances *start. False where a key is outside its bounds.
  bool At(std::uint32_t row, std::size_t* start, Bytes* key) const;
};

}  // namespace millrace::state
