// Form of the rows of a job: a head (Accumulator) and, in the lines of 64 bytes behind it, cells
// of 8 bytes with the aggregates of further fields.
//
// Cells have a neutral value for "no value yet", so that rows merge without a case for it. Every
// aggregate is a function of the set of events: the order of folds and merges does not change a
// bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "kernel/window/row.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Values of the events of a batch: column after column, `capacity` cells each. LIFETIME: borrowed.
struct Values {
  const std::int64_t* cells = nullptr;
  const std::uint8_t* valid = nullptr;  // 0: null, which no aggregate counts
  std::size_t capacity = 0;
  std::size_t columns = 0;
};

class RowForm {
 public:
  // Lines of the widest row, 2 KiB.
  static constexpr std::size_t kLinesMax = 32;
  static constexpr std::size_t kColumnsMax = 256;

  // Rows with only a head.
  RowForm() = default;
  // Sets the aggregates: `steps` are pairs of layout::kAggregate* and a column of the values.
  // kBadArgument, with nothing changed, for an unknown aggregate, a column outside of kColumnsMax,
  // or a row wider than kLinesMax.
  Status Set(Span<const std::uint32_t> steps);

  // Lines of a row. A count of rows times this is a count of Accumulators in memory.
  std::size_t lines() const { return lines_; }
  std::size_t bytes() const { return lines_ * sizeof(Accumulator); }
  std::size_t cells() const { return cells_; }
  bool has_cells() const { return cells_ > 0; }
  // Number of columns that values must have.
  std::size_t columns() const { return columns_; }
  // True when the values have what an event of the batch needs.
  bool Fits(const Values& values, std::size_t rows) const {
    return !has_cells() || (values.columns >= columns_ && values.capacity >= rows);
  }

  void Copy(const Accumulator* from, Accumulator* to) const {
    if (lines_ == 1) {
      *to = *from;
    } else {
      std::memcpy(to, from, bytes());
    }
  }
  // Folds a row in, without its account_id and spare.
  void Fold(const Accumulator* other, Accumulator* into) const {
    kernel::Fold(*other, into);
    if (has_cells()) MergeCells(other, into);
  }
  // Sets the cells of a new row to the values of one event.
  void BeginCells(const Values& values, std::size_t event, std::int64_t event_ts,
                  Accumulator* row) const {
    if (!has_cells()) return;
    ClearCells(row);
    FoldCells(values, event, event_ts, row);
  }
  void FoldCells(const Values& values, std::size_t event, std::int64_t event_ts,
                 Accumulator* row) const;
  // True when no fold of these cells leaves its bounds.
  bool AreSound(const Accumulator* row) const;

 private:
  struct Aggregate {
    std::int32_t kind;
    std::uint32_t column;
    std::uint32_t cell;
  };

  void ClearCells(Accumulator* row) const;
  void MergeCells(const Accumulator* other, Accumulator* into) const;

  std::vector<Aggregate> aggregates_;
  std::size_t lines_ = 1;
  std::size_t cells_ = 0;
  std::size_t columns_ = 0;
};

inline std::int64_t* CellsOf(Accumulator* row) { return reinterpret_cast<std::int64_t*>(row + 1); }
inline const std::int64_t* CellsOf(const Accumulator* row) {
  return reinterpret_cast<const std::int64_t*>(row + 1);
}

}  // namespace millrace::kernel
