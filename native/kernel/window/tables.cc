#include "kernel/window/tables.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace millrace::kernel {
namespace {

constexpr std::size_t kPrefetchAhead = 32;
// Distance at which index entries have arrived in the cache and name the rows to prefetch.
constexpr std::size_t kRowsAhead = 16;
constexpr std::uint32_t kHashBlock = 64;

// Limits a pool to the blocks of the sealed slice, but at least to half of the former limit.
// Returns the new limit.
std::size_t Keep(const std::vector<RowMemory>& held, std::size_t kept, RowPool* pool) {
  const auto whole = std::count_if(held.begin(), held.end(), [pool](const RowMemory& memory) {
    return memory.size() == pool->rows();
  });
  const std::size_t most = std::max(static_cast<std::size_t>(whole), kept / 2);
  pool->Limit(most);
  return most;
}

}  // namespace

WindowTables::WindowTables(std::int64_t slice_ms, std::uint32_t shards, RowForm form)
    : slice_ms_(slice_ms),
      shards_(shards),
      owner_(shards),
      form_(std::move(form)),
      rows_pool_(
          std::make_shared<RowPool>(AccumulatorTable::SegmentLines(form_), RowPool::Reuse::kAsIs)),
      index_pool_(KeyIndex::kBucketRows),
      newest_(0),
      sharded_(shards),
      workers_(shards),
      threads_(Workers::Shared(shards)) {}

void WindowTables::ClearDeltas() {
  for (ShardDeltas& worker : workers_) worker.Clear(form_);
}

bool WindowTables::IsSlice(std::int64_t start) const {
  return start >= -kSliceLimit && start <= kSliceLimit && start % slice_ms_ == 0;
}

// Folds the rows of one shard into deltas.
class WindowTables::Aggregation {
 public:
  // REQUIRES: Prepare was called for `rows`, and at most so many are added.
  Aggregation(const Rows<layout::EventBatch>& events, const Values& values, const RowForm& form,
              std::uint32_t rows, ShardDeltas* worker)
      : account_id_(events.at.account_id),
        value_(events.at.value),
        event_ts_(events.at.event_ts),
        values_(values),
        form_(form),
        has_cells_(form.has_cells()),
        lines_(form.lines()),
        deltas_(worker->deltas.rows()),
        index_(worker->index.data()),
        mask_(worker->index.size() - 1),
        shift_(32 - std::countr_zero(worker->index.size())),
        number_bits_(std::bit_width(rows)),
        number_mask_((1U << number_bits_) - 1) {}

  // Folds a row in. `number` is that of its slice, `hash` that of its key.
  [[gnu::always_inline]] void Add(std::uint32_t row, std::uint32_t number, std::uint32_t hash) {
    const std::uint64_t key = account_id_[row];
    const std::uint32_t tag = hash << number_bits_;
    const std::uint64_t spare = (std::uint64_t{hash} << 32) | number;
    std::size_t at = (hash + number * 0x9e3779b9U) >> shift_;
    for (;;) {
      const std::uint32_t entry = index_[at];
      if (entry == 0) {
        Accumulator* const delta = deltas_ + count_ * lines_;
        *delta = OneEvent(key, value_[row], event_ts_[row]);
        delta->spare = spare;
        form_.BeginCells(values_, row, event_ts_[row], delta);
        index_[at] = tag | ++count_;
        return;
      }
      if ((entry & ~number_mask_) == tag) {
        Accumulator* const delta = deltas_ + ((entry & number_mask_) - 1) * lines_;
        if (delta->account_id == key && delta->spare == spare) {
          FoldEvent(value_[row], event_ts_[row], delta);
          if (has_cells_) form_.FoldCells(values_, row, event_ts_[row], delta);
          return;
        }
      }
      at = (at + 1) & mask_;
    }
  }
  std::uint32_t count() const { return count_; }

 private:
  const std::uint64_t* const account_id_;
  const std::int64_t* const value_;
  const std::int64_t* const event_ts_;
  const Values& values_;
  const RowForm& form_;
  const bool has_cells_;
  const std::size_t lines_;
  Accumulator* const deltas_;
  std::uint32_t* const index_;
  const std::size_t mask_;
  const int shift_;
  // An index entry is the number of a delta, from 1, below the low bits of its hash. These bits
  // reject nearly every other key without reading its delta.
  const int number_bits_;
  const std::uint32_t number_mask_;
  std::uint32_t count_ = 0;
};

