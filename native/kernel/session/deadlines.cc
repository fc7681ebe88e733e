#include "kernel/session/deadlines.h"

#include <algorithm>
#include <bit>

namespace millrace::kernel {
namespace {

// Least number of buckets in a gap. Every firing scans all entries of the bucket that holds the
// watermark.
constexpr std::uint64_t kBucketsAGap = 256;

}  // namespace

SessionDeadlines::SessionDeadlines(std::int64_t gap_ms) {
  const std::uint64_t grain = static_cast<std::uint64_t>(gap_ms) / kBucketsAGap;
  grain_bits_ = grain == 0 ? 0 : 63 - std::countl_zero(grain);
}

void SessionDeadlines::Add(const Deadline& entry) {
  const std::int64_t number = entry.deadline >> grain_bits_;
  Known& known = known_[static_cast<std::size_t>(number) % kKnown];
  if (known.bucket == nullptr || known.number != number) {
    known = {number, &buckets_[number]};
  }
  Bucket& bucket = *known.bucket;
  bucket.entries.push_back(entry);
  bucket.least = std::min(bucket.least, entry.deadline);
  count_++;
}

void SessionDeadlines::PopDue(std::int64_t watermark, std::vector<Deadline>* due) {
  while (!buckets_.empty() && buckets_.begin()->second.least <= watermark) {
    const auto first = buckets_.begin();
    Bucket& bucket = first->second;
    std::vector<Deadline>& entries = bucket.entries;
    const auto reached =
        std::partition(entries.begin(), entries.end(),
                       [watermark](const Deadline& entry) { return entry.deadline > watermark; });
    due->insert(due->end(), reached, entries.end());
    count_ -= static_cast<std::size_t>(entries.end() - reached);
    entries.erase(reached, entries.end());
    if (entries.empty()) {
      Forget(first->first);
      buckets_.erase(first);
      continue;
    }
    bucket.least = kForever;
    for (const Deadline& entry : entries) bucket.least = std::min(bucket.least, entry.deadline);
  }
}

std::size_t SessionDeadlines::DueAtMost(std::int64_t watermark) const {
  std::size_t count = 0;
  for (const auto& [number, bucket] : buckets_) {
    if (bucket.least > watermark) break;
    count += bucket.entries.size();
  }
  return count;
}

void SessionDeadlines::Forget(std::int64_t number) {
  Known& known = known_[static_cast<std::size_t>(number) % kKnown];
  if (known.number == number) known.bucket = nullptr;
}

}  // namespace millrace::kernel
