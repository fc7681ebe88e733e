// Key ranges: a snapshot that runs during ingestion copies the keys range by range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernel/rows/table.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Deltas that a restored state already contains: those whose record is not behind the last record
// that the snapshot of their key's range covers.
struct Cover {
  double seq = 0;
  const double* covered = nullptr;  // last covered record of each range; null: none covered

  bool Has(std::uint64_t account_id) const {
    return covered != nullptr && !(seq > covered[RangeOf(account_id)]);
  }
};

// Copies the rows of a range from several tables. The cursor is the number of a table times 2^32
// plus the number of slots behind the range's first slot.
template <typename Table>
std::size_t CopyRangeOf(Span<const Table* const> tables, std::uint32_t range, std::uint64_t* cursor,
                        Span<Accumulator> into) {
  std::uint64_t number = *cursor >> 32;
  std::uint64_t step = *cursor & 0xffffffffU;
  std::size_t copied = 0;
  for (; number < tables.size; number++, step = 0) {
    if (!tables.data[number]->CopyRange(range, &step, into, &copied)) break;
  }
  *cursor = std::max((number << 32) | (number < tables.size ? step : 0), *cursor);
  return copied;
}

}  // namespace millrace::kernel
