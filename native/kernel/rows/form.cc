#include "kernel/rows/form.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernel/rows/double_sum.h"
#include "kernel/rows/top.h"

namespace millrace::kernel {
namespace {

// Columns of the values with the place of an event's record, where an aggregate depends on it.
constexpr std::size_t kPartitionColumn = 0;
constexpr std::size_t kOffsetColumn = 1;

// Cells of kAggregateFirst and kAggregateLast: event time, partition, offset, value.
constexpr std::size_t kPlacedCells = 4;

constexpr std::uint64_t kSign = std::uint64_t{1} << 63;

std::size_t CellCount(std::uint32_t kind) {
  switch (static_cast<std::int32_t>(kind)) {
    case layout::kAggregateCount:
    case layout::kAggregateMin:
    case layout::kAggregateMax:
    case layout::kAggregateMinDouble:
    case layout::kAggregateMaxDouble:
      return 1;
    case layout::kAggregateSum:
      return 2;
    case layout::kAggregateFirst:
    case layout::kAggregateLast:
      return kPlacedCells;
    case layout::kAggregateSumDouble:
      return double_sum::kCells;
    default:
      return 0;
  }
}

bool IsPlaced(std::int32_t kind) {
  return kind == layout::kAggregateFirst || kind == layout::kAggregateLast ||
         kind == layout::kAggregateTop;
}

// Number with the order of the doubles: -Infinity, …, -0, 0, …, Infinity, NaN. All NaN are one.
std::int64_t Ordered(std::int64_t bits) {
  const auto value = std::bit_cast<double>(bits);
  if (value != value) return INT64_MAX;
  return bits >= 0 ? bits : static_cast<std::int64_t>(~static_cast<std::uint64_t>(bits) ^ kSign);
}

void AddWide(std::int64_t low, std::int64_t high, std::int64_t* sum) {
  const auto before = static_cast<std::uint64_t>(sum[0]);
  const std::uint64_t after = before + static_cast<std::uint64_t>(low);
  sum[0] = static_cast<std::int64_t>(after);
  sum[1] = double_sum::Add(double_sum::Add(sum[1], high), after < before ? 1 : 0);
}

void Lower(std::int64_t value, std::int64_t* cell) { *cell = value < *cell ? value : *cell; }
void Raise(std::int64_t value, std::int64_t* cell) { *cell = value > *cell ? value : *cell; }

// Replaces a placed value by an earlier or a later one.
void Place(bool first, const std::int64_t* from, std::int64_t* into) {
  for (std::size_t i = 0; i + 1 < kPlacedCells; i++) {
    if (from[i] == into[i]) continue;
    if ((from[i] < into[i]) != first) return;
    std::memcpy(into, from, kPlacedCells * sizeof *into);
    return;
  }
}

}  // namespace

Status RowForm::Set(Span<const std::uint32_t> steps) {
  std::vector<Aggregate> aggregates;
  std::vector<Aggregate> sketches;
  std::size_t cells = 0;
  std::size_t sketch_cells = 0;  // in a page
  std::size_t columns = 0;
  if (steps.size % 2 != 0) return Status::kBadArgument;
  for (std::size_t i = 0; i < steps.size; i += 2) {
    const auto kind = static_cast<std::int32_t>(steps.data[i]);
    const bool is_sketch = sketch::IsSketch(kind);
    const std::size_t count = is_sketch ? 0 : CellCount(steps.data[i]);
    const std::uint32_t column = steps.data[i + 1];
    if ((count == 0 && !is_sketch) || column >= kColumnsMax) return Status::kBadArgument;
    auto& list = is_sketch ? sketches : aggregates;
    list.push_back({kind, column, static_cast<std::uint32_t>(is_sketch ? sketch_cells : cells)});
    cells += count;
    sketch_cells += is_sketch ? 1 + sketch::RoomOf(kind) : 0;
    if ((cells + sketch_cells) * sizeof(std::int64_t) > (kLinesMax - 1) * sizeof(Accumulator)) {
      return Status::kBadArgument;
    }
    columns = std::max({columns, column + std::size_t{1}, IsPlaced(kind) ? kOffsetColumn + 1 : 0});
  }
  const auto lines_of = [](std::size_t count) {
    constexpr std::size_t kLineCells = sizeof(Accumulator) / sizeof(std::int64_t);
    return 1 + (count + kLineCells - 1) / kLineCells;
  };
  lines_ = lines_of(cells + sketches.size() * sketch::Sketch::kStoredCells);
  page_lines_ = lines_of(cells + sketch_cells);
  aggregates_ = std::move(aggregates);
  sketches_ = std::move(sketches);
  cells_ = cells;
  columns_ = columns;
  return Status::kOk;
}

std::size_t RowForm::BlockBytes(const Accumulator* row) const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < sketches(); i++) bytes += SketchOf(row, i, false).block_bytes();
  return bytes;
}

void RowForm::CopyBlocks(const Accumulator* from, Accumulator* to) const {
  for (std::size_t i = 0; i < sketches(); i++) {
    const sketch::Sketch other = SketchOf(from, i, false);
    if (other.block_bytes() == 0) continue;
    sketch::Sketch own = SketchOf(to, i, false);
    own.Begin();
    own.Assign(other.cells(), other.used(), other.level());
  }
}

void RowForm::FreeBlocks(Accumulator* row) const {
  for (std::size_t i = 0; i < sketches(); i++) SketchOf(row, i, false).Free();
}

