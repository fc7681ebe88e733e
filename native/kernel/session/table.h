// The open sessions of one shard: rows whose spare cell is the session's start; last_update_ts is
// its last event, so a session is [start, last + gap).
//
// Nearly every key has one open session; one with several has several slots, all in the probe of
// the key. Invariant: sessions of a key lie at least a gap apart, from the last event of one to the
// first of the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/table.h"
#include "kernel/session/deadlines.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

inline std::int64_t StartOf(const Accumulator& session) {
  return static_cast<std::int64_t>(session.spare);
}

// Whether a row is a session, or a part of one, whose times are within their limits.
inline bool IsSession(const Accumulator& row) {
  return row.count != 0 && StartOf(row) >= -kEventTsLimit && row.last_update_ts < kEventTsLimit &&
         StartOf(row) <= row.last_update_ts;
}

// Rows that are appended.
class RowList {
 public:
  Status Append(const Accumulator& row);
  std::size_t size() const { return size_; }
  // Gives the memory away.
  RowMemory Release();

 private:
  RowMemory memory_;
  std::size_t size_ = 0;
};

class SessionTable {
 public:
  // REQUIRES: 1 <= gap_ms <= kDurationMsMax.
  explicit SessionTable(std::int64_t gap_ms) : gap_ms_(gap_ms), deadlines_(gap_ms) {}
  // REQUIRES: called once, before all else.
  Status Open(RowPool* pool) { return table_.Open(0, pool); }
  Status Reserve(std::size_t rows_expected) { return table_.Reserve(rows_expected); }

  [[gnu::always_inline]] void PrefetchSpread(std::uint32_t spread) const {
    table_.Prefetch(spread);
  }

  // Folds a part of a session in: with the sessions less than a gap away it becomes one, without
  // any it is one of its own. REQUIRES: IsSession(part), spread is that of its key.
  Status Fold(const Accumulator& part, std::uint32_t spread);

  // Takes out every session whose end the frontier has reached.
  Status Fire(std::int64_t frontier, RowList* fired);

  // Whether there are sessions, and the frontier has reached the ends of all: then Detach takes
  // them out in no time.
  bool HaveAllEnded(std::int64_t frontier) const {
    return table_.row_count() > 0 && frontier >= most_last_ + gap_ms_;
  }

  // The same where most have ended: takes the slots as they are, and puts the others back.
  // REQUIRES: as Detach. kNoMemory leaves part of them out.
  Status FireMost(std::int64_t frontier, RowPool* pool, std::vector<RowMemory>* rows,
                  std::size_t* count);
  // Whether that costs less.
  bool HaveMostEnded(std::int64_t frontier) const {
    return table_.row_count() >= kMostRowsMin &&
           deadlines_.DueAtMost(frontier) > table_.row_count() / 2;
  }

  // Takes out every session at once, slots and all, and goes on without any.
  // REQUIRES: Open got the same pool. kNoMemory: nothing is changed.
  Status Detach(RowPool* pool, std::vector<RowMemory>* rows, std::size_t* count);

  // Copies the sessions of a key, ascending by start, as many as fit; says how many there are.
  std::size_t Find(std::uint64_t account_id, Span<Accumulator> into) const;

  const RowTable& table() const { return table_; }
  std::int64_t least_end() const { return deadlines_.least(); }
  std::uint64_t merged_count() const { return merged_; }
  std::size_t bytes() const { return table_.bytes() + deadlines_.bytes(); }

 private:
  // Fewer are taken out one by one.
  static constexpr std::size_t kMostRowsMin = 50'000;

  std::int64_t gap_ms_;
  RowTable table_;
  SessionDeadlines deadlines_;
  std::uint64_t merged_ = 0;
  // The last event of all that were folded in since there were no sessions.
  std::int64_t most_last_ = -kEventTsLimit;
  std::vector<Deadline> due_;
};

}  // namespace millrace::kernel
