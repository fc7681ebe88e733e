// Open-addressing tables of accumulators, one for each window, on huge pages, with prefetching 16
// events ahead: the minimum work of a window engine.
#pragma once

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

namespace raw_window {

constexpr std::size_t kAhead = 16;

struct Event {
  std::uint64_t account_id;
  std::int64_t value;
  std::int64_t event_ts;
  std::int64_t window_start;
};

struct Slot {
  std::uint64_t account_id;
  std::uint64_t count;
  std::int64_t sum;
  std::int64_t min;
  std::int64_t max;
  std::int64_t last;
};
static_assert(sizeof(Slot) == 48);

[[noreturn]] inline void Fail(const char *what) {
  std::perror(what);
  std::exit(1);
}

inline double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) / 1e9;
}

struct Table {
  std::int64_t start;
  Slot *slots;
};

inline std::uint64_t Hash(std::uint64_t key) {
  key ^= key >> 32;
  key *= 0x9e3779b97f4a7c15U;
  return key ^ (key >> 29);
}

class Windows {
public:
  // Uses memory that was touched before, or fresh memory whose page faults the loop pays for.
  explicit Windows(std::size_t slots, bool is_fresh = false)
      : size_(slots), shift_(64 - std::countr_zero(slots)),
        is_fresh_(is_fresh) {}
  ~Windows() {
    for (const Table &table : tables_)
      munmap(table.slots, size_ * sizeof(Slot));
    for (Slot *spare : spare_)
      munmap(spare, size_ * sizeof(Slot));
  }
  Windows(const Windows &) = delete;
  Windows &operator=(const Windows &) = delete;
  Slot *Of(std::int64_t start) {
    for (const Table &table : tables_) {
      if (table.start == start)
        return table.slots;
    }
    Slot *slots = spare_.empty() ? Make() : spare_.back();
    if (!spare_.empty())
      spare_.pop_back();
    tables_.push_back({start, slots});
    return slots;
  }
  // Makes tables before the loop, which then pays for no page.
  void Reserve(int tables) {
    for (int i = 0; i < tables; i++)
      spare_.push_back(Make());
  }
  std::size_t At(std::uint64_t key) const {
    return (Hash(key) * 0xbf58476d1ce4e5b9U) >> shift_;
  }
  std::size_t mask() const { return size_ - 1; }
  const std::vector<Table> &tables() const { return tables_; }
  void Clear() {
    for (const Table &table : tables_)
      std::memset(table.slots, 0, size_ * sizeof(Slot));
  }

private:
  Slot *Make() const {
    void *at = mmap(nullptr, size_ * sizeof(Slot), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      Fail("mmap");
    madvise(at, size_ * sizeof(Slot), MADV_HUGEPAGE);
    if (!is_fresh_)
      std::memset(at, 0, size_ * sizeof(Slot));
    return static_cast<Slot *>(at);
  }

  std::size_t size_;
  int shift_;
  bool is_fresh_;
  std::vector<Table> tables_;
  std::vector<Slot *> spare_;
};

inline void Fold(const Event *events, std::size_t count, Windows *windows) {
  Slot *slots = nullptr;
  std::int64_t start = 0;
  const std::size_t mask = windows->mask();
  for (std::size_t i = 0; i < count; i++) {
    const Event &event = events[i];
    if (slots == nullptr || event.window_start != start) {
      start = event.window_start;
      slots = windows->Of(start);
    }
    if (i + kAhead < count) {
      const Event &next = events[i + kAhead];
      __builtin_prefetch(slots + windows->At(next.account_id), 1);
    }
    std::size_t at = windows->At(event.account_id);
    while (slots[at].count != 0 && slots[at].account_id != event.account_id)
      at = (at + 1) & mask;
    Slot &slot = slots[at];
    if (slot.count == 0) {
      slot = {event.account_id, 1,           event.value,
              event.value,      event.value, event.event_ts};
      continue;
    }
    slot.count++;
    slot.sum += event.value;
    slot.min = event.value < slot.min ? event.value : slot.min;
    slot.max = event.value > slot.max ? event.value : slot.max;
    slot.last = event.event_ts > slot.last ? event.event_ts : slot.last;
  }
}

// Totals of the tables: rows, their counts, and the sum of sum * (account_id + window_start).
struct Total {
  std::uint64_t rows = 0;
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
};

inline Total TotalOf(const Windows &windows) {
  Total total;
  for (const Table &table : windows.tables()) {
    for (std::size_t i = 0; i <= windows.mask(); i++) {
      const Slot &slot = table.slots[i];
      if (slot.count == 0)
        continue;
      total.rows++;
      total.count += slot.count;
      total.sum += static_cast<std::uint64_t>(slot.sum) *
                   (slot.account_id + static_cast<std::uint64_t>(table.start));
    }
  }
  return total;
}

} // namespace raw_window
