// Accumulators of one slice in one shard: rows in insertion order, one for each key, and a hash
// index from key to row.
//
// Rows never move once there is more than one segment. Memory for rows is added as they arrive;
// only the index is rehashed, an eighth of their size.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/form.h"
#include "kernel/rows/memory.h"
#include "kernel/rows/pool.h"
#include "kernel/rows/table.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

class AccumulatorTable {
 public:
  AccumulatorTable() = default;
  ~AccumulatorTable() { FreeRows(); }
  AccumulatorTable(AccumulatorTable&&) = default;
  AccumulatorTable& operator=(AccumulatorTable&&) = delete;

  // Rows of a segment, 8 MiB for rows of one line. The first segment doubles up to this size.
  static constexpr std::size_t kSegmentBits = 17;
  static constexpr std::size_t kSegmentRows = std::size_t{1} << kSegmentBits;
  // Lines of a segment of rows of some form.
  static std::size_t SegmentLines(const RowForm& form) {
    return (kSegmentRows >> SegmentShift(form)) * form.lines();
  }

  // Pools of segments and of index buckets. LIFETIME: they outlive the table.
  struct Pools {
    RowPool* rows = nullptr;
    RowPool* index = nullptr;
  };

  // REQUIRES: called once, before all other functions. LIFETIME: the form outlives the table.
  Status Open(std::size_t keys_expected, const Pools& pools, const RowForm& form);

  [[gnu::always_inline]] void PrefetchHome(std::uint32_t hash) const { index_.Prefetch(hash); }
  // Probe position of a key with this hash, whose row is being prefetched: Add starts its search
  // there. LIFETIME: rows may be added in between.
  struct Hint {
    KeyIndex::Probe probe;
    std::uint32_t growths = 0;
  };
  // Finds the hint for a hash and prefetches the row. REQUIRES: PrefetchHome was called for the
  // hash, or this stalls on memory.
  [[gnu::always_inline]] Hint HintFor(std::uint32_t hash) const {
    KeyIndex::Probe probe = index_.Home(hash);
    while (probe.slot()->number != 0 && probe.slot()->hash != hash) probe.Next();
    if (probe.slot()->number != 0) {
      const Accumulator* const row = RowAt(probe.slot()->number - 1);
      __builtin_prefetch(row, 1);
      if (lines_ > 1) __builtin_prefetch(row + 1, 1);
    }
    return {probe, growths_};
  }

  // Makes room for `keys_expected` keys. Has no effect on a table that has keys.
  Status Reserve(std::size_t keys_expected);

  // Folds a stored row of the form in, without its spare field. REQUIRES: row.count > 0; `hash` is
  // that of its key; `hint` is that of the hash.
  Status Add(const Accumulator& row, std::uint32_t hash, const Hint& hint) {
    MILLRACE_INVARIANT(row.count > 0 && hash == TableHash(row.account_id));
    KeyIndex::Probe probe = hint.growths == growths_ ? hint.probe : index_.Home(hash);
    Find(row.account_id, hash, &probe);
    if (probe.slot()->number != 0) {
      Accumulator* const at = RowAt(probe.slot()->number - 1);
      if (!form_->has_sketches()) {
        form_->Fold(&row, at);
      } else {
        block_bytes_ -= form_->BlockBytes(at);
        form_->Fold(&row, at);
        block_bytes_ += form_->BlockBytes(at);
      }
      return Status::kOk;
    }
    if (index_.IsFull(hash)) [[unlikely]] {
      growths_++;
      const Status status = index_.MakeRoom(hash);
      if (status != Status::kOk) return status;
      probe = index_.Home(hash);
      Find(row.account_id, hash, &probe);
    }
    if (count_ == capacity_) [[unlikely]] {
      const Status status = AddRows();
      if (status != Status::kOk) return status;
    }
    MILLRACE_INVARIANT(count_ < capacity_ && probe.slot()->number == 0);
    Accumulator* const at = RowAt(count_);
    form_->Copy(&row, at);
    at->spare = 0;
    if (form_->has_sketches()) block_bytes_ += form_->BlockBytes(at);
    count_++;
    *probe.slot() = {hash, static_cast<std::uint32_t>(count_)};
    index_.Use(hash);
    return Status::kOk;
  }
  Status Add(const Accumulator& row) {
    const std::uint32_t hash = TableHash(row.account_id);
    return Add(row, hash, HintFor(hash));
  }

  // Row of a key; null where there is none.
  const Accumulator* Row(std::uint64_t account_id) const {
    const std::uint32_t hash = TableHash(account_id);
    KeyIndex::Probe probe = index_.Home(hash);
    Find(account_id, hash, &probe);
    return probe.slot()->number == 0 ? nullptr : RowAt(probe.slot()->number - 1);
  }

  // Copies rows to a page from row *cursor on, as many as fit, advances the cursor and returns
  // their number. The copy is complete at key_count().
  std::size_t Copy(std::uint64_t* cursor, Span<Accumulator> into) const;
  // Copies the rows of one range to a page, as SlotTable::VisitRange visits them. False when `into`
  // was full before the end of the range.
  bool CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into,
                 std::size_t* copied) const;

  std::size_t key_count() const { return count_; }
  std::size_t bytes() const { return capacity_ * form_->bytes() + index_.bytes() + block_bytes_; }
  // Moves the memory of rows, with their blocks, and index to the caller. The table must not be
  // used afterwards.
  void Release(std::vector<RowMemory>* rows, std::vector<RowMemory>* index);

 private:
  // Row numbers cannot overflow: the index is full before.
  static_assert((std::uint64_t{KeyIndex::kBucketSlotsMax} << KeyIndex::kBucketBitsMax) <=
                UINT32_MAX);

  // Wide rows have smaller segments, of at most the same bytes.
  static std::size_t SegmentShift(const RowForm& form) {
    return static_cast<std::size_t>(std::countr_zero(std::bit_ceil(form.lines())));
  }
  std::size_t segment_rows() const { return std::size_t{1} << segment_bits_; }
  Accumulator* RowAt(std::size_t number) const {
    return segments_[number >> segment_bits_].rows() + (number & (segment_rows() - 1)) * lines_;
  }
  // Advances the probe to the entry of a key, or to the empty slot where it belongs.
  void Find(std::uint64_t account_id, std::uint32_t hash, KeyIndex::Probe* probe) const {
    for (;; probe->Next()) {
      const KeyEntry& entry = *probe->slot();
      if (entry.number == 0) return;
      if (entry.hash == hash && RowAt(entry.number - 1)->account_id == account_id) return;
    }
  }
  Status AddRows();
  void FreeRows();
  Status AddSegment(std::size_t rows);

  Pools pools_;
  const RowForm* form_ = nullptr;
  std::size_t lines_ = 1;
  std::size_t segment_bits_ = kSegmentBits;
  KeyIndex index_;
  std::vector<RowMemory> segments_;
  std::size_t capacity_ = 0;
  std::size_t count_ = 0;
  std::size_t block_bytes_ = 0;
  std::uint32_t growths_ = 0;  // number of index growths; a growth invalidates hints
};

}  // namespace millrace::kernel
