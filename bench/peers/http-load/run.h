// A run: passes due sends to a transport and accumulates the answers.
#pragma once

#include <sys/resource.h>

#include <cmath>
#include <deque>
#include <map>
#include <memory>

#include "plan.h"
#include "record.h"

namespace load {

inline std::int64_t MonotonicNs() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<std::int64_t>(at.tv_sec) * kSecond + at.tv_nsec;
}

inline double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& at) {
    return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct RunOptions {
  PlanOptions plan;
  std::uint32_t accounts = 1'000'000;
  double warmup_s = 0;    // sends due before it are not measured
  double give_up_s = 30;  // time after the last due time
  double fault_every_s = 0;  // time between faults, the first so long after the warm-up; 0: none
  double fault_for_s = 15;   // time after a fault whose sends are not calm
  std::string target;
};

// True for an answer that settles its intent; any other answer is retried with the same key.
inline bool IsFinal(int status) {
  return status < 500 && status != 408 && status != 425 && status != 429;
}

struct Reply {
  int status;  // HTTP status, or the HTTP counterpart of the gRPC status
  std::string_view body;
  int replayed;  // idempotency-replayed header: 1, 0, or -1 if absent
};

class Run {
 public:
  explicit Run(const RunOptions& options)
      : options_(options), plan_(options.plan), known_(plan_.intents()) {}

  Ledger& ledger() { return ledger_; }
  Plan& plan() { return plan_; }

  void Start() {
    timespec wall{};
    clock_gettime(CLOCK_REALTIME, &wall);
    const double wall_ms =
        static_cast<double>(wall.tv_sec) * 1e3 + static_cast<double>(wall.tv_nsec) / 1e6;
    started_wall_ms_ = wall_ms;
    ledger_.Line(
        "{\"type\":\"start\",\"format\":\"millrace-load-ledger-1\",\"target\":\"%s\",\"seed\":\"%"
        "llu\","
        "\"started_ms\":%.0f}\n",
        options_.target.c_str(), static_cast<unsigned long long>(options_.plan.seed), wall_ms);
    cpu_ = CpuSeconds();
    start_ = MonotonicNs();
  }

  std::int64_t Now() const { return MonotonicNs() - start_; }

  // Moves due sends into the queue of the transport. Records the number of unanswered sends every
  // second.
  void Release(std::int64_t now) {
    while (!plan_.done() && plan_.NextDue() <= now) {
      queue_.push_back(plan_.Take());
      if (queue_.back().kind != Kind::kResend) due_++;
    }
    const auto second = static_cast<std::size_t>(now / kSecond);
    while (backlog_.size() < second) backlog_.push_back(due_ - settled_);
  }

  // True if there is a send for a transport with a free connection.
  bool HasReady() {
    if (queue_.empty() && plan_.closed()) {
      Send send{};
      if (plan_.TakeNow(Now(), send)) {
        if (send.intent >= known_.size()) known_.resize(2 * send.intent + 1024);
        queue_.push_back(send);
        due_++;
      }
    }
    return !queue_.empty();
  }
  const Send& Front() const { return queue_.front(); }

  // Removes the front of the queue for sending and returns its intent. Records an intent in the
  // ledger before its first request.
  Intent Leave(std::int64_t now) {
    const Send send = queue_.front();
    queue_.pop_front();
    const Intent intent = IntentOf(options_.plan.seed, send.intent, options_.accounts);
    Known& known = known_[send.intent];
    if (!known.sent) {
      known.sent = true;
      intents_++;
      if (ledger_.on()) {
        ledger_.Line(
            "{\"type\":\"intent\",\"intent\":%u,\"key\":\"%s\",\"account_id\":%lld,\"amount_"
            "cents\":"
            "%lld,\"due_ms\":%.3f}\n",
            send.intent, intent.key, static_cast<long long>(intent.account_id),
            static_cast<long long>(intent.amount_cents), static_cast<double>(send.due) / 1e6);
      }
    }
    requests_++;
    if (Counts(send)) wait_.Record(now - send.due);
    return intent;
  }

  void Answered(const Send& send, std::int64_t left, const Reply& reply) {
    const std::int64_t now = Now();
    replies_++;
    statuses_[reply.status]++;
    const Digest digest = Sha256::Of(reply.body);
    if (ledger_.on()) {
      ledger_.Line(
          "{\"type\":\"reply\",\"intent\":%u,\"kind\":\"%s\",\"status\":%d,\"sha256\":\"%s\","
          "\"replayed\":%s,\"latency_ms\":%.3f}\n",
          send.intent, NameOf(send.kind), reply.status, Hex(digest).c_str(),
          reply.replayed < 0    ? "null"
          : reply.replayed == 0 ? "false"
                                : "true",
          static_cast<double>(now - send.due) / 1e6);
    }
    if (!IsFinal(reply.status)) {
      failures_++;
      plan_.Resend(send, now + Backoff(send));
      return;
    }
    settled_++;
    if (Counts(send)) {
      latency_.Record(now - send.due);
      if (IsCalm(send)) calm_.Record(now - send.due);
      service_.Record(now - left);
      last_ = now;
      counted_++;
      const auto second = static_cast<std::size_t>(send.due / kSecond);
      if (slowest_.size() <= second) slowest_.resize(second + 1);
      slowest_[second] = std::max(slowest_[second], static_cast<double>(now - send.due) / 1e6);
    }
    if (reply.replayed == 1) replayed_++;
    Known& known = known_[send.intent];
    if (reply.status < 200 || reply.status > 299) {
      refused_++;
      if (sample_.empty()) sample_ = std::string(reply.body.substr(0, 300));
    } else if (!known.acknowledged) {
      known.acknowledged = true;
      known.status = static_cast<std::uint16_t>(reply.status);
      known.answer = digest;
      acknowledged_intents_++;
    } else if (known.status != reply.status || known.answer != digest) {
      differing_++;
    }
  }

  void Failed(const Send& send, const char* why) {
    failures_++;
    ledger_.Line("{\"type\":\"failure\",\"intent\":%u,\"kind\":\"%s\",\"error\":\"%s\"}\n",
                 send.intent, NameOf(send.kind), why);
    plan_.Resend(send, Now() + Backoff(send));
  }

  bool Over(std::int64_t now, bool in_flight) const {
    const auto end =
        static_cast<std::int64_t>((options_.plan.duration_s + options_.give_up_s) * 1e9);
    return now > end || (plan_.done() && queue_.empty() && !in_flight);
  }

  // True if every intent is acknowledged and all answers to each key are equal.
  bool sound() const { return differing_ == 0 && acknowledged_intents_ == intents_; }

  bool Print() {
    const double cpu = CpuSeconds() - cpu_;
    const double seconds = static_cast<double>(Now()) / 1e9;
    const std::uint64_t unknown = intents_ - acknowledged_intents_;
    ledger_.Line(
        "{\"type\":\"end\",\"intents\":%llu,\"replies\":%llu,\"failures\":%llu,\"unknown\":%llu}\n",
        Long(intents_), Long(replies_), Long(failures_), Long(unknown));
    const bool good = ledger_.Close();
    std::printf(
        "{\"seconds\":%.3f,\"started_ms\":%.3f,\"intents\":%llu,\"requests\":%llu,\"replies\":%llu,"
        "\"counted\":%llu,\"per_second\":%.1f,\"acknowledged_intents\":%llu,\"replayed\":%llu,"
        "\"refused\":%llu,\"failures\":%llu,\"unknown\":%llu,\"differing\":%llu,\"cpu_us\":%.2f,",
        seconds, started_wall_ms_, Long(intents_), Long(requests_), Long(replies_), Long(counted_),
        static_cast<double>(counted_) /
            (std::max(static_cast<double>(last_) / 1e9, options_.plan.duration_s) -
             options_.warmup_s),
        Long(acknowledged_intents_), Long(replayed_), Long(refused_), Long(failures_),
        Long(unknown), Long(differing_),
        replies_ == 0 ? 0 : cpu / static_cast<double>(replies_) * 1e6);
    PrintHistogram("latency_ms", latency_);
    PrintHistogram("calm_ms", calm_);
    PrintHistogram("service_ms", service_);
    PrintHistogram("wait_ms", wait_);
    std::printf("\"statuses\":{");
    const char* comma = "";
    for (const auto& [status, count] : statuses_) {
      std::printf("%s\"%d\":%llu", comma, status, Long(count));
      comma = ",";
    }
    std::printf("},\"backlog\":[");
    for (std::size_t i = 0; i < backlog_.size(); i++) {
      std::printf("%s%llu", i == 0 ? "" : ",", Long(backlog_[i]));
    }
    std::printf("],\"slowest_ms\":[");
    for (std::size_t i = 0; i < slowest_.size(); i++) {
      std::printf("%s%.1f", i == 0 ? "" : ",", slowest_[i]);
    }
    std::printf("]}\n");
    if (!sample_.empty()) std::fprintf(stderr, "first refusal: %s\n", sample_.c_str());
    return good;
  }

 private:
  struct Known {
    bool sent = false;
    bool acknowledged = false;
    std::uint16_t status = 0;
    Digest answer{};
  };

  static unsigned long long Long(std::uint64_t value) { return value; }
  static std::int64_t Backoff(const Send& send) {
    return std::min<std::int64_t>(100'000'000LL << std::min<int>(send.failures, 6), 5 * kSecond);
  }
  bool Counts(const Send& send) const {
    return static_cast<double>(send.due) >= options_.warmup_s * 1e9;
  }
  bool IsCalm(const Send& send) const {
    if (options_.fault_every_s <= 0) return true;
    const double at_s = static_cast<double>(send.due) / 1e9 - options_.warmup_s;
    return at_s < options_.fault_every_s ||
           std::fmod(at_s, options_.fault_every_s) >= options_.fault_for_s;
  }
  static void PrintHistogram(const char* name, const Histogram& one) {
    std::printf("\"%s\":{\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f},", name,
                one.QuantileMs(0.5), one.QuantileMs(0.9), one.QuantileMs(0.99),
                one.QuantileMs(0.999), one.MaxMs());
  }

  RunOptions options_;
  Plan plan_;
  std::vector<Known> known_;
  std::deque<Send> queue_;
  Ledger ledger_;
  Histogram latency_;  // from the due time
  Histogram calm_;     // latency_ outside the time after a fault
  Histogram service_;  // from the write
  Histogram wait_;     // from the due time to the write
  std::map<int, std::uint64_t> statuses_;
  std::vector<std::uint64_t> backlog_;  // unanswered at the end of every second
  std::vector<double> slowest_;         // slowest of the sends due in every second
  std::string sample_;
  std::int64_t start_ = 0;
  std::int64_t last_ = 1;
  double started_wall_ms_ = 0;
  double cpu_ = 0;
  std::uint64_t due_ = 0;
  std::uint64_t settled_ = 0;
  std::uint64_t intents_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t replies_ = 0;
  std::uint64_t counted_ = 0;
  std::uint64_t acknowledged_intents_ = 0;
  std::uint64_t replayed_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t differing_ = 0;
};

// Sends requests; accepts a limited number at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  // Takes sends from the run while there is capacity.
  virtual void Pump(Run& run) = 0;
  virtual void OnEvent(Run& run, std::uint64_t what, std::uint32_t events) = 0;
  // Fails requests older than the timeout and reconnects closed connections.
  virtual void Check(Run& run) = 0;
  virtual bool in_flight() const = 0;
  virtual bool connected() const = 0;
};

}  // namespace load
