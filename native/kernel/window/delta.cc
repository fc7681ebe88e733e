#include "kernel/window/delta.h"

#include <algorithm>

#include "kernel/packed.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {
namespace {

using Head = layout::WindowDeltas;

constexpr std::size_t kColumns = 5;  // columns of every delta

std::int32_t ReadSlices(const std::uint8_t* at, std::size_t count, std::int64_t slice_ms,
                        std::vector<std::int64_t>* slices) {
  slices->resize(count);
  for (std::size_t i = 0; i < count; i++) {
    const auto start = Load<std::int64_t>(at + i * sizeof(std::int64_t));
    if (start < -kSliceLimit || start > kSliceLimit || start % slice_ms != 0) {
      return layout::kDeltaStatusBadSlice;
    }
    (*slices)[i] = start;
  }
  std::vector<std::int64_t> sorted = *slices;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  return twice ? layout::kDeltaStatusBadSlice : layout::kDeltaStatusOk;
}

std::size_t CountOf(const RowParts& parts) {
  std::size_t deltas = 0;
  parts.ForEach([&](const Accumulator&) { deltas++; });
  return deltas;
}

// Upper bound of the bytes of the columns.
std::size_t ColumnsBytesMax(const RowParts& parts) {
  return (kColumns + kMoreColumns) * ColumnBytesMax(CountOf(parts)) + CellBytesMax(parts) +
         kPackedBytesMax;
}

void WriteColumns(const RowParts& parts, const RowCounts& rows, Span<const std::int64_t> slices,
                  ColumnOut* out) {
  using Row = Accumulator;
  const auto account_id = [](const Row& row) { return row.account_id; };
  const auto number = [](const Row& row) { return SliceNumberOf(row); };
  const auto others = [](const Row& row) { return row.count - 1; };
  const auto min = [](const Row& row) { return ZigZag(row.min); };
  const auto ahead = [slices](const Row& row) {
    return static_cast<std::uint64_t>(row.last_update_ts) -
           static_cast<std::uint64_t>(slices.data[SliceNumberOf(row)]);
  };
  WriteColumn(parts, rows.all, false, account_id, out);
  WriteColumn(parts, rows.all, false, number, out);
  WriteColumn(parts, rows.all, false, others, out);
  WriteColumn(parts, rows.all, false, min, out);
  WriteColumn(parts, rows.all, false, ahead, out);
  WriteMore(parts, rows.more, out);
  WriteCells(parts, rows.all, out);
}

std::uint8_t* WriteSlices(Span<const std::int64_t> slices, std::uint8_t* at) {
  for (std::size_t i = 0; i < slices.size; i++) {
    Store(at, slices.data[i]);
    at += sizeof(std::int64_t);
  }
  return at;
}

void WriteHead(std::size_t count, std::size_t slice_count, std::int64_t slice_ms,
               std::size_t length, std::uint8_t* head) {
  Store(head + Head::kMagicAt, static_cast<std::uint32_t>(layout::kWindowDeltasFormMagic));
  Store(head + Head::kVersionAt, static_cast<std::uint32_t>(layout::kWindowDeltasFormVersion));
  Store(head + Head::kLengthAt, static_cast<std::uint32_t>(length));
  Store(head + Head::kDeltaCountAt, static_cast<std::uint32_t>(count));
  Store(head + Head::kSliceCountAt, static_cast<std::uint32_t>(slice_count));
  Store(head + Head::kSpareAt, std::uint32_t{0});
  Store(head + Head::kSliceMsAt, slice_ms);
}

constexpr std::size_t kRowsMax = layout::kWindowDeltasFormDeltasMax;

}  // namespace

std::size_t DeltaBytesMax(const RowParts& parts, std::size_t slices) {
  return Head::kBytes + slices * sizeof(std::int64_t) + ColumnsBytesMax(parts);
}

Status EncodeDeltas(const RowParts& parts, Span<const std::int64_t> slices, std::int64_t slice_ms,
                    Span<std::uint8_t> out, std::size_t* written) {
  RowCounts rows;
  const Status status = CountRows(parts, kRowsMax, &rows);
  if (status != Status::kOk) return status;
  if (out.size < DeltaBytesMax(parts, slices.size)) return Status::kTooFewRows;
  ColumnOut columns{WriteSlices(slices, out.data + Head::kBytes)};
  WriteColumns(parts, rows, slices, &columns);
  *written = static_cast<std::size_t>(columns.at - out.data);
  WriteHead(rows.all, slices.size, slice_ms, *written, out.data);
  return Status::kOk;
}

