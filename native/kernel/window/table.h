// The accumulators of one slice in one shard: a row a key, rows in the order in which their keys
// came, and an index that says where the row of a key is.
//
// Rows never move once there is more than one segment of them, and take no memory before they are
// there; what grows is the index, an eighth of their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/memory.h"
#include "kernel/rows/pool.h"
#include "kernel/rows/table.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

class AccumulatorTable {
 public:
  // Rows of a segment, 8 MiB; the first one doubles until it has so many.
  static constexpr std::size_t kSegmentBits = 17;
  static constexpr std::size_t kSegmentRows = std::size_t{1} << kSegmentBits;

  // Where segments and parts of the index come from. LIFETIME: beyond the table's.
  struct Pools {
    RowPool* rows = nullptr;
    RowPool* index = nullptr;
  };

  // REQUIRES: called once, before all else.
  Status Open(std::size_t keys_expected, const Pools& pools);

  [[gnu::always_inline]] void PrefetchSpread(std::uint32_t spread) const {
    index_.Prefetch(spread);
  }
  // Where a key of this spread may have its row, which is on its way: what Add would look for
  // first. LIFETIME: rows may be added in between.
  struct Hint {
    KeyIndex::Probe probe;
    std::uint32_t growths = 0;
  };
  // REQUIRES: its spread was prefetched, or this waits for memory.
  [[gnu::always_inline]] Hint Look(std::uint32_t spread) const {
    KeyIndex::Probe probe = index_.Home(spread);
    while (probe.slot()->number != 0 && probe.slot()->spread != spread) probe.Next();
    if (probe.slot()->number != 0) __builtin_prefetch(RowAt(probe.slot()->number - 1), 1);
    return {probe, growths_};
  }

  // Makes room for so many keys. A table with keys stays as it is.
  Status Reserve(std::size_t keys_expected);

  // Folds a row in; its spare field is not taken. REQUIRES: row.count > 0, spread is that of its
  // key, and the hint of that spread.
  Status Add(const Accumulator& row, std::uint32_t spread, const Hint& hint) {
    KeyIndex::Probe probe = hint.growths == growths_ ? hint.probe : index_.Home(spread);
    Find(row.account_id, spread, &probe);
    if (probe.slot()->number != 0) {
      Fold(row, RowAt(probe.slot()->number - 1));
      return Status::kOk;
    }
    if (index_.IsFull(spread)) [[unlikely]] {
      growths_++;
      const Status status = index_.MakeRoom(spread);
      if (status != Status::kOk) return status;
      probe = index_.Home(spread);
      Find(row.account_id, spread, &probe);
    }
    if (count_ == capacity_) [[unlikely]] {
      const Status status = AddRows();
      if (status != Status::kOk) return status;
    }
    Accumulator* const at = RowAt(count_);
    *at = row;
    at->spare = 0;
    count_++;
    *probe.slot() = {spread, static_cast<std::uint32_t>(count_)};
    index_.Use(spread);
    return Status::kOk;
  }
  Status Add(const Accumulator& row) {
    const std::uint32_t spread = SpreadKey(row.account_id);
    return Add(row, spread, Look(spread));
  }

  // The row of a key; null where there is none.
  const Accumulator* Row(std::uint64_t account_id) const {
    const std::uint32_t spread = SpreadKey(account_id);
    KeyIndex::Probe probe = index_.Home(spread);
    Find(account_id, spread, &probe);
    return probe.slot()->number == 0 ? nullptr : RowAt(probe.slot()->number - 1);
  }

  // Copies rows from row *cursor on and moves the cursor: at key_count() all are through.
  std::size_t Copy(std::uint64_t* cursor, Span<Accumulator> into) const;
  // As SlotTable::CopyRange.
  bool CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into,
                 std::size_t* copied) const;

  std::size_t key_count() const { return count_; }
  std::size_t bytes() const { return capacity_ * sizeof(Accumulator) + index_.bytes(); }
  // Gives its memory away, rows and index; the table is of no more use.
  void Release(std::vector<RowMemory>* rows, std::vector<RowMemory>* index);

 private:
  // Whether there are as many keys as entries can number is never asked: the index is full before.
  static_assert((std::uint64_t{KeyIndex::kPartSlotsMax} << KeyIndex::kPartBitsMax) <= UINT32_MAX);

  Accumulator* RowAt(std::size_t number) const {
    return segments_[number >> kSegmentBits].rows() + (number & (kSegmentRows - 1));
  }
  // Goes on to the entry of a key, or to the empty one where it belongs.
  void Find(std::uint64_t account_id, std::uint32_t spread, KeyIndex::Probe* probe) const {
    for (;; probe->Next()) {
      const KeyEntry& entry = *probe->slot();
      if (entry.number == 0) return;
      if (entry.spread == spread && RowAt(entry.number - 1)->account_id == account_id) return;
    }
  }
  Status AddRows();
  Status AddSegment(std::size_t rows);

  Pools pools_;
  KeyIndex index_;
  std::vector<RowMemory> segments_;
  std::size_t capacity_ = 0;
  std::size_t count_ = 0;
  std::uint32_t growths_ = 0;  // of the index, since then no hint holds
};

}  // namespace millrace::kernel
