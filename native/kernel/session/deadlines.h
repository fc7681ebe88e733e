// Which open sessions may have ended, without a timer a key: entries in buckets of event time. An
// entry tells no truth: its session may have grown, merged or gone since, which whoever asks finds
// out.
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
static_assert(sizeof(Deadline) == 24);  // as src/addon/reference/deadlines.ts counts them

class SessionDeadlines {
 public:
  // Beyond all times.
  static constexpr std::int64_t kForever = std::int64_t{1} << 62;

  // REQUIRES: 1 <= gap_ms.
  explicit SessionDeadlines(std::int64_t gap_ms);

  void Add(const Deadline& entry);
  // Takes out the entries whose deadline the frontier has reached, and puts them behind `due`.
  void Take(std::int64_t frontier, std::vector<Deadline>* due);

  // Entries in buckets that begin at or before the frontier.
  std::size_t DueAtMost(std::int64_t frontier) const;
  // The least deadline; kForever when there is none.
  std::int64_t least() const {
    return buckets_.empty() ? kForever : buckets_.begin()->second.least;
  }
  std::size_t bytes() const { return count_ * sizeof(Deadline); }

 private:
  struct Bucket {
    std::int64_t least = kForever;
    std::vector<Deadline> entries;
  };
  // A bucket met lately, at the place that the low bits of its number name.
  struct Known {
    std::int64_t number = 0;
    Bucket* bucket = nullptr;
  };
  static constexpr std::size_t kKnown = 256;

  void Forget(std::int64_t number);

  int grain_bits_ = 0;
  std::map<std::int64_t, Bucket> buckets_;  // none is empty
  std::array<Known, kKnown> known_{};
  std::size_t count_ = 0;
};

}  // namespace millrace::kernel
