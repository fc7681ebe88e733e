// Pool of threads that share the items of one call. The calling thread takes part.
//
// A batch has several rounds: its rows are decoded, divided by shard and folded. Waking a thread
// takes longer than most pauses between them, so a thread spins through a pause that was short the
// last time.
//
// A round is a number of items. Each thread takes the next item until none is left, and Run returns
// when all items are done. A thread that starts late finds fewer items or none, so the caller waits
// only for items in progress: where no other thread gets a core, the caller does all items itself.
// Which thread does an item is not determined; the result of an item must not depend on it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace millrace::kernel {

class Workers {
 public:
  // Work of a round. The pause behind it is like the last one behind the same work.
  enum class Work : std::uint8_t { kDecode, kDivide, kFold };

  // Least number of rows of a batch that is worth waking threads for.
  static constexpr std::uint32_t kRowsMin = 2048;

  // `threads` includes the caller. The others start with the first round that has several items;
  // where the system refuses a thread, the pool stays smaller.
  explicit Workers(std::uint32_t threads) : threads_max_(threads) {}
  // Ends and joins the threads.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The pool of the calling thread for this number of shards, which all states and decoders of the
  // thread share: at most one thread a shard and a core, because more only add switches. It ends
  // with its last owner.
  static std::shared_ptr<Workers> Shared(std::uint32_t shards);
  // True when a batch of so many rows is worth waking threads for.
  static bool IsWorth(std::uint32_t rows) {
    return rows >= rows_min_.load(std::memory_order_relaxed);
  }
  // Replaces kRowsMin and the number of cores for the whole process, so that tests divide small
  // batches among several threads on any machine. `cores` 0 stands for those of the machine.
  static void Tune(std::uint32_t rows_min, std::uint32_t cores);

  // Calls each(0) … each(items - 1) once each. REQUIRES: called by one thread at a time, and not by
  // an item.
  void Run(std::uint32_t items, Work work, const std::function<void(std::uint32_t)>& each);
  // Like Run; the caller alone does the items of a batch that is not worth waking threads for.
  void RunRows(std::uint32_t rows, std::uint32_t items, Work work,
               const std::function<void(std::uint32_t)>& each) {
    if (IsWorth(rows)) return Run(items, work, each);
    for (std::uint32_t item = 0; item < items; item++) each(item);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kWorks = 3;
  static void* Serve(void* workers);
  void Start();
  bool Take(std::uint32_t* item);
  void DoItems();
  void Wait();
  void NotePause();

  static std::atomic<std::uint32_t> rows_min_;
  static std::atomic<std::uint32_t> cores_;

  std::uint32_t threads_max_;
  std::vector<pthread_t> threads_;

  // The round. Number of the round in the high half of the ticket, number of items that no thread
  // has taken in the low half. `each_` and `items_` are written before the ticket, and read only by
  // a thread that has taken an item: the round cannot end before that item is done.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::uint32_t> left_{0};    // items that are not done
  std::atomic<std::int64_t> spin_ns_{0};  // for which a thread spins behind the round
  const std::function<void(std::uint32_t)>* each_ = nullptr;
  std::uint32_t items_ = 0;

  // Used by the caller alone: the work of the last round, its end, and the last pause behind each
  // work.
  Work work_ = Work::kFold;
  Clock::time_point ended_at_{};
  std::chrono::nanoseconds pauses_[kWorks] = {};

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  std::uint32_t asleep_ = 0;  // threads that wait for begun_; guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
};

}  // namespace millrace::kernel
