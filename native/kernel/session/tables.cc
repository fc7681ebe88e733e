#include "kernel/session/tables.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernel/session/delta.h"

namespace millrace::kernel {
namespace {

constexpr std::size_t kPrefetchAhead = 16;
constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

SessionTables::SessionTables(std::int64_t gap_ms, std::uint32_t shards, RowForm form)
    : gap_ms_(gap_ms),
      form_(std::move(form)),
      pool_(std::make_shared<RowPool>(RowTable(form_.lines()).bucket_lines())),
      owner_(shards),
      sharded_(shards),
      threads_(Workers::Shared(shards)) {
  for (std::uint32_t i = 0; i < shards; i++) {
    workers_.push_back(std::make_unique<Worker>(gap_ms, form_));
  }
}

void SessionTables::ClearDeltas() {
  for (const auto& worker : workers_) worker->Clear(form_);
  least_start_ = 0;
}

Status SessionTables::Open() {
  for (const auto& worker : workers_) {
    const Status status = worker->table.Open(pool_.get());
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

// Joins each event with the partial sessions of its key less than a gap away: none, one, or the two
// that it connects. Two connected ones become the one with the lower number.
class SessionTables::Aggregation {
 public:
  // REQUIRES: Prepare was called for `rows`, and at most so many are added.
  Aggregation(const Rows<layout::EventBatch>& events, const Values& values, const RowForm& form,
              std::int64_t gap_ms, std::uint32_t rows, Worker* worker)
      : events_(events.at),
        values_(values),
        form_(form),
        gap_ms_(gap_ms),
        deltas_(worker->deltas.rows()),
        index_(worker->index.data()),
        mask_(worker->index.size() - 1),
        shift_(32 - std::countr_zero(worker->index.size())),
        number_bits_(std::bit_width(rows)),
        number_mask_((1U << number_bits_) - 1) {}

  // Joins an event; `hash` is that of its key.
  [[gnu::always_inline]] void Add(std::uint32_t row, std::uint32_t hash) {
    const std::uint64_t key = events_.account_id[row];
    const std::int64_t event_ts = events_.event_ts[row];
    const std::uint32_t tag = hash << number_bits_;
    std::uint32_t near = kNone;
    std::size_t at = hash >> shift_;
    for (; index_[at] != 0; at = (at + 1) & mask_) {
      if ((index_[at] & ~number_mask_) != tag) continue;
      const std::uint32_t number = (index_[at] & number_mask_) - 1;
      const Accumulator& part = *At(number);
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
      Join(At(other), At(near));
      form_.Free(At(other));
      *At(other) = {};
      break;
    }
    if (near != kNone) {
      Accumulator& part = *At(near);
      FoldEvent(events_.value[row], event_ts, &part);
      if (form_.has_cells()) form_.FoldCells(values_, row, event_ts, &part);
      if (event_ts < StartOf(part)) part.spare = static_cast<std::uint64_t>(event_ts);
    } else {
      Accumulator* const part = At(count_);
      *part = OneEvent(key, events_.value[row], event_ts);
      part->spare = static_cast<std::uint64_t>(event_ts);
      form_.BeginCells(values_, row, event_ts, part);
      index_[at] = tag | ++count_;
    }
  }

  // Closes the gaps of the parts that were joined into others, and returns the number of parts.
  std::size_t Finish() {
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < count_; i++) {
      if (At(i)->count == 0) continue;
      if (count < i) form_.Move(At(i), deltas_ + count * form_.lines());
      count++;
    }
    return count;
  }

 private:
  Accumulator* At(std::uint32_t number) const { return deltas_ + number * form_.lines(); }
  // Joins a part of a session into another.
  void Join(const Accumulator* part, Accumulator* into) const {
    const std::int64_t start = std::min(StartOf(*part), StartOf(*into));
    form_.Fold(part, into);
    into->spare = static_cast<std::uint64_t>(start);
  }

  const layout::EventBatch& events_;
  const Values& values_;
  const RowForm& form_;
  const std::int64_t gap_ms_;
  Accumulator* const deltas_;
  std::uint32_t* const index_;
  const std::size_t mask_;
  const int shift_;
  // As in WindowTables: an index entry is the number of a part below the low bits of its hash.
  const int number_bits_;
  const std::uint32_t number_mask_;
  std::uint32_t count_ = 0;
};

Status SessionTables::Accumulate(const Rows<layout::EventBatch>& events,
                                 const Rows<layout::AdmittedBatch>& admitted,
                                 const Values& values) {
  ClearDeltas();
  if (shards() > 1) return AccumulateShards(events, admitted, values);
  for (std::uint32_t i = 0; i < admitted.row_count; i++) {
    const std::uint32_t row = admitted.at.row[i];
    if (row >= events.row_count || events.at.event_ts[row] < -kEventTsLimit ||
        events.at.event_ts[row] >= kEventTsLimit) {
      return Status::kBadArgument;
    }
  }
  if (admitted.row_count == 0) return Status::kOk;
  if (!form_.Fits(values, events.row_count)) return Status::kBadArgument;
  return AccumulateOne(events, admitted, values);
}

Status SessionTables::AccumulateOne(const Rows<layout::EventBatch>& events,
                                    const Rows<layout::AdmittedBatch>& admitted,
                                    const Values& values) {
  Worker& worker = *workers_[0];
  const Status status = worker.Prepare(admitted.row_count, form_);
  if (status != Status::kOk) return status;
  Aggregation aggregation(events, values, form_, gap_ms_, admitted.row_count, &worker);
  for (std::uint32_t i = 0; i < admitted.row_count; i++) {
    const std::uint32_t row = admitted.at.row[i];
    aggregation.Add(row, TableHash(events.at.account_id[row]));
  }
  worker.count = aggregation.Finish();
  return Update(&worker, form_.lines());
}

Status SessionTables::AccumulateShards(const Rows<layout::EventBatch>& events,
                                       const Rows<layout::AdmittedBatch>& admitted,
                                       const Values& values) {
  if (admitted.row_count == 0) return Status::kOk;
  if (!form_.Fits(values, events.row_count)) return Status::kBadArgument;
  const std::uint32_t rows = admitted.row_count;
  const auto divide = [&](std::uint32_t chunk) { sharded_.Divide(chunk, events, admitted, 0); };
  threads_->RunRows(rows, sharded_.Begin(rows), Workers::Work::kDivide, divide);
  if (!sharded_.AreSound()) return Status::kBadArgument;
  // A partial session starts at an event of the batch, and the earliest event starts one.
  least_start_ = sharded_.least_ts();
  const auto fold = [&](std::uint32_t shard) {
    workers_[shard]->status = FoldShard(events, values, shard);
  };
  threads_->RunRows(rows, shards(), Workers::Work::kFold, fold);
  for (const auto& worker : workers_) {
    if (worker->status != Status::kOk) return worker->status;
  }
  return Status::kOk;
}

Status SessionTables::FoldShard(const Rows<layout::EventBatch>& events, const Values& values,
                                std::uint32_t shard) {
  Worker& worker = *workers_[shard];
  const std::uint32_t rows = sharded_.Count(shard);
  if (rows == 0) return Status::kOk;
  Status status = worker.Prepare(rows, form_);
  if (status != Status::kOk) return status;
  Aggregation aggregation(events, values, form_, gap_ms_, rows, &worker);
  sharded_.ForEach(shard, [&](const ShardRows::Row& row, const std::uint32_t*) {
    aggregation.Add(row.row, row.hash);
  });
  worker.count = aggregation.Finish();
  status = Update(&worker, form_.lines());
  if (status != Status::kOk) return status;
  const Span<const Accumulator> part{worker.deltas.rows(), worker.count};
  EncodeSessionShard({{&part, 1}, form_}, least_start_, &worker.encoded);
  return Status::kOk;
}

// Folds the partial sessions of a shard into its table.
Status SessionTables::Update(Worker* worker, std::size_t lines) {
  const Accumulator* const deltas = worker->deltas.rows();
  const auto hash_at = [deltas, lines](std::size_t i) {
    return TableHash(deltas[i * lines].account_id);
  };
  for (std::size_t i = 0; i < worker->count; i++) {
    if (i + kPrefetchAhead < worker->count) {
      worker->table.PrefetchHome(hash_at(i + kPrefetchAhead));
    }
    const Status status = worker->table.Fold(deltas[i * lines], hash_at(i));
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

RowParts SessionTables::PartsOf(std::vector<Span<const Accumulator>>* parts) const {
  for (const auto& worker : workers_) parts->push_back({worker->deltas.rows(), worker->count});
  return {{parts->data(), parts->size()}, form_};
}

std::size_t SessionTables::DeltaBytesMax() const {
  std::vector<Span<const Accumulator>> parts;
  return SessionDeltaBytesMax(PartsOf(&parts));
}

Status SessionTables::EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const {
  if (shards() == 1) {
    std::vector<Span<const Accumulator>> parts;
    return EncodeSessionDeltas(PartsOf(&parts), gap_ms_, out, written);
  }
  if (out.size < DeltaBytesMax()) return Status::kTooFewRows;
  std::vector<const ShardColumns*> encoded;
  for (const auto& worker : workers_) encoded.push_back(&worker->encoded);
  return JoinSessionDeltas({encoded.data(), encoded.size()}, least_start_, gap_ms_, out.data,
                           written);
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
      workers_[owner_(next)]->table.PrefetchHome(TableHash(next));
    }
    const std::uint64_t key = rows[i]->account_id;
    const Status status = workers_[owner_(key)]->table.Fold(*rows[i], TableHash(key));
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
  return workers_[owner_(account_id)]->table.Find(account_id, into);
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
