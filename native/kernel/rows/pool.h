// Pool of large memory blocks. A thread of its own zeroes released blocks and touches the pages of
// a few fresh ones. So neither cost falls into the fold of a batch.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/memory.h"

namespace millrace::kernel {

// Pool of RowMemory of one size. Thread-safe.
class RowPool {
 public:
  // Number of blocks that are kept ready after the first Acquire.
  static constexpr std::size_t kAhead = 4;

  // State in which Acquire returns a released block: zeroed, or as it was released. kAsIs needs no
  // thread and touches no fresh pages ahead.
  enum class Reuse { kZeroed, kAsIs };

  // Pool of arrays of so many lines of 64 bytes.
  explicit RowPool(std::size_t rows, Reuse reuse = Reuse::kZeroed) : rows_(rows), reuse_(reuse) {}
  ~RowPool();
  RowPool(const RowPool&) = delete;
  RowPool& operator=(const RowPool&) = delete;

  // Returns a released block, or a fresh one.
  Status Acquire(RowMemory* out);
  // Releases a block to the pool. A block of another size, or above the limit, is freed.
  void Return(RowMemory memory);
  // Sets the greatest number of released blocks to keep.
  void Limit(std::size_t count);
  // Frees all kept blocks and keeps none until the next Acquire or Limit.
  void Trim();

  std::size_t rows() const { return rows_; }
  // Number of blocks that Acquire can return without fresh pages, with those that are being zeroed.
  std::size_t ready() const;
  std::size_t bytes() const { return ready() * rows_ * sizeof(Accumulator); }

 private:
  void Serve();
  void Start();
  void Free(std::unique_lock<std::mutex> lock);
  std::size_t KeptLocked() const { return clean_.size() + used_.size() + cleaning_; }

  const std::size_t rows_;
  const Reuse reuse_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable cleaned_;
  std::vector<RowMemory> clean_;
  std::vector<RowMemory> used_;
  std::size_t cleaning_ = 0;
  std::size_t limit_ = 0;
  std::size_t ahead_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // started by the first Acquire or Return of a zeroing pool
};

}  // namespace millrace::kernel
