#include "kernel/session/delta.h"

#include <algorithm>

#include "kernel/session/table.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {
namespace {

using Head = layout::SessionDeltas;

constexpr std::size_t kColumns = 4;  // columns of every delta

std::uint64_t Between(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

// Upper bound of the distance of two event times.
constexpr std::uint64_t kReach = 2 * static_cast<std::uint64_t>(kEventTsLimit);

// Least start of all rows; 0 without rows.
std::int64_t LeastStart(const RowParts& parts) {
  std::int64_t least = INT64_MAX;
  parts.ForEach([&](const Accumulator& row) { least = std::min(least, StartOf(row)); });
  return least == INT64_MAX ? 0 : least;
}

// Upper bound of the bytes of the columns.
std::size_t ColumnsBytesMax(const RowParts& parts) {
  std::size_t deltas = 0;
  parts.ForEach([&](const Accumulator&) { deltas++; });
  return (kColumns + 1 + kMoreColumns) * ColumnBytesMax(deltas) + CellBytesMax(parts) +
         kPackedBytesMax;
}

void WriteColumns(const RowParts& parts, const RowCounts& rows, std::int64_t least,
                  ColumnOut* out) {
  using Row = Accumulator;
  const auto account_id = [](const Row& row) { return row.account_id; };
  const auto start = [least](const Row& row) { return Between(least, StartOf(row)); };
  const auto others = [](const Row& row) { return row.count - 1; };
  const auto min = [](const Row& row) { return ZigZag(row.min); };
  const auto length = [](const Row& row) { return Between(StartOf(row), row.last_update_ts); };
  WriteColumn(parts, rows.all, false, account_id, out);
  WriteColumn(parts, rows.all, false, start, out);
  WriteColumn(parts, rows.all, false, others, out);
  WriteColumn(parts, rows.all, false, min, out);
  WriteColumn(parts, rows.more, true, length, out);
  WriteMore(parts, rows.more, out);
  WriteCells(parts, rows.all, out);
}

void WriteHead(std::size_t count, std::int64_t gap_ms, std::int64_t least, std::size_t length,
               std::uint8_t* head) {
  Store(head + Head::kMagicAt, static_cast<std::uint32_t>(layout::kSessionDeltasFormMagic));
  Store(head + Head::kVersionAt, static_cast<std::uint32_t>(layout::kSessionDeltasFormVersion));
  Store(head + Head::kLengthAt, static_cast<std::uint32_t>(length));
  Store(head + Head::kDeltaCountAt, static_cast<std::uint32_t>(count));
  Store(head + Head::kGapMsAt, gap_ms);
  Store(head + Head::kLeastStartAt, least);
}

constexpr std::size_t kRowsMax = layout::kSessionDeltasFormDeltasMax;

}  // namespace

std::size_t SessionDeltaBytesMax(const RowParts& parts) {
  return Head::kBytes + ColumnsBytesMax(parts);
}

Status EncodeSessionDeltas(const RowParts& parts, std::int64_t gap_ms, Span<std::uint8_t> out,
                           std::size_t* written) {
  RowCounts rows;
  const Status status = CountRows(parts, kRowsMax, &rows);
  if (status != Status::kOk) return status;
  if (out.size < SessionDeltaBytesMax(parts)) return Status::kTooFewRows;
  const std::int64_t least = LeastStart(parts);
  ColumnOut columns{out.data + Head::kBytes};
  WriteColumns(parts, rows, least, &columns);
  *written = static_cast<std::size_t>(columns.at - out.data);
  WriteHead(rows.all, gap_ms, least, *written, out.data);
  return Status::kOk;
}

void EncodeSessionShard(const RowParts& parts, std::int64_t least, ShardColumns* into) {
  into->Encode(parts, kRowsMax, ColumnsBytesMax(parts), [&](const RowCounts& rows, ColumnOut* out) {
    WriteColumns(parts, rows, least, out);
  });
}

Status JoinSessionDeltas(Span<const ShardColumns* const> shards, std::int64_t least,
                         std::int64_t gap_ms, std::uint8_t* out, std::size_t* written) {
  std::size_t count = 0;
  const Status status = CountRows(shards, kRowsMax, &count);
  if (status != Status::kOk) return status;
  std::uint8_t* const end = JoinColumns(shards, out + Head::kBytes);
  *written = static_cast<std::size_t>(end - out);
  WriteHead(count, gap_ms, least, *written, out);
  return Status::kOk;
}

std::int32_t DecodeSessionDeltas(Span<const std::uint8_t> bytes, std::int64_t gap_ms,
                                 const RowForm& form, std::vector<Accumulator>* deltas) {
  if (bytes.size < Head::kBytes) return layout::kDeltaStatusBadHead;
  const auto word = [bytes](std::size_t at) { return Load<std::uint32_t>(bytes.data + at); };
  const std::size_t count = word(Head::kDeltaCountAt);
  const auto least = Load<std::int64_t>(bytes.data + Head::kLeastStartAt);
  if (word(Head::kMagicAt) != static_cast<std::uint32_t>(layout::kSessionDeltasFormMagic) ||
      word(Head::kVersionAt) != static_cast<std::uint32_t>(layout::kSessionDeltasFormVersion) ||
      word(Head::kLengthAt) != bytes.size ||
      Load<std::int64_t>(bytes.data + Head::kGapMsAt) != gap_ms ||
      count > static_cast<std::size_t>(layout::kSessionDeltasFormDeltasMax) ||
      least < -kEventTsLimit || least >= kEventTsLimit || (count == 0 && least != 0)) {
    return layout::kDeltaStatusBadHead;
  }
  const std::uint8_t* at = bytes.data + Head::kBytes;
  const std::uint8_t* const end = bytes.data + bytes.size;
  // Each delta takes a length in every column, so the allocations below are bounded by the input.
  ColumnReader account_id, start, events, min, last;
  MoreReader aggregates;
  if (!account_id.Open(&at, end, count) || !start.Open(&at, end, count) ||
      !events.Open(&at, end, count) || !min.Open(&at, end, count)) {
    return layout::kDeltaStatusBadColumn;
  }
  std::size_t more = 0;
  for (std::size_t i = 0; i < count; i++) more += events.LengthAt(i) > 0 ? 1U : 0U;
  CellReader cells(form);
  if (!last.Open(&at, end, more) || !aggregates.Open(&at, end, more) ||
      !cells.Open(&at, end, count) || at != end) {
    return layout::kDeltaStatusBadColumn;
  }
  deltas->resize(count * form.lines());
  bool has_least = count == 0;
  for (std::size_t i = 0; i < count; i++) {
    Accumulator& row = (*deltas)[i * form.lines()];
    const std::uint64_t ahead = start.Next();
    const std::uint64_t others = events.Next();
    if (ahead >= kReach) return layout::kDeltaStatusBadDelta;
    has_least = has_least || ahead == 0;
    const std::int64_t first = least + static_cast<std::int64_t>(ahead);
    row = OneEvent(account_id.Next(), UnZigZag(min.Next()), first);
    row.spare = static_cast<std::uint64_t>(first);
    if (others > 0) {
      const std::uint64_t length = last.Next();
      if (length >= kReach || !aggregates.Complete(others, &row))
        return layout::kDeltaStatusBadDelta;
      row.last_update_ts = first + static_cast<std::int64_t>(length);
    }
    if (!IsSession(row) || !cells.Next(&row)) return layout::kDeltaStatusBadDelta;
  }
  return has_least ? layout::kDeltaStatusOk : layout::kDeltaStatusBadDelta;
}

}  // namespace millrace::kernel
