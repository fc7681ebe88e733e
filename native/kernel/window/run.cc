#include "kernel/window/run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernel/invariant.h"
#include "kernel/window/inputs.h"

namespace millrace::kernel {
namespace {

// Radix sort: six digits of 11 bits cover a key.
constexpr int kDigitBits = 11;
constexpr std::size_t kDigits = 6;
constexpr std::size_t kBuckets = std::size_t{1} << kDigitBits;
// Below this number of rows a comparison sort is cheaper than passes over all buckets.
constexpr std::size_t kRadixRowsMin = 2048;
constexpr std::size_t kPrefetchAhead = 16;

std::size_t DigitOf(std::uint64_t key, std::size_t digit) {
  return (key >> (digit * kDigitBits)) & (kBuckets - 1);
}

}  // namespace

SortedRun::~SortedRun() {
  if (form_.has_sketches()) {
    ForEachRow([this](Accumulator* row) { form_.Free(row); });
  }
  if (pool_ == nullptr) return;
  for (RowMemory& memory : rows_) pool_->Return(std::move(memory));
}

void SortedRun::Sort() {
  SortRows();
  MILLRACE_INVARIANT(order_.size() == row_count_);
  MILLRACE_INVARIANT(std::is_sorted(order_.begin(), order_.end(),
                                    [](const Entry& a, const Entry& b) { return a.key < b.key; }));
}

void SortedRun::SortRows() {
  order_.clear();
  order_.reserve(row_count_);
  std::int64_t least = INT64_MAX;
  ForEachRow([&](const Accumulator* row) {
    order_.push_back({row->account_id, row});
    least = std::min(least, row->last_update_ts);
    block_bytes_ += form_.BlockBytes(row);
  });
  SortByKey();
  if (order_by_ == Order::kByKey) return;
  if (order_by_ == Order::kByStart) {
    SortStarts();
    return;
  }
  // Every end is its last event plus the gap, so the last event gives the same order.
  for (Entry& entry : order_) {
    entry.key =
        static_cast<std::uint64_t>(entry.row->last_update_ts) - static_cast<std::uint64_t>(least);
  }
  SortByKey();
}

// Sorts the sessions of each key by start. Nearly every key has one session.
void SortedRun::SortStarts() {
  const auto start = [](const Entry& entry) { return static_cast<std::int64_t>(entry.row->spare); };
  for (std::size_t from = 0; from < order_.size();) {
    std::size_t to = from + 1;
    while (to < order_.size() && order_[to].key == order_[from].key) to++;
    if (to - from > 1) {
      std::sort(order_.data() + from, order_.data() + to,
                [&](const Entry& a, const Entry& b) { return start(a) < start(b); });
    }
    from = to;
  }
}

// Stable sort by key.
void SortedRun::SortByKey() {
  if (order_.size() < kRadixRowsMin) {
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Entry& a, const Entry& b) { return a.key < b.key; });
  } else {
    SortByDigits();
  }
}

// Radix sort from the lowest digit to the highest; each pass is stable. A digit that all keys share
// needs no pass.
void SortedRun::SortByDigits() {
  std::vector<std::array<std::size_t, kBuckets>> counts(kDigits);
  for (const Entry& entry : order_) {
    for (std::size_t digit = 0; digit < kDigits; digit++) {
      counts[digit][DigitOf(entry.key, digit)]++;
    }
  }
  std::vector<Entry> other(order_.size());
  for (std::size_t digit = 0; digit < kDigits; digit++) {
    std::array<std::size_t, kBuckets>& place = counts[digit];
    if (place[DigitOf(order_[0].key, digit)] == order_.size()) continue;
    std::size_t sum = 0;
    for (std::size_t& bucket : place) sum += std::exchange(bucket, sum);
    for (const Entry& entry : order_) other[place[DigitOf(entry.key, digit)]++] = entry;
    order_.swap(other);
  }
}

std::size_t SortedRun::Read(std::size_t from, Span<Accumulator> into) const {
  if (from >= order_.size()) return 0;
  const std::size_t lines = form_.page_lines();
  const std::size_t count = std::min(into.size / lines, order_.size() - from);
  const Entry* const entries = order_.data() + from;
  for (std::size_t i = 0; i < count; i++) {
    if (i + kPrefetchAhead < count) __builtin_prefetch(entries[i + kPrefetchAhead].row);
    form_.ToPage(entries[i].row, into.data + i * lines);
  }
  return count;
}

const Accumulator* SortedRun::Row(std::uint64_t account_id) const {
  const auto at =
      std::lower_bound(order_.begin(), order_.end(), account_id,
                       [](const Entry& entry, std::uint64_t key) { return entry.key < key; });
  return at == order_.end() || at->key != account_id ? nullptr : at->row;
}

std::size_t SortedRun::bytes() const {
  std::size_t bytes = order_.capacity() * sizeof(Entry) + block_bytes_;
  for (const RowMemory& memory : rows_) bytes += memory.bytes();
  return bytes;
}

Status MergeRuns(const RowForm& form, Span<const Span<const Accumulator>> pages,
                 Span<std::uint32_t> cursors, Span<Accumulator> into, std::size_t* written) {
  const std::size_t lines = form.page_lines();
  *written = 0;
  const std::size_t runs = pages.size;
  if (runs > kMergeRunsMax || cursors.size < runs * 3) return Status::kBadArgument;
  std::vector<MergeInput> inputs;
  if (!ReadInputs(pages, cursors, lines, &inputs)) return Status::kBadArgument;
  // An input whose page is exhausted hides its next key, so the merge stops there.
  bool starved = false;
  LeastInput<std::uint64_t> least(runs);
  for (std::size_t i = 0; i < runs; i++) {
    starved = starved || inputs[i].starved();
    if (inputs[i].at != inputs[i].end) least.Add(inputs[i].at->account_id, i);
  }
  std::size_t count = 0;
  while ((count + 1) * lines <= into.size && !starved && !least.empty()) {
    const std::uint64_t key = least.first().key;
    Accumulator* const row = into.data + count++ * lines;
    bool is_first = true;
    while (!least.empty() && least.first().key == key) {
      MergeInput& input = inputs[least.first().input];
      if (input.at->count == 0) return Status::kBadArgument;
      if (is_first) {
        form.CopyPaged(input.at, row);
        row->spare = 0;
        is_first = false;
      } else {
        form.FoldPaged(input.at, row);
      }
      input.at += lines;
      if (input.at == input.end) {
        starved = starved || !input.last;
        least.Remove();
      } else if (input.at->account_id <= key) {
        return Status::kBadArgument;
      } else {
        least.Advance(input.at->account_id);
      }
    }
  }
  WriteCursors(inputs, pages, lines, cursors);
  *written = count;
  return Status::kOk;
}

}  // namespace millrace::kernel
