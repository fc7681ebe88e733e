// Admitted rows of a batch, divided by the shard of their key.
//
// The batch is cut into chunks, which threads divide independently. The rows of a shard are those
// of the first chunk, then those of the second, and so on: they stay in order of arrival, whatever
// thread divides a chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/hash.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

class ShardRows {
 public:
  // Rows of a chunk, which fit into a first-level cache with their hashes.
  static constexpr std::uint32_t kChunkRows = 1024;

  struct Row {
    std::uint32_t row;    // number in the batch of events
    std::uint32_t slice;  // index into the slices of the chunk
    std::uint32_t hash;   // TableHash of the key
  };
  struct Chunk {
    std::uint32_t from = 0;
    std::uint32_t rows = 0;
    bool is_sound = true;
    std::int64_t least_ts = INT64_MAX;
    // Slices in order of their first rows; a slice may occur again.
    std::vector<std::int64_t> slices;
    // Number of each of them in the batch, assigned by the owner of the state.
    std::vector<std::uint32_t> numbers;
    // End of the rows of each shard, from the start of the chunk.
    std::vector<std::uint32_t> ends;
  };

  explicit ShardRows(std::uint32_t shards) : shards_(shards), owner_(shards) {}

  // Begins a batch and returns its number of chunks.
  std::uint32_t Begin(std::uint32_t rows);
  // Checks and divides the rows of a chunk. Unless the chunk is sound afterwards, a row is not in
  // the batch, or not in its slice. With a width of 0 there are no slices, and the times must be
  // within the limits of events. Thread-safe for different chunks.
  void Divide(std::uint32_t chunk, const Rows<layout::EventBatch>& events,
              const Rows<layout::AdmittedBatch>& admitted, std::int64_t slice_ms);

  // The chunks of the batch, once all are divided.
  std::uint32_t chunk_count() const { return chunk_count_; }
  Chunk& chunk(std::uint32_t number) { return chunks_[number]; }
  bool AreSound() const;
  // Least time of an event in the batch.
  std::int64_t least_ts() const;
  // Number of rows of a shard.
  std::uint32_t Count(std::uint32_t shard) const;
  // Calls each(row, numbers) for the rows of a shard in order of arrival; numbers[row.slice] is the
  // number of the row's slice.
  template <typename Each>
  void ForEach(std::uint32_t shard, const Each& each) const {
    for (std::uint32_t number = 0; number < chunk_count_; number++) {
      const Chunk& chunk = chunks_[number];
      const std::uint32_t* const numbers = chunk.numbers.data();
      const Row* const rows = rows_.data() + chunk.from;
      const Row* const end = rows + chunk.ends[shard];
      for (const Row* at = rows + Start(chunk, shard); at != end; at++) each(*at, numbers);
    }
  }

 private:
  static std::uint32_t Start(const Chunk& chunk, std::uint32_t shard) {
    return shard == 0 ? 0 : chunk.ends[shard - 1];
  }

  std::uint32_t shards_;
  ShardOwner owner_;
  std::uint32_t chunk_count_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<Row> rows_;
};

}  // namespace millrace::kernel
