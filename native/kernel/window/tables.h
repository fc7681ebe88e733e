// The keyed state of tumbling and sliding windows: one accumulator a (key, slice), in one table a
// (slice, shard). A key belongs to the shard that the shard hash names.
//
// A batch is pre-aggregated first: rows of one key and slice become one delta, so that a hot key
// costs one update of a table, and the changelog one entry. Deltas stand by shard, within a shard
// in the order of their first row. They are kept until the next batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "kernel/window/delta.h"
#include "kernel/window/range.h"
#include "kernel/window/run.h"
#include "kernel/window/table.h"
#include "kernel/window/workers.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

class WindowTables {
 public:
  static constexpr std::uint32_t kShardsMax = 256;
  // Batches with fewer rows are not worth waking a thread for.
  static constexpr std::uint32_t kForkRowsMin = 2048;
  // How far, in slices, a new slice may lie ahead of all before it and still be expected to hold as
  // many keys as the last one sealed.
  static constexpr std::int64_t kAheadSlices = 8;

  // REQUIRES: 1 <= slice_ms <= kDurationMsMax, 1 <= shards <= kShardsMax.
  WindowTables(std::int64_t slice_ms, std::uint32_t shards);

  // Folds admitted rows in. kBadArgument, and nothing is changed, when a row is not one of the
  // batch or not in its slice; kNoMemory and kTableFull leave part of them in.
  Status Accumulate(const Rows<layout::EventBatch>& events,
                    const Rows<layout::AdmittedBatch>& admitted);

  // Writes the deltas of the last batch; kTooFewRows when `out` is shorter than DeltaBytesMax().
  Status EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const;
  std::size_t DeltaBytesMax() const;
  std::size_t delta_count() const;

  // Folds encoded deltas in; unless *verdict is layout::kDeltaStatusOk nothing was changed.
  Status ApplyDeltas(Span<const std::uint8_t> bytes, const Cover& cover, std::int32_t* verdict);

  // Makes room in a slice without rows for so many that come in the order of their ranges.
  Status Reserve(std::int64_t slice_start, std::size_t rows);
  // Folds rows into a slice. kBadArgument, and nothing is changed, when one has a count of 0.
  Status Load(std::int64_t slice_start, const Accumulator* rows, std::size_t count);

  // Copies rows of a slice, in any order, from slot *cursor on; counts and moves the cursor. 0 at
  // the end. A change of the slice in between makes cursors worthless.
  std::size_t Copy(std::int64_t slice_start, std::uint64_t* cursor, Span<Accumulator> into) const;

  // The same for the rows of one range. REQUIRES: range < kCoverRanges.
  std::size_t CopyRange(std::uint32_t range, std::int64_t slice_start, std::uint64_t* cursor,
                        Span<Accumulator> into) const;
  // The row of a key; null where there is none. LIFETIME: until the next change.
  const Accumulator* Row(std::int64_t slice_start, std::uint64_t account_id) const;

  // Forgets a slice.
  void Drop(std::int64_t slice_start) { slices_.erase(slice_start); }
  // Takes a slice out, of all shards; a run without rows where there is no such slice.
  std::unique_ptr<SortedRun> Seal(std::int64_t slice_start);

  // Starts of open slices, ascending; as many as fit.
  std::size_t OpenSlices(Span<double> out) const;
  std::size_t slice_count() const { return slices_.size(); }
  std::size_t key_count() const;
  // Bytes of all tables, and of the memory that is kept for the next ones.
  std::size_t bytes() const;
  // Gives back what is kept.
  void Trim() {
    rows_pool_->Trim();
    index_pool_.Trim();
  }
  std::int64_t slice_ms() const { return slice_ms_; }
  bool IsSlice(std::int64_t start) const;

 private:
  using Tables = std::vector<AccumulatorTable>;
  // What one worker holds: the deltas of its keys, and an index over them by (key, slice number).
  struct Worker {
    RowMemory deltas;
    std::size_t count = 0;
    std::vector<std::uint32_t> index;
    Status status = Status::kOk;
  };

  Status NumberSlices(const Rows<layout::EventBatch>& events,
                      const Rows<layout::AdmittedBatch>& admitted);
  Status NumberOf(std::int64_t slice, std::uint32_t* number);
  Status OpenBatchSlices();
  Status SliceOf(std::int64_t start, Tables** out);
  void Aggregate(const Rows<layout::EventBatch>& events,
                 const Rows<layout::AdmittedBatch>& admitted, std::uint32_t shard);
  Status Update(std::uint32_t shard);
  std::uint32_t OwnerOf(std::uint64_t account_id) const;

  std::int64_t slice_ms_;
  std::uint32_t shards_;
  // Rows are written whole before they are looked at; an index begins with zeros.
  std::shared_ptr<RowPool> rows_pool_;
  RowPool index_pool_;
  std::size_t segments_kept_ = 0;
  std::size_t parts_kept_ = 0;
  std::map<std::int64_t, Tables> slices_;
  std::int64_t newest_;
  bool any_ = false;
  std::size_t keys_expected_ = 0;  // a shard

  // Of the batch under way, or the last.
  std::vector<std::int64_t> batch_slices_;
  std::vector<Tables*> batch_tables_;
  std::unordered_map<std::int64_t, std::uint32_t> batch_numbers_;
  std::vector<std::uint32_t> number_;
  std::vector<std::int32_t> owner_;
  std::vector<Worker> workers_;
  Workers threads_;
};

}  // namespace millrace::kernel
