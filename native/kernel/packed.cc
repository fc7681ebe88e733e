#include "kernel/packed.h"

#include <algorithm>

namespace millrace::kernel {

Status CountRows(const RowParts& parts, std::size_t rows_max, RowCounts* counts) {
  *counts = {};
  bool is_large = false;
  parts.ForEach([&](const Accumulator& row) {
    counts->all++;
    counts->more += row.count > 1 ? 1U : 0U;
    is_large = is_large || row.count > kDeltaCountMax;
  });
  return is_large || counts->all > rows_max ? Status::kBadArgument : Status::kOk;
}

std::uint8_t* WriteMore(const RowParts& parts, std::uint8_t* at, std::size_t more) {
  using Row = Accumulator;
  at = WriteColumn(parts, at, more, true, [](const Row& row) {
    return static_cast<std::uint64_t>(row.max) - static_cast<std::uint64_t>(row.min);
  });
  at = WriteColumn(parts, at, more, true,
                   [](const Row& row) { return static_cast<std::uint64_t>(ZigZagSum(row)); });
  return WriteColumn(parts, at, more, true, [](const Row& row) {
    return static_cast<std::uint64_t>(ZigZagSum(row) >> 64);
  });
}

bool MoreReader::Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t more) {
  return width_.Open(left, end, more) && sum_low_.Open(left, end, more) &&
         sum_high_.Open(left, end, more);
}

bool MoreReader::Complete(std::uint64_t others, Accumulator* row) {
  const std::uint64_t width = width_.Next();
  UnsignedWide sum = sum_low_.Next();
  sum |= UnsignedWide{sum_high_.Next()} << 64;
  sum = (sum >> 1) ^ (0 - (sum & 1));
  const auto least = static_cast<std::uint64_t>(row->min);
  if (others >= kDeltaCountMax || width > static_cast<std::uint64_t>(INT64_MAX) - least) {
    return false;
  }
  row->count = others + 1;
  row->max = static_cast<std::int64_t>(least + width);
  row->sum_low = static_cast<std::uint64_t>(sum);
  row->sum_high = static_cast<std::uint64_t>(sum >> 64);
  return SumOf(*row) >= Wide{row->min} * static_cast<Wide>(row->count) &&
         SumOf(*row) <= Wide{row->max} * static_cast<Wide>(row->count);
}

std::uint8_t* WriteCells(const RowParts& parts, std::uint8_t* at, std::size_t count) {
  for (std::size_t cell = 0; cell < parts.form.cells(); cell++) {
    at = WriteColumn(parts, at, count, false,
                     [cell](const Accumulator& row) { return ZigZag(CellsOf(&row)[cell]); });
  }
  return at;
}

bool CellReader::Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t count) {
  return std::all_of(columns_.begin(), columns_.end(),
                     [&](ColumnReader& column) { return column.Open(left, end, count); });
}

bool CellReader::Next(Accumulator* row) {
  for (std::size_t cell = 0; cell < columns_.size(); cell++) {
    CellsOf(row)[cell] = UnZigZag(columns_[cell].Next());
  }
  return form_.AreSound(row);
}

}  // namespace millrace::kernel
