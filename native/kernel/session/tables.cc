#include "kernel/session/tables.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernel/hash.h"
#include "kernel/session/delta.h"

namespace millrace::kernel {
namespace {

constexpr std::size_t kPrefetchAhead = 16;
constexpr std::size_t kIndexMin = 64;
constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

SessionTables::SessionTables(std::int64_t gap_ms, std::uint32_t shards, RowForm form)
    : gap_ms_(gap_ms),
      form_(std::move(form)),
      pool_(std::make_shared<RowPool>(RowTable(form_.lines()).bucket_lines())),
      threads_(shards) {
  for (std::uint32_t i = 0; i < shards; i++) {
    workers_.push_back(std::make_unique<Worker>(gap_ms, form_));
  }
}

void SessionTables::ClearDeltas() {
  for (const auto& worker : workers_) {
    Accumulator* const rows = worker->deltas.rows();
    for (std::size_t i = 0; form_.has_sketches() && i < worker->count; i++) {
      form_.Free(rows + i * form_.lines());
    }
    worker->count = 0;
  }
}

// Joins a part of a session into another.
void SessionTables::Join(const Accumulator* part, Accumulator* into) const {
  const std::int64_t start = std::min(StartOf(*part), StartOf(*into));
  form_.Fold(part, into);
  into->spare = static_cast<std::uint64_t>(start);
}

Status SessionTables::Open() {
  for (const auto& worker : workers_) {
    const Status status = worker->table.Open(pool_.get());
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

std::uint32_t SessionTables::OwnerOf(std::uint64_t account_id) const {
  return shards() == 1 ? 0 : ShardHash(account_id) % shards();
}

Status SessionTables::Accumulate(const Rows<layout::EventBatch>& events,
                                 const Rows<layout::AdmittedBatch>& admitted,
                                 const Values& values) {
  const std::uint32_t rows = admitted.row_count;
  ClearDeltas();
  for (const auto& worker : workers_) worker->status = Status::kOk;
  for (std::uint32_t i = 0; i < rows; i++) {
    const std::uint32_t row = admitted.at.row[i];
    if (row >= events.row_count || events.at.event_ts[row] < -kEventTsLimit ||
        events.at.event_ts[row] >= kEventTsLimit) {
      return Status::kBadArgument;
    }
  }
  if (rows == 0) return Status::kOk;
  if (!form_.Fits(values, events.row_count)) return Status::kBadArgument;
  if (shards() > 1) {
    owner_.resize(events.row_count);
    const Status status = ShardOf(events, shards(), {owner_.data(), owner_.size()});
    if (status != Status::kOk) return status;
  }
  const std::size_t index_size =
      std::bit_ceil(std::max<std::size_t>(kIndexMin, std::size_t{rows} * 2));
  for (const auto& worker : workers_) {
    if (worker->deltas.size() < rows * form_.lines()) {
      const Status status = worker->deltas.Allocate(std::bit_ceil(rows * form_.lines()));
      if (status != Status::kOk) return status;
    }
    worker->index.assign(index_size, 0);
  }

  const auto work = [&](std::uint32_t shard) {
    Aggregate(events, admitted, values, shard);
    Worker& worker = *workers_[shard];
    const auto delta_at = [deltas = worker.deltas.rows(), lines = form_.lines()](
                              std::size_t i) -> const Accumulator& { return deltas[i * lines]; };
    for (std::size_t i = 0; i < worker.count && worker.status == Status::kOk; i++) {
      if (i + kPrefetchAhead < worker.count) {
        worker.table.PrefetchHome(TableHash(delta_at(i + kPrefetchAhead).account_id));
      }
      worker.status = worker.table.Fold(delta_at(i), TableHash(delta_at(i).account_id));
    }
  };
  if (shards() == 1 || rows < WindowTables::kForkRowsMin) {
    for (std::uint32_t shard = 0; shard < shards(); shard++) work(shard);
  } else {
    threads_.Run(work);
  }
  for (const auto& worker : workers_) {
    if (worker->status != Status::kOk) return worker->status;
  }
  return Status::kOk;
}

// Joins each event with the partial sessions of its key less than a gap away: none, one, or the two
// that it connects. Two connected ones become the one with the lower number.
void SessionTables::Aggregate(const Rows<layout::EventBatch>& events,
                              const Rows<layout::AdmittedBatch>& admitted, const Values& values,
                              std::uint32_t shard) {
  Worker& worker = *workers_[shard];
  const bool has_cells = form_.has_cells();
  const auto delta_at = [deltas = worker.deltas.rows(), lines = form_.lines()](std::size_t i) {
    return deltas + i * lines;
  };
  std::uint32_t* const index = worker.index.data();
  const std::size_t mask = worker.index.size() - 1;
  const int shift = 32 - std::countr_zero(worker.index.size());
  // As in WindowTables: an index entry is the number of a part below the low bits of its hash.
  const int number_bits = std::bit_width(admitted.row_count);
  const std::uint32_t number_mask = (1U << number_bits) - 1;
  const std::int32_t* const owner = shards() == 1 ? nullptr : owner_.data();
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < admitted.row_count; i++) {
    const std::uint32_t row = admitted.at.row[i];
    if (owner != nullptr && owner[row] != static_cast<std::int32_t>(shard)) continue;
    const std::uint64_t key = events.at.account_id[row];
    const std::int64_t event_ts = events.at.event_ts[row];
    const std::uint32_t hash = TableHash(key);
    const std::uint32_t tag = hash << number_bits;
    const std::int64_t value = events.at.value[row];
    std::uint32_t near = kNone;
    std::size_t at = hash >> shift;
    for (; index[at] != 0; at = (at + 1) & mask) {
      if ((index[at] & ~number_mask) != tag) continue;
      const std::uint32_t number = (index[at] & number_mask) - 1;
      const Accumulator& part = *delta_at(number);
      if (part.account_id != key || part.count == 0) continue;
      const std::int64_t start = StartOf(part);
      if (event_ts - part.last_update_ts >= gap_ms_ || start - event_ts >= gap_ms_) continue;
      if (near == kNone) {
        near = number;
        // An event inside this part is near no other part.
        if (event_ts >= start && event_ts <= part.last_update_ts) break;
        continue;
      }
      const std::uint32_t other = std::max(near, number);
      near = std::min(near, number);
      Join(delta_at(other), delta_at(near));
      form_.Free(delta_at(other));
      *delta_at(other) = {};
      break;
    }
    if (near != kNone) {
      Accumulator& part = *delta_at(near);
      FoldEvent(value, event_ts, &part);
      if (has_cells) form_.FoldCells(values, row, event_ts, &part);
      if (event_ts < StartOf(part)) part.spare = static_cast<std::uint64_t>(event_ts);
    } else {
      Accumulator* const part = delta_at(count);
      *part = OneEvent(key, value, event_ts);
      part->spare = static_cast<std::uint64_t>(event_ts);
      form_.BeginCells(values, row, event_ts, part);
      index[at] = tag | ++count;
    }
  }
  // Closes the gaps of the parts that were joined into others.
  for (std::size_t i = 0; i < count; i++) {
    if (delta_at(i)->count == 0) continue;
    if (worker.count < i) form_.Move(delta_at(i), delta_at(worker.count));
    worker.count++;
  }
}

std::size_t SessionTables::DeltaBytesMax() const {
  std::vector<Span<const Accumulator>> parts;
  for (const auto& worker : workers_) parts.push_back({worker->deltas.rows(), worker->count});
  return SessionDeltaBytesMax({{parts.data(), parts.size()}, form_});
}

Status SessionTables::EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const {
  std::vector<Span<const Accumulator>> parts;
  for (const auto& worker : workers_) parts.push_back({worker->deltas.rows(), worker->count});
  return EncodeSessionDeltas({{parts.data(), parts.size()}, form_}, gap_ms_, out, written);
}

Status SessionTables::ApplyDeltas(Span<const std::uint8_t> bytes, const Cover& cover,
                                  std::int32_t* verdict) {
  ClearDeltas();
  std::vector<Accumulator> deltas;
  const RowGuard guard(form_, &deltas);
  *verdict = DecodeSessionDeltas(bytes, gap_ms_, form_, &deltas);
  if (*verdict != layout::kDeltaStatusOk) return Status::kOk;
  std::vector<const Accumulator*> rows;
  for (std::size_t i = 0; i < deltas.size(); i += form_.lines()) {
    if (!cover.Has(deltas[i].account_id)) rows.push_back(&deltas[i]);
  }
  return FoldAll(rows);
}

Status SessionTables::Reserve(std::size_t rows) {
  for (const auto& worker : workers_) {
    const Status status = worker->table.Reserve((rows + shards() - 1) / shards());
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status SessionTables::Load(const Accumulator* rows, std::size_t count) {
  std::vector<const Accumulator*> sessions;
  sessions.reserve(count);
  for (std::size_t i = 0; i < count; i++) {
    const Accumulator* const row = rows + i * form_.page_lines();
    if (!IsSession(*row) || !form_.AreSound(row, true)) return Status::kBadArgument;
    sessions.push_back(row);
  }
  if (!form_.has_sketches()) return FoldAll(sessions);
  std::vector<Accumulator> stored(count * form_.lines());
  const RowGuard guard(form_, &stored);
  for (std::size_t i = 0; i < count; i++) {
    Accumulator* const row = &stored[i * form_.lines()];
    form_.FromPage(sessions[i], row);
    sessions[i] = row;
  }
  return FoldAll(sessions);
}

Status SessionTables::FoldAll(const std::vector<const Accumulator*>& rows) {
  for (std::size_t i = 0; i < rows.size(); i++) {
    if (i + kPrefetchAhead < rows.size()) {
      const std::uint64_t next = rows[i + kPrefetchAhead]->account_id;
      workers_[OwnerOf(next)]->table.PrefetchHome(TableHash(next));
    }
    const std::uint64_t key = rows[i]->account_id;
    const Status status = workers_[OwnerOf(key)]->table.Fold(*rows[i], TableHash(key));
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

std::size_t SessionTables::Copy(std::uint64_t* cursor, Span<Accumulator> into) const {
  std::size_t count = 0;
  std::uint64_t first = 0;  // number of the table's first slot
  for (const auto& worker : workers_) {
    const SessionTable& table = worker->table;
    const std::uint64_t slots = table.table().slot_count();
    if (*cursor < first + slots) {
      std::uint64_t at = *cursor - first;
      const std::size_t used = count * form_.page_lines();
      count += table.Copy(&at, {into.data + used, into.size - used});
      *cursor = first + at;
      if (at < slots) break;
    }
    first += slots;
  }
  return count;
}

std::size_t SessionTables::CopyRange(std::uint32_t range, std::uint64_t* cursor,
                                     Span<Accumulator> into) const {
  std::vector<const SessionTable*> tables;
  for (const auto& worker : workers_) tables.push_back(&worker->table);
  return CopyRangeOf<SessionTable>({tables.data(), tables.size()}, range, cursor, into);
}

std::size_t SessionTables::Find(std::uint64_t account_id, Span<Accumulator> into) const {
  return workers_[OwnerOf(account_id)]->table.Find(account_id, into);
}

Status SessionTables::Fire(std::int64_t watermark, std::unique_ptr<SortedRun>* run) {
  std::vector<RowMemory> parts;
  std::size_t count = 0;
  bool is_whole = false;
  for (const auto& worker : workers_) {
    if (worker->table.HaveAllEnded(watermark)) {
      const Status status = worker->table.Detach(pool_.get(), &parts, &count);
      if (status != Status::kOk) return status;
      is_whole = true;
      continue;
    }
    if (worker->table.HaveMostEnded(watermark)) {
      const Status status = worker->table.FireMost(watermark, pool_.get(), &parts, &count);
      if (status != Status::kOk) return status;
      is_whole = true;
      continue;
    }
    RowList fired(form_);
    const Status status = worker->table.Fire(watermark, &fired);
    if (status != Status::kOk) return status;
    count += fired.size();
    parts.push_back(fired.Release());
  }
  if (is_whole) pool_->Limit(parts.size());
  *run =
      std::make_unique<SortedRun>(SortedRun::Order::kByEnd, std::move(parts), count, form_, pool_);
  return Status::kOk;
}

Status SessionTables::Detach(std::unique_ptr<SortedRun>* run) {
  std::vector<RowMemory> parts;
  std::size_t count = 0;
  for (const auto& worker : workers_) {
    const Status status = worker->table.Detach(pool_.get(), &parts, &count);
    if (status != Status::kOk) return status;
  }
  pool_->Limit(parts.size());
  *run = std::make_unique<SortedRun>(SortedRun::Order::kByStart, std::move(parts), count, form_,
                                     pool_);
  return Status::kOk;
}

std::int64_t SessionTables::least_end() const {
  std::int64_t least = SessionDeadlines::kForever;
  for (const auto& worker : workers_) least = std::min(least, worker->table.least_end());
  return least;
}

std::size_t SessionTables::session_count() const {
  std::size_t count = 0;
  for (const auto& worker : workers_) count += worker->table.table().row_count();
  return count;
}

std::uint64_t SessionTables::merged_count() const {
  std::uint64_t count = 0;
  for (const auto& worker : workers_) count += worker->table.merged_count();
  return count;
}

std::size_t SessionTables::bytes() const {
  std::size_t bytes = pool_->bytes();
  for (const auto& worker : workers_) bytes += worker->table.bytes();
  return bytes;
}

}  // namespace millrace::kernel
