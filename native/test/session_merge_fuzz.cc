// Fuzzes the merge of sessions with hostile rows and cursors, and with valid rows. Input: u8 mode,
// u8 gap, u8 rows of a page, u8 room, then rows of 6 bytes: run, key, i16 start, u16 length. Mode
// even: rows, cursors and the open row are used as they are. Mode odd: runs are sorted and without
// duplicates, and must merge, page by page, into the result of a list of intervals.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "kernel/session/merge.h"
#include "kernel/session/table.h"
#include "test/input.h"
#include "test/random.h"

namespace {

using namespace millrace;
using kernel::Accumulator;
using kernel::StartOf;
using kernel::Status;

constexpr std::size_t kRuns = 4;
using Runs = std::array<std::vector<Accumulator>, kRuns>;

struct Pages {
  explicit Pages(const Runs& runs, std::size_t page_rows) : page_rows(page_rows) {
    for (std::size_t i = 0; i < kRuns; i++) Put(runs, i);
  }
  void Put(const Runs& runs, std::size_t i) {
    const std::size_t rows = std::min(page_rows, runs[i].size() - next[i]);
    pages[i] = {runs[i].data() + next[i], rows};
    next[i] += rows;
    cursors[i * 3] = 0;
    cursors[i * 3 + 1] = static_cast<std::uint32_t>(rows);
    cursors[i * 3 + 2] = next[i] == runs[i].size() ? 1 : 0;
  }
  bool IsDone(std::size_t i) const { return cursors[i * 3] == cursors[i * 3 + 1]; }
  std::size_t page_rows;
  std::array<std::size_t, kRuns> next{};
  std::array<millrace::kernel::Span<const Accumulator>, kRuns> pages{};
  std::array<std::uint32_t, kRuns * 3> cursors{};
};

std::vector<Accumulator> Merged(const Runs& runs, std::int64_t gap_ms, std::size_t page_rows,
                                std::size_t room) {
  Pages pages(runs, page_rows);
  Accumulator open = {};
  std::vector<Accumulator> rows;
  std::vector<Accumulator> into(room);
  for (;;) {
    std::size_t written = 0;
    MILLRACE_CHECK(kernel::MergeSessions({}, gap_ms, {pages.pages.data(), kRuns},
                                         {pages.cursors.data(), kRuns * 3}, &open,
                                         {into.data(), room}, &written) == Status::kOk);
    rows.insert(rows.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(written));
    bool is_more = open.count != 0;
    for (std::size_t i = 0; i < kRuns; i++) {
      if (pages.IsDone(i) && pages.cursors[i * 3 + 2] == 0) pages.Put(runs, i);
      is_more = is_more || !pages.IsDone(i);
    }
    if (!is_more) return rows;
  }
}

// Expected result: joins sessions of a key until none are less than a gap apart.
std::vector<Accumulator> Joined(const Runs& runs, std::int64_t gap_ms) {
  std::map<std::uint64_t, std::vector<Accumulator>> keys;
  for (const auto& run : runs) {
    for (Accumulator row : run) {
      std::vector<Accumulator>& mine = keys[row.account_id];
      for (std::size_t i = 0; i < mine.size();) {
        const bool is_near = StartOf(row) - mine[i].last_update_ts < gap_ms &&
                             StartOf(mine[i]) - row.last_update_ts < gap_ms;
        if (!is_near) {
          i++;
          continue;
        }
        const std::int64_t start = std::min(StartOf(row), StartOf(mine[i]));
        kernel::Fold(mine[i], &row);
        row.spare = static_cast<std::uint64_t>(start);
        mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(i));
        i = 0;
      }
      mine.push_back(row);
    }
  }
  std::vector<Accumulator> rows;
  for (auto& [key, mine] : keys) {
    std::sort(mine.begin(), mine.end(),
              [](const auto& a, const auto& b) { return StartOf(a) < StartOf(b); });
    rows.insert(rows.end(), mine.begin(), mine.end());
  }
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const bool right = input.Take<std::uint8_t>() % 2 == 1;
  const std::int64_t gap_ms = 1 + input.Take<std::uint8_t>() % 32;
  const std::size_t page_rows = std::size_t{1} + input.Take<std::uint8_t>() % 4;
  const std::size_t room = std::size_t{1} + input.Take<std::uint8_t>() % 4;
  Runs runs;
  for (std::size_t left = size > 4 ? (size - 4) / 6 : 0; left > 0; left--) {
    auto& run = runs[input.Take<std::uint8_t>() % kRuns];
    const std::uint64_t key = input.Take<std::uint8_t>();
    const std::int64_t start = input.Take<std::int16_t>();
    const std::int64_t length = input.Take<std::uint16_t>();
    Accumulator row = kernel::OneEvent(right ? key % 8 : key, start, start);
    row.spare = static_cast<std::uint64_t>(start);
    row.last_update_ts = right ? start + length % 16 : length - 8;
    if (!right) row.count = key % 5;
    run.push_back(row);
  }
  if (!right) {
    Pages pages(runs, SIZE_MAX);
    Accumulator open = {};
    if (!runs[3].empty()) {
      open = runs[3].back();
      pages.cursors[room] = static_cast<std::uint32_t>(open.account_id - 100);
    }
    std::vector<Accumulator> into(room);
    std::size_t written = 0;
    const Status status = kernel::MergeSessions({}, gap_ms, {pages.pages.data(), kRuns},
                                                {pages.cursors.data(), kRuns * 3}, &open,
                                                {into.data(), room}, &written);
    MILLRACE_CHECK(status == Status::kOk || status == Status::kBadArgument);
    if (status != Status::kOk) return 0;
    MILLRACE_CHECK(written <= room);
    for (std::size_t i = 0; i < written; i++) MILLRACE_CHECK(kernel::IsSession(into[i]));
    return 0;
  }
  for (auto& run : runs) {
    const auto before = [](const Accumulator& a, const Accumulator& b) {
      return a.account_id != b.account_id ? a.account_id < b.account_id : StartOf(a) < StartOf(b);
    };
    const auto same = [](const Accumulator& a, const Accumulator& b) {
      return a.account_id == b.account_id && StartOf(a) == StartOf(b);
    };
    std::stable_sort(run.begin(), run.end(), before);
    run.erase(std::unique(run.begin(), run.end(), same), run.end());
  }
  const std::vector<Accumulator> merged = Merged(runs, gap_ms, page_rows, room);
  const std::vector<Accumulator> expected = Joined(runs, gap_ms);
  MILLRACE_CHECK(merged.size() == expected.size());
  for (std::size_t i = 0; i < merged.size(); i++) {
    MILLRACE_CHECK(test::Same(merged[i], expected[i]));
  }
  return 0;
}
