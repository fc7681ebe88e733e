// The ranges that a snapshot beside ingestion takes the keys in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernel/rows/table.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Which deltas a restored state has already: those whose record is not behind the last one that the
// range of their key was written with.
struct Cover {
  double seq = 0;
  const double* covered = nullptr;  // a number a range, or none at all

  bool Has(std::uint64_t account_id) const {
    return covered != nullptr && !(seq > covered[RangeOf(account_id)]);
  }
};

// Copies what tables hold of a range. The cursor is the number of a table times 2^32 and how many
// slots behind the first of the range it stands.
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