void EncodeShard(const RowParts& parts, Span<const std::int64_t> slices, ShardColumns* into) {
  into->Encode(parts, kRowsMax, ColumnsBytesMax(parts), [&](const RowCounts& rows, ColumnOut* out) {
    WriteColumns(parts, rows, slices, out);
  });
}

Status JoinDeltas(Span<const ShardColumns* const> shards, Span<const std::int64_t> slices,
                  std::int64_t slice_ms, std::uint8_t* out, std::size_t* written) {
  std::size_t count = 0;
  const Status status = CountRows(shards, kRowsMax, &count);
  if (status != Status::kOk) return status;
  std::uint8_t* const end = JoinColumns(shards, WriteSlices(slices, out + Head::kBytes));
  *written = static_cast<std::size_t>(end - out);
  WriteHead(count, slices.size, slice_ms, *written, out);
  return Status::kOk;
}

std::int32_t DecodeDeltas(Span<const std::uint8_t> bytes, std::int64_t slice_ms,
                          const RowForm& form, std::vector<std::int64_t>* slices,
                          std::vector<Accumulator>* deltas) {
  if (bytes.size < Head::kBytes) return layout::kDeltaStatusBadHead;
  const std::uint8_t* at = bytes.data;
  const auto word = [at](std::size_t offset) { return Load<std::uint32_t>(at + offset); };
  const std::size_t count = word(Head::kDeltaCountAt);
  const std::size_t slice_count = word(Head::kSliceCountAt);
  if (word(Head::kMagicAt) != static_cast<std::uint32_t>(layout::kWindowDeltasFormMagic) ||
      word(Head::kVersionAt) != static_cast<std::uint32_t>(layout::kWindowDeltasFormVersion) ||
      word(Head::kLengthAt) != bytes.size || word(Head::kSpareAt) != 0 ||
      Load<std::int64_t>(at + Head::kSliceMsAt) != slice_ms ||
      count > static_cast<std::size_t>(layout::kWindowDeltasFormDeltasMax)) {
    return layout::kDeltaStatusBadHead;
  }
  const std::uint8_t* const end = at + bytes.size;
  at += Head::kBytes;
  // Each slice takes 8 bytes and each delta a length in every column, so the allocations below are
  // bounded by the input.
  if (slice_count > count || slice_count > static_cast<std::size_t>(end - at) / 8) {
    return layout::kDeltaStatusBadHead;
  }
  const std::int32_t verdict = ReadSlices(at, slice_count, slice_ms, slices);
  if (verdict != layout::kDeltaStatusOk) return verdict;
  at += slice_count * sizeof(std::int64_t);

  ColumnReader account_id, number, events, min, last;
  MoreReader aggregates;
  if (!account_id.Open(&at, end, count) || !number.Open(&at, end, count) ||
      !events.Open(&at, end, count) || !min.Open(&at, end, count) || !last.Open(&at, end, count)) {
    return layout::kDeltaStatusBadColumn;
  }
  std::size_t more = 0;
  for (std::size_t i = 0; i < count; i++) more += events.LengthAt(i) > 0 ? 1U : 0U;
  CellReader cells(form);
  if (!aggregates.Open(&at, end, more) || !cells.Open(&at, end, count) || at != end) {
    return layout::kDeltaStatusBadColumn;
  }

  deltas->resize(count * form.lines());
  std::vector<bool> used(slice_count);
  std::size_t used_count = 0;
  for (std::size_t i = 0; i < count; i++) {
    Accumulator& row = (*deltas)[i * form.lines()];
    const std::uint64_t slice = number.Next();
    const std::uint64_t others = events.Next();
    const std::uint64_t ahead = last.Next();
    const std::int64_t least = UnZigZag(min.Next());
    if (slice >= slice_count || ahead >= static_cast<std::uint64_t>(slice_ms)) {
      return layout::kDeltaStatusBadDelta;
    }
    if (!used[slice]) used_count++;
    used[slice] = true;
    row = OneEvent(account_id.Next(), least, (*slices)[slice] + static_cast<std::int64_t>(ahead));
    row.spare = slice;
    if (others > 0 && !aggregates.Complete(others, &row)) return layout::kDeltaStatusBadDelta;
    if (!cells.Next(&row)) return layout::kDeltaStatusBadDelta;
  }
  return used_count == slice_count ? layout::kDeltaStatusOk : layout::kDeltaStatusBadSlice;
}

}  // namespace millrace::kernel
