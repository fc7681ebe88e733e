// Open sessions of one shard. The spare cell of a row is the session's start and last_update_ts its
// last event, so a session is [start, last + gap).
//
// Nearly every key has one open session; a key with several has several slots, all in the probe of
// the key. Invariant: sessions of a key lie at least a gap apart, from the last event of one to the
// first event of the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/form.h"
#include "kernel/rows/table.h"
#include "kernel/session/deadlines.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

inline std::int64_t StartOf(const Accumulator& session) {
  return static_cast<std::int64_t>(session.spare);
}

// True when a row is a session, or a part of one, whose times are within their limits.
inline bool IsSession(const Accumulator& row) {
  return row.count != 0 && StartOf(row) >= -kEventTsLimit && row.last_update_ts < kEventTsLimit &&
         StartOf(row) <= row.last_update_ts;
}

// Growing list of stored rows.
class RowList {
 public:
  explicit RowList(const RowForm& form) : form_(form) {}
  // Moves a row, with its blocks, to the end of the list.
  Status Append(const Accumulator& row);
  std::size_t size() const { return size_; }
  // Returns the memory and leaves the list empty.
  RowMemory Release();

 private:
  const RowForm& form_;
  RowMemory memory_;
  std::size_t size_ = 0;
};

class SessionTable {
 public:
  // REQUIRES: 1 <= gap_ms <= kDurationMsMax. LIFETIME: the form outlives the table.
  SessionTable(std::int64_t gap_ms, const RowForm& form)
      : gap_ms_(gap_ms), form_(form), table_(form.lines()), deadlines_(gap_ms) {}
  ~SessionTable();
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;
  // REQUIRES: called once, before all other functions.
  Status Open(RowPool* pool) { return table_.Open(0, pool); }
  Status Reserve(std::size_t rows_expected) { return table_.Reserve(rows_expected); }

  [[gnu::always_inline]] void PrefetchHome(std::uint32_t hash) const { table_.Prefetch(hash); }

  // Folds a part of a session into the table: it joins the sessions less than a gap away, or
  // becomes a session of its own. REQUIRES: IsSession(part); `hash` is that of its key.
  Status Fold(const Accumulator& part, std::uint32_t hash);

  // Removes every session whose end the watermark has reached and appends it to `fired`.
  Status Fire(std::int64_t watermark, RowList* fired);

  // True when there are sessions and the watermark has reached the ends of all. Then Detach removes
  // them without a scan.
  bool HaveAllEnded(std::int64_t watermark) const {
    return table_.row_count() > 0 && watermark >= most_last_ + gap_ms_;
  }

  // Fires by moving all slots to `rows` and folding back the sessions that have not ended. `count`
  // grows by the sessions that ended. REQUIRES: as Detach. kNoMemory loses part of the sessions.
  Status FireMost(std::int64_t watermark, RowPool* pool, std::vector<RowMemory>* rows,
                  std::size_t* count);
  // True when FireMost is cheaper than Fire.
  bool HaveMostEnded(std::int64_t watermark) const {
    return table_.row_count() >= kMostRowsMin &&
           deadlines_.DueAtMost(watermark) > table_.row_count() / 2;
  }

  // Removes all sessions together with their slots and leaves an empty table. REQUIRES: Open was
  // called with the same pool. kNoMemory changes nothing.
  Status Detach(RowPool* pool, std::vector<RowMemory>* rows, std::size_t* count);

  // Copies sessions to a page from slot *cursor on, as many as fit, and returns their number. The
  // copy is complete when *cursor reaches the number of slots.
  std::size_t Copy(std::uint64_t* cursor, Span<Accumulator> into) const;
  // Copies the sessions of one range to a page, as SlotTable::VisitRange visits them. False when
  // `into` was full before the end of the range.
  bool CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into,
                 std::size_t* copied) const;
  // Copies the sessions of a key to a page, ascending by start, as many as fit. Returns how many
  // the key has.
  std::size_t Find(std::uint64_t account_id, Span<Accumulator> into) const;

  const RowTable& table() const { return table_; }
  std::int64_t least_end() const { return deadlines_.least(); }
  std::uint64_t merged_count() const { return merged_; }
  std::size_t bytes() const { return table_.bytes() + deadlines_.bytes() + block_bytes_; }

 private:
  // True when the other sessions of its key lie at least a gap away. `hash` is that of the key.
  bool IsApart(const Accumulator& session, std::uint32_t hash) const;

  // Below this number of sessions, Fire is cheaper.
  static constexpr std::size_t kMostRowsMin = 50'000;

  std::int64_t gap_ms_;
  const RowForm& form_;
  RowTable table_;
  SessionDeadlines deadlines_;
  std::uint64_t merged_ = 0;
  // Last event of all sessions that were folded in since the table was empty.
  std::int64_t most_last_ = -kEventTsLimit;
  std::vector<Deadline> due_;
  std::size_t block_bytes_ = 0;
};

}  // namespace millrace::kernel
