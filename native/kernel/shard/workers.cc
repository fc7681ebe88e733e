#include "kernel/shard/workers.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace millrace::kernel {
namespace {

constexpr std::uint64_t kItemMask = UINT32_MAX;
// Longest time for which a thread spins: about what waking a thread costs.
constexpr std::chrono::microseconds kSpinMax{20};
constexpr int kSpinsAClock = 16;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

template <typename Condition>
bool SpinUntil(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kSpinMax;
  do {
    for (int i = 0; i < kSpinsAClock; i++) {
      if (condition()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace

std::atomic<std::uint32_t> Workers::rows_min_{Workers::kRowsMin};
std::atomic<std::uint32_t> Workers::cores_{0};

void Workers::Tune(std::uint32_t rows_min, std::uint32_t cores) {
  rows_min_.store(rows_min, std::memory_order_relaxed);
  cores_.store(cores, std::memory_order_relaxed);
}

std::uint32_t Workers::ThreadsFor(std::uint32_t shards) {
  const std::uint32_t tuned = cores_.load(std::memory_order_relaxed);
  const std::uint32_t cores = tuned > 0 ? tuned : std::thread::hardware_concurrency();
  return std::min(shards, std::max(1U, cores));
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

// A plain pthread, because std::thread ends the process where the system refuses one.
void Workers::Start() {
  while (threads_.size() + 1 < threads_max_) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, Serve, this) != 0) {
      threads_max_ = static_cast<std::uint32_t>(threads_.size() + 1);
      return;
    }
    threads_.push_back(thread);
  }
}

void Workers::Run(std::uint32_t items, const std::function<void(std::uint32_t)>& each, Next next) {
  if (items > 1) Start();
  if (items <= 1 || threads_.empty()) {
    for (std::uint32_t item = 0; item < items; item++) each(item);
    return;
  }
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    each_ = &each;
    items_ = items;
    left_.store(items, std::memory_order_relaxed);
    is_soon_.store(next == Next::kSoon, std::memory_order_relaxed);
    const std::uint64_t round = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(round << 32 | items, std::memory_order_release);
    wakes = asleep_ > 0;
  }
  if (wakes) begun_.notify_all();
  DoItems();
  Wait();
}

void Workers::Wait() {
  const auto is_done = [this] { return left_.load(std::memory_order_acquire) == 0; };
  if (is_done() || SpinUntil(is_done)) return;
  std::unique_lock lock(mutex_);
  ended_.wait(lock, is_done);
}

// Takes the next item of the current round. The number of the round keeps a thread that was
// suspended in the middle from taking an item of a later round under the number of this one.
bool Workers::Take(std::uint32_t* item) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & kItemMask) != 0) {
    if (ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      *item = items_ - static_cast<std::uint32_t>(ticket & kItemMask);
      return true;
    }
  }
  return false;
}

void Workers::DoItems() {
  std::uint32_t item = 0;
  while (Take(&item)) {
    (*each_)(item);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    // The lock orders this notification behind the caller's test of its condition.
    const std::lock_guard lock(mutex_);
    ended_.notify_one();
  }
}

void* Workers::Serve(void* workers) {
  auto& self = *static_cast<Workers*>(workers);
  const auto has_items = [&self] {
    return (self.ticket_.load(std::memory_order_acquire) & kItemMask) != 0;
  };
  for (;;) {
    self.DoItems();
    if (self.is_soon_.load(std::memory_order_relaxed) && SpinUntil(has_items)) continue;
    std::unique_lock lock(self.mutex_);
    self.asleep_++;
    self.begun_.wait(lock, [&] { return self.stopping_ || has_items(); });
    self.asleep_--;
    if (self.stopping_) return nullptr;
  }
}

}  // namespace millrace::kernel
