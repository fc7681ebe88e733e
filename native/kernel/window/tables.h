// Keyed state of tumbling and sliding windows: one accumulator for each (key, slice), in one table
// for each (slice, shard). The shard hash of a key selects its shard.
//
// A batch is pre-aggregated first: rows of one key and slice become one delta, so that a hot key
// costs one table update and one changelog entry. Deltas are ordered by shard, within a shard by
// their first row. They are kept until the next batch.
//
// With several shards, threads divide the rows of a large batch by shard, and then fold and encode
// one shard each. A shard has its rows in order of arrival, so neither the threads nor their
// schedule change a bit of the tables or of the encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/rows/form.h"
#include "kernel/shard/deltas.h"
#include "kernel/shard/rows.h"
#include "kernel/shard/workers.h"
#include "kernel/span.h"
#include "kernel/window/delta.h"
#include "kernel/window/range.h"
#include "kernel/window/run.h"
#include "kernel/window/table.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

class WindowTables {
 public:
  static constexpr std::uint32_t kShardsMax = 256;
  // Limit, in slices ahead of the newest slice, up to which a new slice is expected to hold as many
  // keys as the last sealed slice.
  static constexpr std::int64_t kAheadSlices = 8;

  // REQUIRES: 1 <= slice_ms <= kDurationMsMax, 1 <= shards <= kShardsMax.
  WindowTables(std::int64_t slice_ms, std::uint32_t shards, RowForm form = {});
  ~WindowTables() { ClearDeltas(); }
  // Its tables refer to its form.
  WindowTables(const WindowTables&) = delete;
  WindowTables& operator=(const WindowTables&) = delete;

  // Rows of this state, in every call.
  const RowForm& form() const { return form_; }

  // Folds admitted rows in; cells get the values. kBadArgument, with nothing changed, when a row is
  // not in the batch or not in its slice, or the values lack a column or a row. kNoMemory and
  // kTableFull leave a part of the rows folded in.
  Status Accumulate(const Rows<layout::EventBatch>& events,
                    const Rows<layout::AdmittedBatch>& admitted, const Values& values = {});

  // Writes the deltas of the last batch. kTooFewRows when `out` is shorter than DeltaBytesMax().
  Status EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const;
  std::size_t DeltaBytesMax() const;
  std::size_t delta_count() const;

  // Folds encoded deltas in. Nothing is changed unless *verdict is layout::kDeltaStatusOk.
  Status ApplyDeltas(Span<const std::uint8_t> bytes, const Cover& cover, std::int32_t* verdict);

  // Makes room in an empty slice for `rows` rows that arrive in the order of their ranges.
  Status Reserve(std::int64_t slice_start, std::size_t rows);
  // Folds rows of a page into a slice. kBadArgument, with nothing changed, when a row has a count
  // of 0 or cells that are not sound.
  Status Load(std::int64_t slice_start, const Accumulator* rows, std::size_t count);

  // Copies rows of a slice to a page, in any order from slot *cursor on, as many as fit, returns
  // their number
  // and advances the cursor. 0 at the end. A change of the slice invalidates cursors.
  std::size_t Copy(std::int64_t slice_start, std::uint64_t* cursor, Span<Accumulator> into) const;

  // Copies the rows of one range, as Copy does. REQUIRES: range < kCoverRanges.
  std::size_t CopyRange(std::uint32_t range, std::int64_t slice_start, std::uint64_t* cursor,
                        Span<Accumulator> into) const;
  // Stored row of a key; null where there is none. LIFETIME: until the next change.
  const Accumulator* Row(std::int64_t slice_start, std::uint64_t account_id) const;

  // Drops a slice with its rows.
  void Drop(std::int64_t slice_start) { slices_.erase(slice_start); }
  // Removes a slice from all shards and returns it as a run; the run is empty where there is no
  // such slice.
  std::unique_ptr<SortedRun> Seal(std::int64_t slice_start);

  // Writes the starts of open slices, ascending, as many as fit. Returns the number written.
  std::size_t OpenSlices(Span<double> out) const;
  std::size_t slice_count() const { return slices_.size(); }
  std::size_t key_count() const;
  // Bytes of all tables and of pooled memory.
  std::size_t bytes() const;
  // Frees the pooled memory.
  void Trim() {
    rows_pool_->Trim();
    index_pool_.Trim();
  }
  std::int64_t slice_ms() const { return slice_ms_; }
  bool IsSlice(std::int64_t start) const;

 private:
  using Tables = std::vector<AccumulatorTable>;
  class Aggregation;

  Status AccumulateOne(const Rows<layout::EventBatch>& events,
                       const Rows<layout::AdmittedBatch>& admitted, const Values& values);
  Status AccumulateShards(const Rows<layout::EventBatch>& events,
                          const Rows<layout::AdmittedBatch>& admitted, const Values& values);
  Status FoldShard(const Rows<layout::EventBatch>& events, const Values& values,
                   std::uint32_t shard);
  Status NumberSlices(const Rows<layout::EventBatch>& events,
                      const Rows<layout::AdmittedBatch>& admitted);
  Status NumberChunks();
  Status NumberOf(std::int64_t slice, std::uint32_t* number);
  void ClearDeltas();
  Status OpenBatchSlices();
  Status SliceOf(std::int64_t start, Tables** out);
  Status Update(std::uint32_t shard);
  RowParts PartsOf(std::vector<Span<const Accumulator>>* parts) const;

  std::int64_t slice_ms_;
  std::uint32_t shards_;
  ShardOwner owner_;
  const RowForm form_;
  // Rows are written whole before they are read; an index must start zeroed.
  std::shared_ptr<RowPool> rows_pool_;
  RowPool index_pool_;
  std::size_t segments_kept_ = 0;
  std::size_t buckets_kept_ = 0;
  std::map<std::int64_t, Tables> slices_;
  std::int64_t newest_;
  bool any_ = false;
  std::size_t keys_expected_ = 0;  // expected keys of a new slice, for each shard

  // State of the current or last batch.
  std::vector<std::int64_t> batch_slices_;
  std::vector<Tables*> batch_tables_;
  std::unordered_map<std::int64_t, std::uint32_t> batch_numbers_;
  std::vector<std::uint32_t> number_;
  ShardRows sharded_;
  std::vector<ShardDeltas> workers_;
  std::shared_ptr<Workers> threads_;
};

}  // namespace millrace::kernel