Status WindowTables::Accumulate(const Rows<layout::EventBatch>& events,
                                const Rows<layout::AdmittedBatch>& admitted, const Values& values) {
  ClearDeltas();
  batch_slices_.clear();
  if (admitted.row_count == 0) return Status::kOk;
  if (!form_.Fits(values, events.row_count)) return Status::kBadArgument;
  return shards_ == 1 ? AccumulateOne(events, admitted, values)
                      : AccumulateShards(events, admitted, values);
}

Status WindowTables::AccumulateOne(const Rows<layout::EventBatch>& events,
                                   const Rows<layout::AdmittedBatch>& admitted,
                                   const Values& values) {
  const std::uint32_t rows = admitted.row_count;
  if (number_.size() < rows) number_.resize(rows);
  Status status = NumberSlices(events, admitted);
  if (status != Status::kOk) {
    batch_slices_.clear();
    return status;
  }
  ShardDeltas& worker = workers_[0];
  status = worker.Prepare(rows, form_);
  if (status != Status::kOk) return status;
  status = OpenBatchSlices();
  if (status != Status::kOk) return status;

  Aggregation aggregation(events, values, form_, rows, &worker);
  const std::uint64_t* const account_id = events.at.account_id;
  // Hashes of a block of rows, computed ahead of the branches that depend on them.
  std::uint32_t hashes[kHashBlock];
  for (std::uint32_t from = 0; from < rows; from += kHashBlock) {
    const std::uint32_t count = std::min(kHashBlock, rows - from);
    for (std::uint32_t k = 0; k < count; k++) {
      hashes[k] = TableHash(account_id[admitted.at.row[from + k]]);
    }
    for (std::uint32_t k = 0; k < count; k++) {
      aggregation.Add(admitted.at.row[from + k], number_[from + k], hashes[k]);
    }
  }
  worker.count = aggregation.count();
  return Update(0);
}

Status WindowTables::AccumulateShards(const Rows<layout::EventBatch>& events,
                                      const Rows<layout::AdmittedBatch>& admitted,
                                      const Values& values) {
  const std::uint32_t rows = admitted.row_count;
  const auto divide = [&](std::uint32_t chunk) {
    sharded_.Divide(chunk, events, admitted, slice_ms_);
  };
  threads_->RunRows(rows, sharded_.Begin(rows), Workers::Work::kDivide, divide);
  Status status = NumberChunks();
  if (status == Status::kOk) status = OpenBatchSlices();
  if (status != Status::kOk) {
    batch_slices_.clear();
    return status;
  }
  const auto fold = [&](std::uint32_t shard) {
    workers_[shard].status = FoldShard(events, values, shard);
  };
  threads_->RunRows(rows, shards_, Workers::Work::kFold, fold);
  for (const ShardDeltas& worker : workers_) {
    if (worker.status != Status::kOk) return worker.status;
  }
  return Status::kOk;
}

// Folds the rows of one shard and encodes its deltas. Different shards share nothing but the pools,
// which have locks.
Status WindowTables::FoldShard(const Rows<layout::EventBatch>& events, const Values& values,
                               std::uint32_t shard) {
  ShardDeltas& worker = workers_[shard];
  const std::uint32_t rows = sharded_.Count(shard);
  if (rows == 0) return Status::kOk;
  Status status = worker.Prepare(rows, form_);
  if (status != Status::kOk) return status;
  Aggregation aggregation(events, values, form_, rows, &worker);
  sharded_.ForEach(shard, [&](const ShardRows::Row& row, const std::uint32_t* numbers) {
    aggregation.Add(row.row, numbers[row.slice], row.hash);
  });
  worker.count = aggregation.count();
  status = Update(shard);
  if (status != Status::kOk) return status;
  const Span<const Accumulator> part{worker.deltas.rows(), worker.count};
  EncodeShard({{&part, 1}, form_}, {batch_slices_.data(), batch_slices_.size()}, &worker.encoded);
  return Status::kOk;
}

// Gives each slice of the chunks its number in the batch, in order of the first rows.
Status WindowTables::NumberChunks() {
  if (!sharded_.AreSound()) return Status::kBadArgument;
  batch_numbers_.clear();
  for (std::uint32_t at = 0; at < sharded_.chunk_count(); at++) {
    ShardRows::Chunk& chunk = sharded_.chunk(at);
    for (const std::int64_t slice : chunk.slices) {
      std::uint32_t number = 0;
      const Status status = NumberOf(slice, &number);
      if (status != Status::kOk) return status;
      chunk.numbers.push_back(number);
    }
  }
  return Status::kOk;
}

