// RowOrder: rows in the ascending order of their keys.
//
// An entry has 8 bytes of a key as a big-endian number. Entries are radix-sorted by it; those with
// equal numbers are sorted by the bytes that follow, after the bytes that all of them share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state/rows.h"
#include "state/status.h"

namespace millrace::state {

class RowOrder {
 public:
  // REQUIRES: `rows` outlives the order, Check() succeeded, and the shape is kSpans or kKeyed.
  explicit RowOrder(const Rows& rows) : rows_(rows), keyed_(rows) {}

  // Sorts the rows; needs 48 bytes a row. kBadRows where a row is outside its bounds.
  Status Sort();
  // Reads the next row; of rows with equal keys only the last. False at the end.
  // LIFETIME: the bytes are valid until the next call.
  bool Next(Bytes* key, Bytes* value);

 private:
  struct Place {
    std::uint32_t key_at = 0;
    std::uint32_t key_end = 0;
    std::uint32_t end = 0;  // kSpans: end of the value
  };
  struct Entry {
    std::uint64_t word = 0;
    std::uint32_t row = 0;
  };

  Status Locate();
  void SortFrom(std::size_t first, std::size_t last, std::uint32_t depth);
  void SortByWord(std::size_t first, std::size_t last);
  void AppendEnded(std::size_t first, std::size_t last);
  std::uint32_t Shared(std::size_t first, std::size_t last, std::uint32_t depth) const;
  std::uint32_t LengthOf(const Entry& entry) const {
    const Place& place = places_[entry.row];
    return place.key_end - place.key_at;
  }
  std::uint64_t WordOf(std::uint32_t row, std::uint32_t depth) const;

  const Rows& rows_;
  KeyedRow keyed_;
  const std::uint8_t* keys_ = nullptr;
  std::vector<Place> places_;
  std::vector<Entry> entries_;
  std::vector<Entry> spare_;
  std::vector<std::uint32_t> order_;
  std::size_t next_ = 0;
};

}  // namespace millrace::state
