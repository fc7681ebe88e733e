// The keyed state of session windows: the open sessions of each shard. A key belongs to the shard
// that the shard hash names.
//
// The events of a batch are joined among themselves first, so that a key costs one update of a
// table for each partial session, and the changelog one entry. What sessions come out does not
// depend on that: events belong together when steps of less than a gap lead from one to the other.
// Partial sessions stand by shard, within a shard in the order of their first event; they are kept
// until the next batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/batch.h"
#include "kernel/session/table.h"
#include "kernel/span.h"
#include "kernel/window/range.h"
#include "kernel/window/run.h"
#include "kernel/window/tables.h"
#include "kernel/window/workers.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

class SessionTables {
 public:
  // REQUIRES: 1 <= gap_ms <= kDurationMsMax, 1 <= shards <= WindowTables::kShardsMax.
  SessionTables(std::int64_t gap_ms, std::uint32_t shards);
  // REQUIRES: called once, before all else.
  Status Open();

  // Folds admitted rows in. kBadArgument, and nothing is changed, when a row is not one of the
  // batch or its time is outside the limits; kNoMemory and kTableFull leave part of them in.
  Status Accumulate(const Rows<layout::EventBatch>& events,
                    const Rows<layout::AdmittedBatch>& admitted);

  // Writes the partial sessions of the last batch; kTooFewRows when `out` is shorter than
  // DeltaBytesMax().
  Status EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const;
  std::size_t DeltaBytesMax() const;

  // Folds encoded deltas in; unless *verdict is layout::kDeltaStatusOk nothing was changed.
  Status ApplyDeltas(Span<const std::uint8_t> bytes, const Cover& cover, std::int32_t* verdict);

  // As in WindowTables, while there are no sessions.
  Status Reserve(std::size_t rows);
  // Folds partial sessions in. kBadArgument, and nothing is changed, when one is none.
  Status Load(const Accumulator* rows, std::size_t count);

  // Copies rows, in any order, from slot *cursor on; counts and moves the cursor. 0 at the end.
  std::size_t Copy(std::uint64_t* cursor, Span<Accumulator> into) const;
  std::size_t CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into) const;
  std::size_t Find(std::uint64_t account_id, Span<Accumulator> into) const;

  // Takes out every session that ends at or before the frontier.
  Status Fire(std::int64_t frontier, std::unique_ptr<SortedRun>* run);

  // Takes out every session, at once. A failure leaves part of them out.
  Status Detach(std::unique_ptr<SortedRun>* run);

  // SessionDeadlines::kForever when there is none.
  std::int64_t least_end() const;
  std::size_t session_count() const;
  std::uint64_t merged_count() const;
  // Of all tables, and of memory that is kept for the next ones.
  std::size_t bytes() const;
  // Gives back what is kept.
  void Trim() { pool_->Trim(); }

 private:
  // What one worker holds: the sessions of its keys, and of the batch the partial ones with an
  // index over them by key.
  struct Worker {
    explicit Worker(std::int64_t gap_ms) : table(gap_ms) {}
    SessionTable table;
    RowMemory deltas;
    std::size_t count = 0;
    std::vector<std::uint32_t> index;
    Status status = Status::kOk;
  };

  std::uint32_t shards() const { return static_cast<std::uint32_t>(workers_.size()); }
  std::uint32_t OwnerOf(std::uint64_t account_id) const;
  void Aggregate(const Rows<layout::EventBatch>& events,
                 const Rows<layout::AdmittedBatch>& admitted, std::uint32_t shard);
  Status FoldAll(const Accumulator* rows, std::size_t count);

  std::int64_t gap_ms_;
  std::shared_ptr<RowPool> pool_ = std::make_shared<RowPool>(RowTable::kPartSlots);
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::int32_t> owner_;
  Workers threads_;
};

}  // namespace millrace::kernel