// Assigns every row the number of its slice within the batch, and checks it.
Status WindowTables::NumberSlices(const Rows<layout::EventBatch>& events,
                                  const Rows<layout::AdmittedBatch>& admitted) {
  batch_numbers_.clear();
  // Direct-mapped cache of recent slices, selected by a few bits of their hash.
  constexpr std::size_t kRecent = 64;
  std::int64_t recent[kRecent] = {};
  std::uint32_t recent_number[kRecent] = {};
  bool known[kRecent] = {};
  std::int64_t slice = 0;
  std::uint32_t number = 0;
  const auto width = static_cast<std::uint64_t>(slice_ms_);
  for (std::uint32_t i = 0; i < admitted.row_count; i++) {
    const std::uint32_t row = admitted.at.row[i];
    if (row >= events.row_count) return Status::kBadArgument;
    if (i == 0 || admitted.at.slice[i] != slice) {
      slice = admitted.at.slice[i];
      const std::size_t at = TableHash(static_cast<std::uint64_t>(slice)) >> 26;
      if (!known[at] || recent[at] != slice) {
        const Status status = NumberOf(slice, &recent_number[at]);
        if (status != Status::kOk) return status;
        recent[at] = slice;
        known[at] = true;
      }
      number = recent_number[at];
    }
    const auto ahead =
        static_cast<std::uint64_t>(events.at.event_ts[row]) - static_cast<std::uint64_t>(slice);
    if (ahead >= width) return Status::kBadArgument;
    number_[i] = number;
  }
  return Status::kOk;
}

Status WindowTables::NumberOf(std::int64_t slice, std::uint32_t* number) {
  if (!IsSlice(slice)) return Status::kBadArgument;
  const auto next = static_cast<std::uint32_t>(batch_slices_.size());
  const auto [at, is_new] = batch_numbers_.try_emplace(slice, next);
  if (is_new) batch_slices_.push_back(slice);
  *number = at->second;
  return Status::kOk;
}

Status WindowTables::OpenBatchSlices() {
  batch_tables_.clear();
  for (const std::int64_t slice : batch_slices_) {
    Tables* tables = nullptr;
    const Status status = SliceOf(slice, &tables);
    if (status != Status::kOk) return status;
    batch_tables_.push_back(tables);
  }
  return Status::kOk;
}

Status WindowTables::SliceOf(std::int64_t start, Tables** out) {
  const auto at = slices_.find(start);
  if (at != slices_.end()) {
    *out = &at->second;
    return Status::kOk;
  }
  // A slice that event time reaches next will hold about as many keys as those before it. A slice
  // far ahead or behind may hold a single straggler.
  std::size_t expected = 0;
  if (!any_ || (start > newest_ && start - newest_ <= kAheadSlices * slice_ms_)) {
    expected = keys_expected_;
    newest_ = start;
    any_ = true;
  }
  Tables tables(shards_);
  for (AccumulatorTable& table : tables) {
    const Status status = table.Open(expected, {rows_pool_.get(), &index_pool_}, form_);
    if (status != Status::kOk) return status;
  }
  *out = &slices_.emplace(start, std::move(tables)).first->second;
  return Status::kOk;
}

Status WindowTables::Update(std::uint32_t shard) {
  const ShardDeltas& worker = workers_[shard];
  const auto delta_at = [deltas = worker.deltas.rows(), lines = form_.lines()](
                            std::size_t i) -> const Accumulator& { return deltas[i * lines]; };
  const auto table_of = [&](const Accumulator& delta) -> AccumulatorTable& {
    return (*batch_tables_[SliceNumberOf(delta)])[shard];
  };
  const auto hash_of = [](const Accumulator& delta) {
    return static_cast<std::uint32_t>(delta.spare >> 32);
  };
  const std::size_t count = worker.count;
  for (std::size_t i = 0; i < std::min(kPrefetchAhead, count); i++) {
    table_of(delta_at(i)).PrefetchHome(hash_of(delta_at(i)));
  }
  AccumulatorTable::Hint hints[kRowsAhead];
  for (std::size_t i = 0; i < std::min(kRowsAhead, count); i++) {
    hints[i] = table_of(delta_at(i)).HintFor(hash_of(delta_at(i)));
  }
  for (std::size_t i = 0; i < count; i++) {
    if (i + kPrefetchAhead < count) {
      const Accumulator& next = delta_at(i + kPrefetchAhead);
      table_of(next).PrefetchHome(hash_of(next));
    }
    AccumulatorTable::Hint& hint = hints[i % kRowsAhead];
    const Accumulator& delta = delta_at(i);
    const Status status = table_of(delta).Add(delta, hash_of(delta), hint);
    if (status != Status::kOk) return status;
    if (i + kRowsAhead < count) {
      const Accumulator& next = delta_at(i + kRowsAhead);
      hint = table_of(next).HintFor(hash_of(next));
    }
  }
  return Status::kOk;
}

