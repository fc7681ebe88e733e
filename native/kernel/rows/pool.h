// Memory of large parts, ready before it is needed: what slices leave behind is zeroed, and a few
// fresh ones are touched, by a thread of its own, so that neither falls into the fold of a batch.
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

// Of memory of one size. From any thread.
class RowPool {
 public:
  // So many are kept ready once the first was taken.
  static constexpr std::size_t kAhead = 4;

  // What Take hands out that was given before: zeroed, or as it is, which needs no thread and
  // touches nothing ahead.
  enum class Hands { kZeroed, kAsIs };

  explicit RowPool(std::size_t rows, Hands hands = Hands::kZeroed) : rows_(rows), hands_(hands) {}
  ~RowPool();
  RowPool(const RowPool&) = delete;
  RowPool& operator=(const RowPool&) = delete;

  // Memory, fresh or given before.
  Status Take(RowMemory* out);
  // Memory that is not needed any more; what is of another size, or too many, is freed.
  void Give(RowMemory memory);
  // Keeps at most so many of what is given, from here on.
  void Limit(std::size_t count);
  // Keeps nothing, until memory is taken again.
  void Trim();

  std::size_t rows() const { return rows_; }
  // How many can be taken without fresh pages.
  std::size_t ready() const;
  std::size_t bytes() const { return ready() * rows_ * sizeof(Accumulator); }

 private:
  void Serve();
  void Start();
  void Free(std::unique_lock<std::mutex> lock);
  std::size_t KeptLocked() const { return clean_.size() + used_.size() + cleaning_; }

  const std::size_t rows_;
  const Hands hands_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable cleaned_;
  std::vector<RowMemory> clean_;
  std::vector<RowMemory> used_;
  std::size_t cleaning_ = 0;
  std::size_t limit_ = 0;
  std::size_t ahead_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // from the first memory that is taken or kept
};

}  // namespace millrace::kernel
