// Schedule of a load: intents, their repeats and due times, all derived from one seed.
//
// Open model: intent i is due at i * interval, independent of the server. Repeats wait in a heap,
// so the full rate is reached after -within. The key and the body of an intent are functions of the
// seed and its number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <queue>
#include <string>
#include <vector>

namespace load {

enum class Pattern { kFresh, kZipf, kSingle };
enum class Kind : std::uint8_t { kFirst, kRepeat, kResend };

inline const char* NameOf(Kind kind) {
  return kind == Kind::kFirst ? "first" : kind == Kind::kRepeat ? "repeat" : "resend";
}

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSecond = 1'000'000'000;

// Counter-based generator from SplitMix64's finaliser: word `part` of number `index`.
inline std::uint64_t Mix(std::uint64_t seed, std::uint64_t index, std::uint64_t part) {
  std::uint64_t z = seed * 0xd1342543de82ef95ULL + index * 0x9e3779b97f4a7c15ULL +
                    part * 0x8cb92ba72f3d8dd7ULL + 0x632be59bd9b4e019ULL;
  for (int round = 0; round < 2; round++) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
  }
  return z;
}

inline double Unit(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

// Ranks 0 .. n-1 with probability proportional to 1 / (rank + 1)^exponent.
class Zipf {
 public:
  Zipf(std::size_t ranks, double exponent) : sums_(ranks) {
    double sum = 0;
    for (std::size_t i = 0; i < ranks; i++) {
      sum += std::pow(static_cast<double>(i + 1), -exponent);
      sums_[i] = sum;
    }
  }
  std::uint32_t RankOf(double unit) const {
    const auto at = std::upper_bound(sums_.begin(), sums_.end(), unit * sums_.back());
    return static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(
        at - sums_.begin(), static_cast<std::ptrdiff_t>(sums_.size()) - 1));
  }

 private:
  std::vector<double> sums_;
};

struct Intent {
  char key[37];
  std::int64_t account_id;
  std::int64_t amount_cents;
};

inline Intent IntentOf(std::uint64_t seed, std::uint32_t index, std::uint32_t accounts) {
  const std::uint64_t high = Mix(seed, index, 0);
  const std::uint64_t low = Mix(seed, index, 1);
  Intent intent{};
  std::snprintf(intent.key, sizeof intent.key, "%08x-%04x-4%03x-%04x-%012llx",
                static_cast<unsigned>(high >> 32), static_cast<unsigned>(high >> 16 & 0xffff),
                static_cast<unsigned>(high & 0xfff),
                static_cast<unsigned>(0x8000 | (low >> 48 & 0x3fff)),
                static_cast<unsigned long long>(low & 0xffffffffffffULL));
  const std::uint64_t choice = Mix(seed, index, 2);
  intent.account_id = 1 + static_cast<std::int64_t>((choice >> 32) % accounts);
  intent.amount_cents = 1 + static_cast<std::int64_t>((choice & 0xffffffff) % 1'000'000);
  return intent;
}

struct Send {
  std::int64_t due;  // ns after the start; start of the latency
  std::uint32_t intent;
  Kind kind;
  std::uint8_t failures;
};

struct PlanOptions {
  Pattern pattern = Pattern::kFresh;
  std::uint64_t seed = 1;
  double rate = 1000;  // requests per second, including repeats; 0: closed model
  double duration_s = 10;
  double repeat_share = 0.15;  // share of intents followed by 1 to 3 repeats of a hot key
  double repeat_within_s = 2;
  double zipf = 1.1;
  std::uint32_t keys = 20'000;  // size of the hot set, or of all keys with -pattern=zipf
};

class Plan {
 public:
  explicit Plan(const PlanOptions& options) : options_(options), hot_(options.keys, options.zipf) {
    const double mean = options.pattern == Pattern::kFresh ? 1 + 2 * options.repeat_share : 1;
    if (closed()) return;
    interval_ = 1e9 * mean / options.rate;
    slots_ = static_cast<std::uint32_t>(std::ceil(options.duration_s * 1e9 / interval_));
  }

