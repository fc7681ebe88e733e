#include "kernel/packed.h"

namespace millrace::kernel {

Status CountRows(const RowParts& parts, std::size_t rows_max, RowCounts* counts) {
  *counts = {};
  for (std::size_t part = 0; part < parts.size; part++) {
    const Span<const Accumulator>& rows = parts.data[part];
    counts->all += rows.size;
    for (std::size_t i = 0; i < rows.size; i++) {
      if (rows.data[i].count > kDeltaCountMax) return Status::kBadArgument;
      counts->more += rows.data[i].count > 1 ? 1U : 0U;
    }
  }
  return counts->all > rows_max ? Status::kBadArgument : Status::kOk;
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

}  // namespace millrace::kernel
