// Rows in one piece of memory, as src/core/rows.ts describes their three shapes.
//
// The memory belongs to JavaScript, which may write to it while it is read: every number is read
// once and checked before it is used.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/span.h"
#include "state/status.h"

namespace millrace::state {

inline constexpr std::uint32_t kKeyBytesMax = 4096;
inline constexpr std::uint32_t kValueBytesMax = 64U << 20;
// The little-endian word of a record that ends its key.
inline constexpr std::uint32_t kWordBytes = 8;

enum class Shape : std::int32_t { kSpans = 0, kFixed = 1, kRecords = 2 };

struct Bytes {
  const char* data = nullptr;
  std::size_t size = 0;
};

// LIFETIME: borrows `bytes` and `ends`.
struct Rows {
  Shape shape = Shape::kSpans;
  kernel::Span<std::uint8_t> bytes;
  kernel::Span<std::uint32_t> ends;  // kSpans: where the key and where the value of a row end
  std::uint32_t count = 0;
  std::uint32_t key_bytes = 0;    // kFixed
  std::uint32_t value_bytes = 0;  // kFixed: of a value, kRecords: of a record
  std::uint32_t word_at = 0;      // kRecords
  std::uint32_t per_value = 1;    // kRecords: records in one value, the last may have fewer
  std::string prefix;             // kRecords

  // Whether the counts fit the memory. What `ends` holds is checked row by row.
  Status Check() const;
};

// Walks over rows in order.
class RowReader {
 public:
  // `rows` outlives the reader and has been checked.
  explicit RowReader(const Rows& rows) : rows_(rows), key_(rows.prefix) {
    key_.resize(rows.prefix.size() + kWordBytes);
  }
  // False at the end, and at a row that is not what it should be, which `status` then says. The
  // bytes of the key live until the next call.
  bool Next(Bytes* key, Bytes* value);
  const Status& status() const { return status_; }

 private:
  bool NextSpan(Bytes* key, Bytes* value);
  bool NextRecords(Bytes* key, Bytes* value);
  bool Bad(Code code, const char* what);

  const Rows& rows_;
  std::string key_;
  std::uint32_t row_ = 0;
  std::size_t at_ = 0;
  std::uint64_t last_word_ = 0;
  Status status_;
};

// Keys alone, of one size or by their ends.
struct Keys {
  kernel::Span<std::uint8_t> bytes;
  kernel::Span<std::uint32_t> ends;  // one a key; empty where all have `key_bytes`
  std::uint32_t count = 0;
  std::uint32_t key_bytes = 0;

  Status Check() const;
  // False where a key leaves its bounds.
  bool At(std::uint32_t row, std::size_t* start, Bytes* key) const;
};

}  // namespace millrace::state