  // Closed model: a request is due when a connection is free.
  bool closed() const { return options_.rate == 0; }

  // Takes the next send of a closed model; false after its duration.
  bool TakeNow(std::int64_t now, Send& send) {
    if (stopped_ || static_cast<double>(now) >= options_.duration_s * 1e9) return false;
    interval_ = static_cast<double>(now) / (next_ + 1.0);
    slots_ = next_ + 1;
    send = Take();
    slots_ = next_;
    send.due = now;
    return true;
  }

  // Upper bound of the intent numbers; in a closed model, of those so far.
  std::uint32_t intents() const {
    switch (options_.pattern) {
      case Pattern::kFresh:
        return slots_;
      case Pattern::kZipf:
        return options_.keys;
      case Pattern::kSingle:
        return 1;
    }
    return 0;
  }

  std::int64_t NextDue() const {
    return std::min(SlotDue(), waiting_.empty() ? kNever : waiting_.top().at);
  }
  bool done() const { return next_ >= slots_ && waiting_.empty(); }
  void Stop() {
    stopped_ = true;
    slots_ = std::min(slots_, next_);
  }

  // REQUIRES: !done()
  Send Take() {
    if (!waiting_.empty() && waiting_.top().at < SlotDue()) {
      const Send send = waiting_.top().send;
      waiting_.pop();
      return send;
    }
    const std::int64_t due = SlotDue();
    const std::uint32_t slot = next_++;
    if (options_.pattern == Pattern::kSingle) return {due, 0, Kind::kFirst, 0};
    if (options_.pattern == Pattern::kZipf) {
      return {due, hot_.RankOf(Unit(Mix(options_.seed, slot, 3))), Kind::kFirst, 0};
    }
    if (Unit(Mix(options_.seed, slot, 4)) < options_.repeat_share) PlanRepeats(slot, due);
    return {due, slot, Kind::kFirst, 0};
  }

  // Schedules a send without a final answer again; its latency still counts from the first due
  // time.
  void Resend(const Send& send, std::int64_t at) {
    const auto failures = static_cast<std::uint8_t>(std::min(200, send.failures + 1));
    waiting_.push({at, order_++, {send.due, send.intent, Kind::kResend, failures}});
  }

 private:
  struct Waiting {
    std::int64_t at;
    std::uint64_t order;
    Send send;
    bool operator>(const Waiting& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  std::int64_t SlotDue() const {
    return next_ < slots_ ? static_cast<std::int64_t>(next_ * interval_) : kNever;
  }

  // Schedules 1 to 3 repeats of an intent of the hot set, which advances every `keys` intents. If
  // the drawn intent was not sent yet, the current intent is repeated.
  void PlanRepeats(std::uint32_t slot, std::int64_t due) {
    const std::uint32_t set = slot - slot % options_.keys;
    const std::uint32_t rank = hot_.RankOf(Unit(Mix(options_.seed, slot, 5)));
    const std::uint32_t target = std::min(set + rank, slot);
    const std::uint64_t count = 1 + Mix(options_.seed, slot, 6) % 3;
    for (std::uint64_t i = 0; i < count; i++) {
      const double after = Unit(Mix(options_.seed, slot, 7 + i)) * options_.repeat_within_s * 1e9;
      const std::int64_t at = due + static_cast<std::int64_t>(after);
      if (static_cast<double>(at) >= options_.duration_s * 1e9) continue;
      waiting_.push({at, order_++, {at, target, Kind::kRepeat, 0}});
    }
  }

  PlanOptions options_;
  Zipf hot_;
  double interval_ = 0;
  std::uint32_t slots_ = 0;
  std::uint32_t next_ = 0;
  bool stopped_ = false;
  std::uint64_t order_ = 0;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
};

}  // namespace load
