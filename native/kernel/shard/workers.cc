#include "kernel/shard/workers.h"

#include <algorithm>
#include <map>
#include <thread>

namespace millrace::kernel {
namespace {

constexpr std::uint64_t kItemMask = UINT32_MAX;
using std::chrono::nanoseconds;

// Longest pause that a thread spins through. Spins of 100 us were measured: they cost CPU and made
// the loop slower.
constexpr nanoseconds kPauseMax = std::chrono::microseconds(20);
// Longest time for which the caller spins at the end of a round.
constexpr nanoseconds kWaitMax = std::chrono::microseconds(20);
constexpr int kSpinsAClock = 16;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

template <typename Condition>
bool SpinUntil(nanoseconds longest, const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + longest;
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

std::shared_ptr<Workers> Workers::Shared(std::uint32_t shards) {
  thread_local std::map<std::uint32_t, std::weak_ptr<Workers>> pools;
  const std::uint32_t tuned = cores_.load(std::memory_order_relaxed);
  const std::uint32_t cores = tuned > 0 ? tuned : std::thread::hardware_concurrency();
  const std::uint32_t threads = std::min(shards, std::max(1U, cores));
  std::shared_ptr<Workers> pool = pools[threads].lock();
  if (pool == nullptr) {
    pool = std::make_shared<Workers>(threads);
    pools[threads] = pool;
  }
  return pool;
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

// Learns from the pause before this round.
void Workers::NotePause() {
  if (ended_at_ == Clock::time_point{}) return;
  pauses_[static_cast<std::size_t>(work_)] = Clock::now() - ended_at_;
}

void Workers::Run(std::uint32_t items, Work work, const std::function<void(std::uint32_t)>& each) {
  if (items > 1) Start();
  if (items <= 1 || threads_.empty()) {
    for (std::uint32_t item = 0; item < items; item++) each(item);
    return;
  }
  NotePause();
  const nanoseconds pause = pauses_[static_cast<std::size_t>(work)];
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    each_ = &each;
    items_ = items;
    left_.store(items, std::memory_order_relaxed);
    // Twice the pause, because no two are alike.
    spin_ns_.store(pause > kPauseMax ? 0 : 2 * pause.count(), std::memory_order_relaxed);
    const std::uint64_t round = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(round << 32 | items, std::memory_order_release);
    wakes = asleep_ > 0;
  }
  if (wakes) begun_.notify_all();
  DoItems();
  Wait();
  work_ = work;
  ended_at_ = Clock::now();
}

void Workers::Wait() {
  const auto is_done = [this] { return left_.load(std::memory_order_acquire) == 0; };
  if (is_done() || SpinUntil(kWaitMax, is_done)) return;
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
    const nanoseconds spin{self.spin_ns_.load(std::memory_order_relaxed)};
    if (spin.count() > 0 && SpinUntil(spin, has_items)) continue;
    std::unique_lock lock(self.mutex_);
    self.asleep_++;
    self.begun_.wait(lock, [&] { return self.stopping_ || has_items(); });
    self.asleep_--;
    if (self.stopping_) return nullptr;
  }
}

}  // namespace millrace::kernel
