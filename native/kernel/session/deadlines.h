// Calendar queue of session deadlines: entries in buckets of event time, without a timer for each
// key. Entries are hints: the session may have grown, merged or ended since, so verify each entry
// against its session.
//
// Invariant: every open session has an entry of its key and start whose deadline is not later than
// its end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace millrace::kernel {

struct Deadline {
  std::uint64_t account_id;
  std::int64_t start;
  std::int64_t deadline;
};
static_assert(sizeof(Deadline) == 24);  // src/addon/reference/deadlines.ts reports the same bytes

class SessionDeadlines {
 public:
  // Later than every time.
  static constexpr std::int64_t kForever = std::int64_t{1} << 62;

  // REQUIRES: 1 <= gap_ms.
  explicit SessionDeadlines(std::int64_t gap_ms);

  void Add(const Deadline& entry);
  // Removes the entries with deadline <= watermark and appends them to `due`.
  void PopDue(std::int64_t watermark, std::vector<Deadline>* due);

  // Upper bound of the due entries: all entries of buckets that hold a due entry.
  std::size_t DueAtMost(std::int64_t watermark) const;
  // Least deadline; kForever when there is no entry.
  std::int64_t least() const {
    return buckets_.empty() ? kForever : buckets_.begin()->second.least;
  }
  std::size_t bytes() const { return count_ * sizeof(Deadline); }

 private:
  struct Bucket {
    std::int64_t least = kForever;
    std::vector<Deadline> entries;
  };
  // Cache entry for a recently used bucket; the low bits of the bucket number select it.
  struct Known {
    std::int64_t number = 0;
    Bucket* bucket = nullptr;
  };
  static constexpr std::size_t kKnown = 256;

  void Forget(std::int64_t number);

  int grain_bits_ = 0;
  std::map<std::int64_t, Bucket> buckets_;  // no bucket is empty
  std::array<Known, kKnown> known_{};
  std::size_t count_ = 0;
};

}  // namespace millrace::kernel
