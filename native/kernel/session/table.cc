#include "kernel/session/table.h"

#include <algorithm>
#include <utility>

namespace millrace::kernel {
namespace {

constexpr std::size_t kPrefetchAhead = 16;

}  // namespace

Status RowList::Append(const Accumulator& row) {
  const std::size_t lines = form_.lines();
  if (size_ * lines == memory_.size()) {
    const Status status =
        size_ == 0 ? memory_.Allocate(RowTable::kSlotsMin * lines) : memory_.Double();
    if (status != Status::kOk) return status;
  }
  form_.Move(&row, memory_.rows() + size_++ * lines);
  return Status::kOk;
}

RowMemory RowList::Release() {
  size_ = 0;
  return std::move(memory_);
}

SessionTable::~SessionTable() {
  if (!form_.has_sketches()) return;
  std::uint64_t cursor = 0;
  table_.VisitAll(&cursor, [this](const Accumulator& row) {
    form_.Free(const_cast<Accumulator*>(&row));
    return true;
  });
}

Status SessionTable::Fold(const Accumulator& part, std::uint32_t hash) {
  MILLRACE_INVARIANT(IsSession(part) && hash == TableHash(part.account_id));
  if (table_.IsFull(hash)) [[unlikely]] {
    const Status status = table_.MakeRoom(hash);
    if (status != Status::kOk) return status;
  }
  const std::int64_t start = StartOf(part);
  const std::int64_t last = part.last_update_ts;
  most_last_ = std::max(most_last_, last);
  // Sessions near the merged session are near the part too: sessions of a key lie a gap apart, so a
  // merge does not reach another session.
  Accumulator* near = nullptr;
  std::size_t near_bytes = 0;  // of the blocks of all sessions near the part
  std::int64_t least = SessionDeadlines::kForever;
  RowTable::Probe probe = table_.Home(hash);
  while (probe.slot()->count != 0) {
    Accumulator* const row = probe.slot();
    if (row->account_id == part.account_id) {
      const std::int64_t other = StartOf(*row);
      if (start - row->last_update_ts < gap_ms_ && other - last < gap_ms_) {
        least = std::min(least, other);
        if (near != nullptr) {
          near_bytes += form_.BlockBytes(row);
          form_.Fold(row, near);
          form_.Free(row);
          merged_++;
          // Remove shifted the next row of the cluster into this slot.
          table_.Remove(hash, probe.at());
          continue;
        }
        near = row;
        near_bytes = form_.BlockBytes(row);
        // A part inside this session is near no other session.
        if (start >= other && last <= row->last_update_ts) break;
      }
    }
    probe.Next();
  }
  if (near == nullptr) {
    near = probe.slot();
    form_.Copy(&part, near);
    table_.Use(hash);
  } else {
    form_.Fold(&part, near);
    near->spare = static_cast<std::uint64_t>(std::min(start, least));
  }
  block_bytes_ += form_.BlockBytes(near) - near_bytes;
  MILLRACE_INVARIANT(IsSession(*near) && IsApart(*near, hash));
  // A session whose start does not change has an entry already, with a deadline that is not later.
  if (start < least) deadlines_.Add({part.account_id, start, near->last_update_ts + gap_ms_});
  return Status::kOk;
}

bool SessionTable::IsApart(const Accumulator& session, std::uint32_t hash) const {
  for (RowTable::Probe probe = table_.Home(hash); probe.slot()->count != 0; probe.Next()) {
    const Accumulator& other = *probe.slot();
    if (&other == &session || other.account_id != session.account_id) continue;
    if (StartOf(other) - session.last_update_ts < gap_ms_ &&
        StartOf(session) - other.last_update_ts < gap_ms_) {
      return false;
    }
  }
  return true;
}

Status SessionTable::Fire(std::int64_t watermark, RowList* fired) {
  due_.clear();
  deadlines_.PopDue(watermark, &due_);
  for (std::size_t i = 0; i < due_.size(); i++) {
    if (i + kPrefetchAhead < due_.size()) {
      table_.Prefetch(TableHash(due_[i + kPrefetchAhead].account_id));
    }
    const Deadline& entry = due_[i];
    const std::uint32_t hash = TableHash(entry.account_id);
    RowTable::Probe probe = table_.Home(hash);
    while (probe.slot()->count != 0 && (probe.slot()->account_id != entry.account_id ||
                                        StartOf(*probe.slot()) != entry.start)) {
      probe.Next();
    }
    const Accumulator& row = *probe.slot();
    if (row.count == 0) continue;
    const std::int64_t end = row.last_update_ts + gap_ms_;
    if (end > watermark) {
      deadlines_.Add({entry.account_id, entry.start, end});
      continue;
    }
    const Status status = fired->Append(row);
    if (status != Status::kOk) return status;
    block_bytes_ -= form_.BlockBytes(&row);
    table_.Remove(hash, probe.at());
  }
  return Status::kOk;
}

Status SessionTable::FireMost(std::int64_t watermark, RowPool* pool, std::vector<RowMemory>* rows,
                              std::size_t* count) {
  std::vector<RowMemory> taken;
  Status status = Detach(pool, &taken, count);
  if (status != Status::kOk) return status;
  for (RowMemory& memory : taken) {
    for (std::size_t i = 0; i < memory.size(); i += form_.lines()) {
      Accumulator& row = memory.rows()[i];
      if (row.count == 0 || row.last_update_ts + gap_ms_ <= watermark) continue;
      status = Fold(row, TableHash(row.account_id));
      if (status != Status::kOk) return status;
      form_.Free(&row);
      row = {};
      --*count;
    }
    rows->push_back(std::move(memory));
  }
  return Status::kOk;
}

Status SessionTable::Detach(RowPool* pool, std::vector<RowMemory>* rows, std::size_t* count) {
  RowTable fresh(form_.lines());
  const Status status = fresh.Open(0, pool);
  if (status != Status::kOk) return status;
  *count += table_.row_count();
  table_.Release(rows);
  table_ = std::move(fresh);
  block_bytes_ = 0;
  deadlines_ = SessionDeadlines(gap_ms_);
  most_last_ = -kEventTsLimit;
  return Status::kOk;
}

std::size_t SessionTable::Find(std::uint64_t account_id, Span<Accumulator> into) const {
  std::vector<const Accumulator*> found;
  RowTable::Probe probe = table_.Home(TableHash(account_id));
  for (; probe.slot()->count != 0; probe.Next()) {
    if (probe.slot()->account_id == account_id) found.push_back(probe.slot());
  }
  std::sort(found.begin(), found.end(),
            [](const Accumulator* a, const Accumulator* b) { return StartOf(*a) < StartOf(*b); });
  const std::size_t lines = form_.page_lines();
  for (std::size_t i = 0; i < std::min(found.size(), into.size / lines); i++) {
    form_.ToPage(found[i], into.data + i * lines);
  }
  return found.size();
}

std::size_t SessionTable::Copy(std::uint64_t* cursor, Span<Accumulator> into) const {
  const std::size_t lines = form_.page_lines();
  std::size_t copied = 0;
  table_.VisitAll(cursor, [&](const Accumulator& row) {
    if ((copied + 1) * lines > into.size) return false;
    form_.ToPage(&row, into.data + copied++ * lines);
    return true;
  });
  return copied;
}

bool SessionTable::CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Accumulator> into,
                             std::size_t* copied) const {
  const std::size_t lines = form_.page_lines();
  return table_.VisitRange(range, cursor, [&](const Accumulator& row) {
    if ((*copied + 1) * lines > into.size) return false;
    form_.ToPage(&row, into.data + (*copied)++ * lines);
    return true;
  });
}

}  // namespace millrace::kernel
