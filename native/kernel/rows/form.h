// Form of the rows of a job: a head (Accumulator) and, in the lines of 64 bytes behind it, cells
// of 8 bytes with the aggregates of further fields. Sketches are behind all other cells.
//
// A row is stored in a table or is in a page, for JavaScript and disks. The two differ only in
// their sketches: stored, a sketch that has more than a few cells has a block of memory of its own,
// which belongs to the row; in a page it takes the room of the largest.
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
#include "kernel/rows/sketch.h"
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
  // Hashes and texts of values (top.h), which the cells of their columns name by their first cell.
  Span<const std::int64_t> texts = {};
};

class RowForm {
 public:
  // Lines of the widest row of a page, 32 KiB.
  static constexpr std::size_t kLinesMax = 512;
  static constexpr std::size_t kColumnsMax = 256;

  // Rows with only a head.
  RowForm() = default;
  // Sets the aggregates: `steps` are pairs of layout::kAggregate* and a column of the values.
  // kBadArgument, with nothing changed, for an unknown aggregate, a column outside of kColumnsMax,
  // or a row wider than kLinesMax.
  Status Set(Span<const std::uint32_t> steps);

  // Lines of a stored row. A count of rows times this is a count of Accumulators in memory.
  std::size_t lines() const { return lines_; }
  // Lines of a row in a page.
  std::size_t page_lines() const { return page_lines_; }
  std::size_t bytes() const { return lines_ * sizeof(Accumulator); }
  // Number of cells that are no part of a sketch.
  std::size_t cells() const { return cells_; }
  std::size_t sketches() const { return sketches_.size(); }
  bool has_cells() const { return lines_ > 1; }
  bool has_sketches() const { return !sketches_.empty(); }
  // Number of columns that values must have.
  std::size_t columns() const { return columns_; }
  // True when the values have what an event of the batch needs.
  bool Fits(const Values& values, std::size_t rows) const {
    return !has_cells() || (values.columns >= columns_ && values.capacity >= rows);
  }

  // Moves a stored row, with its blocks.
  void Move(const Accumulator* from, Accumulator* to) const {
    if (lines_ == 1) {
      *to = *from;
    } else {
      std::memcpy(to, from, bytes());
    }
  }
  // Copies a stored row, with its blocks. REQUIRES: `to` has no blocks.
  void Copy(const Accumulator* from, Accumulator* to) const {
    Move(from, to);
    if (has_sketches()) CopyBlocks(from, to);
  }
  // Frees the blocks of a stored row and leaves its sketches empty.
  void Free(Accumulator* row) const {
    if (has_sketches()) FreeBlocks(row);
  }
  // Bytes of the blocks of a stored row.
  std::size_t BlockBytes(const Accumulator* row) const;
  // Copies a stored row to a page.
  void ToPage(const Accumulator* from, Accumulator* to) const {
    if (has_sketches()) {
      ExpandInto(from, to);
    } else {
      Move(from, to);
    }
  }
  // Copies a row of a page to a stored one. REQUIRES: `to` has no blocks.
  void FromPage(const Accumulator* from, Accumulator* to) const;
  // Copies a row from page to page.
  void CopyPaged(const Accumulator* from, Accumulator* to) const {
    if (page_lines_ == 1) {
      *to = *from;
    } else {
      std::memcpy(to, from, page_lines_ * sizeof *to);
    }
  }

  // Folds a stored row into another, without its account_id and spare.
  void Fold(const Accumulator* other, Accumulator* into) const {
    kernel::Fold(*other, into);
    if (has_cells()) MergeCells(other, into, false);
  }
  // The same for rows of pages.
  void FoldPaged(const Accumulator* other, Accumulator* into) const {
    kernel::Fold(*other, into);
    if (has_cells()) MergeCells(other, into, true);
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
  // True when events can produce the cells of a stored row, or of one of a page.
  bool AreSound(const Accumulator* row, bool is_paged) const;

  // A sketch of a row: its number, from 0, and its kind.
  sketch::Sketch SketchOf(const Accumulator* row, std::size_t number, bool is_paged) const {
    auto* const cells = const_cast<std::int64_t*>(reinterpret_cast<const std::int64_t*>(row + 1));
    const Aggregate& of = sketches_[number];
    const std::size_t room = sketch::RoomOf(of.kind);
    // The cell of a sketch counts from the first one, in a page.
    return is_paged ? sketch::Sketch::InPage(cells + cells_ + of.cell, room)
                    : sketch::Sketch::Stored(cells + cells_ + number * sketch::Sketch::kStoredCells,
                                             room);
  }
  std::int32_t SketchKind(std::size_t number) const { return sketches_[number].kind; }

 private:
  struct Aggregate {
    std::int32_t kind;
    std::uint32_t column;
    std::uint32_t cell;
  };

  void ClearCells(Accumulator* row) const;
  void MergeCells(const Accumulator* other, Accumulator* into, bool is_paged) const;
  void CopyBlocks(const Accumulator* from, Accumulator* to) const;
  void FreeBlocks(Accumulator* row) const;
  void ExpandInto(const Accumulator* from, Accumulator* to) const;

  std::vector<Aggregate> aggregates_;  // without sketches
  std::vector<Aggregate> sketches_;
  std::size_t lines_ = 1;
  std::size_t page_lines_ = 1;
  std::size_t cells_ = 0;
  std::size_t columns_ = 0;
};

inline std::int64_t* CellsOf(Accumulator* row) { return reinterpret_cast<std::int64_t*>(row + 1); }
inline const std::int64_t* CellsOf(const Accumulator* row) {
  return reinterpret_cast<const std::int64_t*>(row + 1);
}

// Stored rows that free their blocks at the end of a scope.
class RowGuard {
 public:
  RowGuard(const RowForm& form, std::vector<Accumulator>* rows) : form_(form), rows_(rows) {}
  ~RowGuard() {
    for (std::size_t i = 0; i < rows_->size(); i += form_.lines()) form_.Free(&(*rows_)[i]);
  }
  RowGuard(const RowGuard&) = delete;
  RowGuard& operator=(const RowGuard&) = delete;

 private:
  const RowForm& form_;
  std::vector<Accumulator>* rows_;
};

}  // namespace millrace::kernel
