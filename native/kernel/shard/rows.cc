#include "kernel/shard/rows.h"

#include <algorithm>

#include "kernel/window/row.h"

namespace millrace::kernel {
namespace {

// Checks the rows of a chunk and gives each an index into the slices of the chunk. Recent slices
// are in a direct-mapped cache, selected by a few bits of their hash; a slice that was displaced
// occurs again in the list.
class SliceIndexes {
 public:
  SliceIndexes(const Rows<layout::EventBatch>& events, std::int64_t slice_ms,
               ShardRows::Chunk* chunk)
      : events_(events), width_(static_cast<std::uint64_t>(slice_ms)), chunk_(chunk) {}

  bool Check(std::uint32_t row, std::int64_t slice, std::uint32_t* index) {
    if (row >= events_.row_count) return false;
    if (chunk_->slices.empty() || slice != slice_) Enter(slice);
    *index = index_;
    const auto ahead =
        static_cast<std::uint64_t>(events_.at.event_ts[row]) - static_cast<std::uint64_t>(slice);
    return ahead < width_;
  }

 private:
  static constexpr std::size_t kRecent = 64;

  void Enter(std::int64_t slice) {
    slice_ = slice;
    const std::size_t at = TableHash(static_cast<std::uint64_t>(slice)) >> 26;
    std::vector<std::int64_t>& slices = chunk_->slices;
    if (recent_[at] == 0 || slices[recent_[at] - 1] != slice) {
      slices.push_back(slice);
      recent_[at] = static_cast<std::uint32_t>(slices.size());
    }
    index_ = recent_[at] - 1;
  }

  const Rows<layout::EventBatch>& events_;
  std::uint64_t width_;
  ShardRows::Chunk* chunk_;
  std::int64_t slice_ = 0;
  std::uint32_t index_ = 0;
  std::uint32_t recent_[kRecent] = {};  // index from 1; 0: none
};

}  // namespace

std::uint32_t ShardRows::Begin(std::uint32_t rows) {
  chunk_count_ = (rows + kChunkRows - 1) / kChunkRows;
  if (chunks_.size() < chunk_count_) chunks_.resize(chunk_count_);
  if (rows_.size() < rows) rows_.resize(rows);
  for (std::uint32_t number = 0; number < chunk_count_; number++) {
    Chunk& chunk = chunks_[number];
    chunk.from = number * kChunkRows;
    chunk.rows = std::min(kChunkRows, rows - chunk.from);
    chunk.is_sound = true;
    chunk.least_ts = INT64_MAX;
    chunk.slices.clear();
    chunk.numbers.clear();
  }
  return chunk_count_;
}

void ShardRows::Divide(std::uint32_t number, const Rows<layout::EventBatch>& events,
                       const Rows<layout::AdmittedBatch>& admitted, std::int64_t slice_ms) {
  Chunk& chunk = chunks_[number];
  const std::uint64_t* const account_id = events.at.account_id;
  // Each row number is read once, because the memory of the batch may be shared.
  std::uint32_t row[kChunkRows];
  std::uint32_t slice[kChunkRows];
  bool is_sound = true;
  if (slice_ms > 0) {
    SliceIndexes indexes(events, slice_ms, &chunk);
    for (std::uint32_t i = 0; i < chunk.rows && is_sound; i++) {
      row[i] = admitted.at.row[chunk.from + i];
      is_sound = indexes.Check(row[i], admitted.at.slice[chunk.from + i], &slice[i]);
    }
  } else {
    std::int64_t least = INT64_MAX;
    for (std::uint32_t i = 0; i < chunk.rows && is_sound; i++) {
      row[i] = admitted.at.row[chunk.from + i];
      slice[i] = 0;
      is_sound = row[i] < events.row_count;
      const std::int64_t event_ts = is_sound ? events.at.event_ts[row[i]] : kEventTsLimit;
      is_sound = event_ts >= -kEventTsLimit && event_ts < kEventTsLimit;
      least = std::min(least, event_ts);
    }
    chunk.least_ts = least;
  }
  chunk.is_sound = is_sound;
  if (!is_sound) return;

  // A counting sort by shard, which keeps the order of arrival.
  std::uint32_t owner[kChunkRows];
  for (std::uint32_t i = 0; i < chunk.rows; i++) owner[i] = owner_(account_id[row[i]]);
  std::vector<std::uint32_t>& ends = chunk.ends;
  ends.assign(shards_, 0);
  for (std::uint32_t i = 0; i < chunk.rows; i++) ends[owner[i]]++;
  std::uint32_t sum = 0;
  for (std::uint32_t& end : ends) {
    const std::uint32_t count = end;
    end = sum;
    sum += count;
  }
  Row* const rows = rows_.data() + chunk.from;
  for (std::uint32_t i = 0; i < chunk.rows; i++) {
    rows[ends[owner[i]]++] = {row[i], slice[i], TableHash(account_id[row[i]])};
  }
}

bool ShardRows::AreSound() const {
  return std::all_of(chunks_.begin(), chunks_.begin() + chunk_count_,
                     [](const Chunk& chunk) { return chunk.is_sound; });
}

std::int64_t ShardRows::least_ts() const {
  std::int64_t least = INT64_MAX;
  for (std::uint32_t number = 0; number < chunk_count_; number++) {
    least = std::min(least, chunks_[number].least_ts);
  }
  return least;
}

std::uint32_t ShardRows::Count(std::uint32_t shard) const {
  std::uint32_t count = 0;
  for (std::uint32_t number = 0; number < chunk_count_; number++) {
    count += chunks_[number].ends[shard] - Start(chunks_[number], shard);
  }
  return count;
}

}  // namespace millrace::kernel