void RowForm::ExpandInto(const Accumulator* from, Accumulator* to) const {
  std::memcpy(to, from, sizeof *to + cells_ * sizeof(std::int64_t));
  std::memset(CellsOf(to) + cells_, 0,
              (page_lines_ - 1) * sizeof *to - cells_ * sizeof(std::int64_t));
  for (std::size_t i = 0; i < sketches(); i++) {
    const sketch::Sketch own = SketchOf(from, i, false);
    SketchOf(to, i, true).Assign(own.cells(), own.used(), own.level());
  }
}

void RowForm::FromPage(const Accumulator* from, Accumulator* to) const {
  std::memcpy(to, from, sizeof *to + cells_ * sizeof(std::int64_t));
  std::memset(CellsOf(to) + cells_, 0, bytes() - sizeof *to - cells_ * sizeof(std::int64_t));
  for (std::size_t i = 0; i < sketches(); i++) {
    const sketch::Sketch other = SketchOf(from, i, true);
    SketchOf(to, i, false).Assign(other.cells(), other.used(), other.level());
  }
}

void RowForm::ClearCells(Accumulator* row) const {
  std::int64_t* const cells = CellsOf(row);
  // The rest of the last line is zero, so that equal rows have equal bytes.
  std::memset(cells, 0, bytes() - sizeof(Accumulator));
  for (const Aggregate& aggregate : aggregates_) {
    std::int64_t* const cell = cells + aggregate.cell;
    switch (aggregate.kind) {
      case layout::kAggregateMin:
      case layout::kAggregateMinDouble:
        *cell = INT64_MAX;
        break;
      case layout::kAggregateMax:
      case layout::kAggregateMaxDouble:
        *cell = INT64_MIN;
        break;
      case layout::kAggregateFirst:
        *cell = INT64_MAX;
        break;
      case layout::kAggregateLast:
        *cell = INT64_MIN;
        break;
      default:
        break;
    }
  }
}

void RowForm::FoldCells(const Values& values, std::size_t event, std::int64_t event_ts,
                        Accumulator* row) const {
  std::int64_t* const cells = CellsOf(row);
  const auto value_of = [&](std::size_t column) {
    return values.cells[column * values.capacity + event];
  };
  for (const Aggregate& aggregate : aggregates_) {
    if (values.valid[aggregate.column * values.capacity + event] == 0) continue;
    std::int64_t* const cell = cells + aggregate.cell;
    const std::int64_t value = value_of(aggregate.column);
    switch (aggregate.kind) {
      case layout::kAggregateCount:
        *cell = double_sum::Add(*cell, 1);
        break;
      case layout::kAggregateSum:
        AddWide(value, value >> 63, cell);
        break;
      case layout::kAggregateMin:
        Lower(value, cell);
        break;
      case layout::kAggregateMax:
        Raise(value, cell);
        break;
      case layout::kAggregateMinDouble:
        Lower(Ordered(value), cell);
        break;
      case layout::kAggregateMaxDouble:
        Raise(Ordered(value), cell);
        break;
      case layout::kAggregateSumDouble:
        double_sum::Fold(std::bit_cast<double>(value), cell);
        break;
      default: {
        const std::int64_t placed[kPlacedCells] = {event_ts, value_of(kPartitionColumn),
                                                   value_of(kOffsetColumn), value};
        Place(aggregate.kind == layout::kAggregateFirst, placed, cell);
      }
    }
  }
  for (std::size_t i = 0; i < sketches(); i++) {
    const Aggregate& aggregate = sketches_[i];
    if (values.valid[aggregate.column * values.capacity + event] == 0) continue;
    sketch::Sketch own = SketchOf(row, i, false);
    if (aggregate.kind == layout::kAggregateTop) {
      top::Add(values.texts, value_of(aggregate.column), value_of(kPartitionColumn),
               value_of(kOffsetColumn), &own);
    } else {
      sketch::Add(aggregate.kind, value_of(aggregate.column), &own);
    }
  }
}

void RowForm::MergeCells(const Accumulator* other, Accumulator* into, bool is_paged) const {
  const std::int64_t* const from = CellsOf(other);
  std::int64_t* const cells = CellsOf(into);
  for (const Aggregate& aggregate : aggregates_) {
    const std::int64_t* const other_cell = from + aggregate.cell;
    std::int64_t* const cell = cells + aggregate.cell;
    switch (aggregate.kind) {
      case layout::kAggregateCount:
        *cell = double_sum::Add(*cell, *other_cell);
        break;
      case layout::kAggregateSum:
        AddWide(other_cell[0], other_cell[1], cell);
        break;
      case layout::kAggregateMin:
      case layout::kAggregateMinDouble:
        Lower(*other_cell, cell);
        break;
      case layout::kAggregateMax:
      case layout::kAggregateMaxDouble:
        Raise(*other_cell, cell);
        break;
      case layout::kAggregateSumDouble:
        double_sum::Merge(other_cell, cell);
        break;
      default:
        Place(aggregate.kind == layout::kAggregateFirst, other_cell, cell);
    }
  }
  for (std::size_t i = 0; i < sketches(); i++) {
    sketch::Sketch own = SketchOf(into, i, is_paged);
    sketch::Merge(sketches_[i].kind, SketchOf(other, i, is_paged), &own);
  }
}

bool RowForm::AreSound(const Accumulator* row, bool is_paged) const {
  const std::int64_t* const cells = CellsOf(row);
  for (const Aggregate& aggregate : aggregates_) {
    if (aggregate.kind == layout::kAggregateSumDouble &&
        !double_sum::IsSound(cells + aggregate.cell)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < sketches(); i++) {
    if (!sketch::IsSound(sketches_[i].kind, SketchOf(row, i, is_paged))) return false;
  }
  return true;
}

}  // namespace millrace::kernel
