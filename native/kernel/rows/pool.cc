#include "kernel/rows/pool.h"

#include <cstring>
#include <utility>

namespace millrace::kernel {
namespace {

constexpr std::size_t kPageBytes = 4096;

// Writes to every page: fresh memory is zero, but its pages are allocated on first write.
void Touch(const RowMemory& memory) {
  auto* const bytes = reinterpret_cast<volatile std::uint8_t*>(memory.rows());
  for (std::size_t at = 0; at < memory.bytes(); at += kPageBytes) bytes[at] = 0;
}

void Zero(const RowMemory& memory) {
  std::memset(static_cast<void*>(memory.rows()), 0, memory.bytes());
}

}  // namespace

RowPool::~RowPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RowPool::Start() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
  changed_.notify_one();
}

Status RowPool::Acquire(RowMemory* out) {
  std::unique_lock lock(mutex_);
  if (reuse_ == Reuse::kZeroed) {
    ahead_ = kAhead;
    Start();
  }
  // Waiting for a block that the thread is zeroing is faster than touching fresh pages.
  cleaned_.wait(lock, [this] { return cleaning_ == 0 || !clean_.empty() || !used_.empty(); });
  if (!clean_.empty()) {
    *out = std::move(clean_.back());
    clean_.pop_back();
    return Status::kOk;
  }
  if (used_.empty()) {
    lock.unlock();
    return out->Allocate(rows_);
  }
  *out = std::move(used_.back());
  used_.pop_back();
  lock.unlock();
  if (reuse_ == Reuse::kZeroed) Zero(*out);
  return Status::kOk;
}

void RowPool::Return(RowMemory memory) {
  if (memory.size() != rows_) return;
  const std::lock_guard lock(mutex_);
  if (KeptLocked() >= limit_) return;
  memory.Hold(rows_);
  used_.push_back(std::move(memory));
  if (reuse_ == Reuse::kZeroed) Start();
}

void RowPool::Limit(std::size_t count) {
  std::unique_lock lock(mutex_);
  limit_ = count;
  Free(std::move(lock));
}

void RowPool::Trim() {
  std::unique_lock lock(mutex_);
  limit_ = 0;
  ahead_ = 0;
  Free(std::move(lock));
}

// Frees the blocks above the limit, after it has released the lock.
void RowPool::Free(std::unique_lock<std::mutex> lock) {
  std::vector<RowMemory> freed;
  for (std::vector<RowMemory>* kept : {&used_, &clean_}) {
    while (!kept->empty() && KeptLocked() > std::max(limit_, ahead_)) {
      freed.push_back(std::move(kept->back()));
      kept->pop_back();
    }
  }
  lock.unlock();
}

std::size_t RowPool::ready() const {
  const std::lock_guard lock(mutex_);
  return KeptLocked();
}

void RowPool::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !used_.empty() || clean_.size() < ahead_; });
    if (stopping_) return;
    RowMemory memory;
    if (!used_.empty()) {
      memory = std::move(used_.back());
      used_.pop_back();
    }
    cleaning_++;
    lock.unlock();
    if (memory.size() > 0) {
      Zero(memory);
    } else if (memory.Allocate(rows_) == Status::kOk) {
      Touch(memory);
    }
    lock.lock();
    cleaning_--;
    if (memory.size() == 0) {
      ahead_ = 0;  // the next Acquire allocates and reports kNoMemory
    } else if (KeptLocked() < std::max(limit_, ahead_)) {
      clean_.push_back(std::move(memory));
    } else {
      memory.Free();
    }
    cleaned_.notify_all();
  }
}

}  // namespace millrace::kernel
