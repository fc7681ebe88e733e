// Keyed state of session windows: the open sessions of each shard. The shard hash of a key selects
// its shard.
//
// The events of a batch are joined with each other first, so that each partial session costs one
// table update and one changelog entry. The resulting sessions do not depend on this: events belong
// to one session when steps of less than a gap connect them. Partial sessions are ordered by shard,
// within a shard by their first event in the batch; they are kept until the next batch. Threads
// divide, fold and encode the rows of several shards as in WindowTables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/rows/form.h"
#include "kernel/session/table.h"
#include "kernel/shard/deltas.h"
#include "kernel/shard/rows.h"
#include "kernel/shard/workers.h"
#include "kernel/span.h"
#include "kernel/window/range.h"
#include "kernel/window/run.h"
#include "kernel/window/tables.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

class SessionTables {
 public:
  // REQUIRES: 1 <= gap_ms <= kDurationMsMax, 1 <= shards <= WindowTables::kShardsMax.
  SessionTables(std::int64_t gap_ms, std::uint32_t shards, RowForm form = {});
  ~SessionTables() { ClearDeltas(); }
  // Its tables refer to its form.
  SessionTables(const SessionTables&) = delete;
  SessionTables& operator=(const SessionTables&) = delete;
  // REQUIRES: called once, before all other functions.
  Status Open();

  // Rows of this state, in every call.
  const RowForm& form() const { return form_; }

  // Folds admitted rows in; cells get the values. kBadArgument, with nothing changed, when a row is
  // not in the batch, its time is outside the limits, or the values lack a column or a row.
  // kNoMemory and kTableFull leave a part of the rows folded in.
  Status Accumulate(const Rows<layout::EventBatch>& events,
                    const Rows<layout::AdmittedBatch>& admitted, const Values& values = {});

  // Writes the partial sessions of the last batch. kTooFewRows when `out` is shorter than
  // DeltaBytesMax().
  Status EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const;
  std::size_t DeltaBytesMax() const;

  // Folds encoded deltas in. Nothing is changed unless *verdict is layout::kDeltaStatusOk.
  Status ApplyDeltas(Span<const std::uint8_t> bytes, const Cover& cover, std::int32_t* verdict);

  // Makes room for `rows` sessions in the order of their ranges. Has no effect once there are
  // sessions.
  Status Reserve(std::size_t rows);
  // Folds partial sessions of a page in. kBadArgument, with nothing changed, when a row is no
  // session or its cells are not sound.
  Status Load(const Accumulator* rows, std::size_t count);

  // Copies rows to a page, in any order from slot *cursor on, returns their number and advances the
  // cursor. 0 at the end.
  std::size_t Copy(std::uint64_t* cursor, Span<Accumulator> into) const;
  std::size_t CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into) const;
  std::size_t Find(std::uint64_t account_id, Span<Accumulator> into) const;

  // Removes every session that ends at or before the watermark.
  Status Fire(std::int64_t watermark, std::unique_ptr<SortedRun>* run);

  // Removes all sessions. A failure loses part of them.
  Status Detach(std::unique_ptr<SortedRun>* run);

  // Least end of an open session; SessionDeadlines::kForever when there is none.
  std::int64_t least_end() const;
  std::size_t session_count() const;
  std::uint64_t merged_count() const;
  // Bytes of all tables and of pooled memory.
  std::size_t bytes() const;
  // Frees the pooled memory.
  void Trim() { pool_->Trim(); }

 private:
  // State of one shard: the sessions of its keys, and the partial sessions of the batch.
  struct Worker : ShardDeltas {
    Worker(std::int64_t gap_ms, const RowForm& form) : table(gap_ms, form) {}
    SessionTable table;
  };
  class Aggregation;

  std::uint32_t shards() const { return static_cast<std::uint32_t>(workers_.size()); }
  void ClearDeltas();
  Status AccumulateOne(const Rows<layout::EventBatch>& events,
                       const Rows<layout::AdmittedBatch>& admitted, const Values& values);
  Status AccumulateShards(const Rows<layout::EventBatch>& events,
                          const Rows<layout::AdmittedBatch>& admitted, const Values& values);
  Status FoldShard(const Rows<layout::EventBatch>& events, const Values& values,
                   std::uint32_t shard);
  static Status Update(Worker* worker, std::size_t lines);
  RowParts PartsOf(std::vector<Span<const Accumulator>>* parts) const;
  Status FoldAll(const std::vector<const Accumulator*>& rows);

  std::int64_t gap_ms_;
  const RowForm form_;
  std::shared_ptr<RowPool> pool_;
  ShardOwner owner_;
  std::vector<std::unique_ptr<Worker>> workers_;
  ShardRows sharded_;
  // Least start of the partial sessions of the batch, where there are several shards.
  std::int64_t least_start_ = 0;
  std::shared_ptr<Workers> threads_;
};

}  // namespace millrace::kernel