std::size_t WindowTables::delta_count() const {
  std::size_t count = 0;
  for (const ShardDeltas& worker : workers_) count += worker.count;
  return count;
}

RowParts WindowTables::PartsOf(std::vector<Span<const Accumulator>>* parts) const {
  for (const ShardDeltas& worker : workers_) parts->push_back({worker.deltas.rows(), worker.count});
  return {{parts->data(), parts->size()}, form_};
}

std::size_t WindowTables::DeltaBytesMax() const {
  std::vector<Span<const Accumulator>> parts;
  return kernel::DeltaBytesMax(PartsOf(&parts), batch_slices_.size());
}

Status WindowTables::EncodeDeltas(Span<std::uint8_t> out, std::size_t* written) const {
  const Span<const std::int64_t> slices{batch_slices_.data(), batch_slices_.size()};
  if (shards_ == 1) {
    std::vector<Span<const Accumulator>> parts;
    return kernel::EncodeDeltas(PartsOf(&parts), slices, slice_ms_, out, written);
  }
  if (out.size < DeltaBytesMax()) return Status::kTooFewRows;
  std::vector<const ShardColumns*> shards;
  for (const ShardDeltas& worker : workers_) shards.push_back(&worker.encoded);
  return JoinDeltas({shards.data(), shards.size()}, slices, slice_ms_, out.data, written);
}

Status WindowTables::ApplyDeltas(Span<const std::uint8_t> bytes, const Cover& cover,
                                 std::int32_t* verdict) {
  ClearDeltas();
  batch_slices_.clear();
  std::vector<Accumulator> deltas;
  const RowGuard guard(form_, &deltas);
  *verdict = DecodeDeltas(bytes, slice_ms_, form_, &batch_slices_, &deltas);
  if (*verdict != layout::kDeltaStatusOk) {
    batch_slices_.clear();
    return Status::kOk;
  }
  // A slice whose deltas are all covered stays unchanged, closed or open.
  std::vector<const Accumulator*> wanted;
  std::vector<bool> is_wanted(batch_slices_.size());
  for (std::size_t i = 0; i < deltas.size(); i += form_.lines()) {
    if (cover.Has(deltas[i].account_id)) continue;
    wanted.push_back(&deltas[i]);
    is_wanted[deltas[i].spare] = true;
  }
  batch_tables_.assign(batch_slices_.size(), nullptr);
  Status status = Status::kOk;
  for (std::size_t i = 0; i < is_wanted.size() && status == Status::kOk; i++) {
    if (is_wanted[i]) status = SliceOf(batch_slices_[i], &batch_tables_[i]);
  }
  batch_slices_.clear();
  if (status != Status::kOk) return status;
  const auto table_of = [&](const Accumulator& delta) -> AccumulatorTable& {
    return (*batch_tables_[delta.spare])[owner_(delta.account_id)];
  };
  for (std::size_t i = 0; i < wanted.size(); i++) {
    if (i + kPrefetchAhead < wanted.size()) {
      const Accumulator& next = *wanted[i + kPrefetchAhead];
      table_of(next).PrefetchHome(TableHash(next.account_id));
    }
    status = table_of(*wanted[i]).Add(*wanted[i]);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status WindowTables::Reserve(std::int64_t slice_start, std::size_t rows) {
  if (!IsSlice(slice_start)) return Status::kBadArgument;
  if (rows == 0) return Status::kOk;
  Tables* tables = nullptr;
  Status status = SliceOf(slice_start, &tables);
  if (status != Status::kOk) return status;
  for (AccumulatorTable& table : *tables) {
    status = table.Reserve((rows + shards_ - 1) / shards_);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status WindowTables::Load(std::int64_t slice_start, const Accumulator* rows, std::size_t count) {
  if (!IsSlice(slice_start)) return Status::kBadArgument;
  const auto row_at = [rows, lines = form_.page_lines()](std::size_t i) -> const Accumulator& {
    return rows[i * lines];
  };
  for (std::size_t i = 0; i < count; i++) {
    if (row_at(i).count == 0 || !form_.AreSound(&row_at(i), true)) return Status::kBadArgument;
  }
  if (count == 0) return Status::kOk;
  Tables* tables = nullptr;
  Status status = SliceOf(slice_start, &tables);
  if (status != Status::kOk) return status;
  const auto table_of = [&](const Accumulator& row) -> AccumulatorTable& {
    return (*tables)[owner_(row.account_id)];
  };
  for (std::size_t i = 0; i < count; i++) {
    if (i + kPrefetchAhead < count) {
      const Accumulator& next = row_at(i + kPrefetchAhead);
      table_of(next).PrefetchHome(TableHash(next.account_id));
    }
    if (!form_.has_sketches()) {
      status = table_of(row_at(i)).Add(row_at(i));
    } else {
      std::vector<Accumulator> stored(form_.lines());
      const RowGuard guard(form_, &stored);
      form_.FromPage(&row_at(i), stored.data());
      status = table_of(row_at(i)).Add(stored[0]);
    }
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

std::size_t WindowTables::Copy(std::int64_t slice_start, std::uint64_t* cursor,
                               Span<Accumulator> into) const {
  const auto at = slices_.find(slice_start);
  if (at == slices_.end()) return 0;
  std::size_t count = 0;
  std::uint64_t first = 0;  // number of the table's first row
  for (const AccumulatorTable& table : at->second) {
    const std::uint64_t rows = table.key_count();
    if (*cursor < first + rows) {
      std::uint64_t row = *cursor - first;
      const std::size_t used = count * form_.page_lines();
      count += table.Copy(&row, {into.data + used, into.size - used});
      *cursor = first + row;
      if (row < rows) break;
    }
    first += rows;
  }
  return count;
}

std::size_t WindowTables::CopyRange(std::uint32_t range, std::int64_t slice_start,
                                    std::uint64_t* cursor, Span<Accumulator> into) const {
  const auto at = slices_.find(slice_start);
  if (at == slices_.end()) return 0;
  std::vector<const AccumulatorTable*> tables;
  for (const AccumulatorTable& table : at->second) tables.push_back(&table);
  return CopyRangeOf<AccumulatorTable>({tables.data(), tables.size()}, range, cursor, into);
}

const Accumulator* WindowTables::Row(std::int64_t slice_start, std::uint64_t account_id) const {
  const auto at = slices_.find(slice_start);
  return at == slices_.end() ? nullptr : at->second[owner_(account_id)].Row(account_id);
}

std::unique_ptr<SortedRun> WindowTables::Seal(std::int64_t slice_start) {
  std::vector<RowMemory> rows;
  std::vector<RowMemory> index;
  std::size_t count = 0;
  const auto at = slices_.find(slice_start);
  if (at != slices_.end()) {
    for (AccumulatorTable& table : at->second) {
      count += table.key_count();
      table.Release(&rows, &index);
    }
    slices_.erase(at);
    keys_expected_ = (count + shards_ - 1) / shards_;
    segments_kept_ = Keep(rows, segments_kept_, rows_pool_.get());
    buckets_kept_ = Keep(index, buckets_kept_, &index_pool_);
    for (RowMemory& memory : index) index_pool_.Return(std::move(memory));
    if (slice_start > newest_) newest_ = slice_start;
  }
  return std::make_unique<SortedRun>(SortedRun::Order::kByKey, std::move(rows), count, form_,
                                     rows_pool_);
}

std::size_t WindowTables::OpenSlices(Span<double> out) const {
  std::size_t count = 0;
  for (const auto& [start, tables] : slices_) {
    if (count == out.size) break;
    out.data[count++] = static_cast<double>(start);
  }
  return count;
}

std::size_t WindowTables::key_count() const {
  std::size_t count = 0;
  for (const auto& [start, tables] : slices_) {
    for (const AccumulatorTable& table : tables) count += table.key_count();
  }
  return count;
}

std::size_t WindowTables::bytes() const {
  std::size_t bytes = rows_pool_->bytes() + index_pool_.bytes();
  for (const auto& [start, tables] : slices_) {
    for (const AccumulatorTable& table : tables) bytes += table.bytes();
  }
  return bytes;
}

}  // namespace millrace::kernel
