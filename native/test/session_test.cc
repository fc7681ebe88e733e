// Unit checks of the session kernel that need no corpus: against a list of intervals, and over many
// keys while buckets split.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "kernel/session/merge.h"
#include "kernel/session/tables.h"
#include "kernel/shard/workers.h"
#include "test/input.h"
#include "test/planted.h"
#include "test/random.h"

namespace {

using namespace millrace;
using kernel::Accumulator;
using kernel::Rows;
using kernel::Status;
using test::Random;
using test::Same;

constexpr std::int64_t kGapMs = 50;

Accumulator OneSession(std::uint64_t key, std::int64_t value, std::int64_t event_ts) {
  Accumulator row = kernel::OneEvent(key, value, event_ts);
  row.spare = static_cast<std::uint64_t>(event_ts);
  return row;
}

// Model: a list of intervals for each key. An event joins all intervals less than a gap away.
class Intervals {
 public:
  void Add(Accumulator event) {
    std::vector<Accumulator>& mine = keys_[event.account_id];
    const std::int64_t ts = event.last_update_ts;
    std::int64_t start = ts;
    const auto near = std::partition(mine.begin(), mine.end(), [ts](const Accumulator& one) {
      return ts - one.last_update_ts >= kGapMs || kernel::StartOf(one) - ts >= kGapMs;
    });
    for (auto one = near; one != mine.end(); ++one) {
      start = std::min(start, kernel::StartOf(*one));
      kernel::Fold(*one, &event);
    }
    mine.erase(near, mine.end());
    event.spare = static_cast<std::uint64_t>(start);
    mine.push_back(event);
  }
  std::vector<Accumulator> Fire(std::int64_t watermark) {
    std::vector<Accumulator> fired;
    for (auto& [key, mine] : keys_) {
      const auto over = std::partition(mine.begin(), mine.end(), [=](const Accumulator& one) {
        return one.last_update_ts + kGapMs > watermark;
      });
      fired.insert(fired.end(), over, mine.end());
      mine.erase(over, mine.end());
    }
    std::sort(fired.begin(), fired.end(), [](const Accumulator& a, const Accumulator& b) {
      return a.last_update_ts != b.last_update_ts ? a.last_update_ts < b.last_update_ts
                                                  : a.account_id < b.account_id;
    });
    return fired;
  }
  std::size_t size() const {
    std::size_t size = 0;
    for (const auto& [key, mine] : keys_) size += mine.size();
    return size;
  }

 private:
  std::map<std::uint64_t, std::vector<Accumulator>> keys_;
};

struct World {
  explicit World(std::uint32_t rows)
      : event_buffer(test::EmptyBatch<layout::EventBatch>(rows)),
        admitted_buffer(test::EmptyBatch<layout::AdmittedBatch>(rows)) {
    for (test::Buffer* buffer : {&event_buffer, &admitted_buffer}) {
      reinterpret_cast<layout::BatchHeader*>(buffer->data())->row_count = rows;
    }
    MILLRACE_CHECK(kernel::View(event_buffer.span(), &events) == Status::kOk);
    MILLRACE_CHECK(kernel::View(admitted_buffer.span(), &admitted) == Status::kOk);
    for (std::uint32_t row = 0; row < rows; row++) admitted.at.row[row] = row;
  }
  test::Buffer event_buffer;
  test::Buffer admitted_buffer;
  Rows<layout::EventBatch> events;
  Rows<layout::AdmittedBatch> admitted;
};

std::vector<Accumulator> Fired(kernel::SessionTables* tables, std::int64_t watermark) {
  std::unique_ptr<kernel::SortedRun> run;
  MILLRACE_CHECK(tables->Fire(watermark, &run) == Status::kOk);
  run->Sort();
  std::vector<Accumulator> rows(run->row_count());
  MILLRACE_CHECK(run->Read(0, {rows.data(), rows.size()}) == rows.size());
  return rows;
}

void CheckSame(const std::vector<Accumulator>& rows, const std::vector<Accumulator>& expected) {
  MILLRACE_CHECK(rows.size() == expected.size());
  for (std::size_t i = 0; i < rows.size(); i++) MILLRACE_CHECK(Same(rows[i], expected[i]));
}

// Compares tables of several shards with the list over random batches. Other tables are rebuilt
// from the deltas alone, and one is loaded from a copy at the end.
void SessionsEqualIntervals(std::uint32_t shards) {
  constexpr std::uint32_t kRows = 3000;
  Random random(shards);
  World world(kRows);
  kernel::SessionTables tables(kGapMs, shards);
  kernel::SessionTables replayed(kGapMs, shards + 2);
  kernel::SessionTables loaded(kGapMs, 1);
  for (kernel::SessionTables* each : {&tables, &replayed, &loaded}) {
    MILLRACE_CHECK(each->Open() == Status::kOk);
  }
  Intervals expected;
  std::int64_t watermark = -1000;
  for (int batch = 0; batch < 12; batch++) {
    for (std::uint32_t row = 0; row < kRows; row++) {
      const std::uint64_t key = random.Below(10) < 3 ? random.Below(4) : random.Below(500) << 40;
      const auto value = static_cast<std::int64_t>(random.Next());
      const auto event_ts = watermark + static_cast<std::int64_t>(random.Below(4000));
      world.events.at.account_id[row] = key;
      world.events.at.value[row] = value;
      world.events.at.event_ts[row] = event_ts;
      expected.Add(OneSession(key, value, event_ts));
    }
    MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kOk);
    std::vector<std::uint8_t> bytes(tables.DeltaBytesMax());
    std::size_t written = 0;
    MILLRACE_CHECK(tables.EncodeDeltas({bytes.data(), bytes.size() - 1}, &written) ==
                   Status::kTooFewRows);
    MILLRACE_CHECK(tables.EncodeDeltas({bytes.data(), bytes.size()}, &written) == Status::kOk);
    std::int32_t verdict = -1;
    MILLRACE_CHECK(replayed.ApplyDeltas({bytes.data(), written}, {}, &verdict) == Status::kOk);
    MILLRACE_CHECK(verdict == layout::kDeltaStatusOk);
    MILLRACE_CHECK(tables.session_count() == expected.size());
    watermark += static_cast<std::int64_t>(random.Below(900));
    const std::vector<Accumulator> fired = Fired(&tables, watermark);
    CheckSame(Fired(&replayed, watermark), fired);
    CheckSame(fired, expected.Fire(watermark));
    MILLRACE_CHECK(tables.least_end() > watermark && replayed.least_end() > watermark);
  }
  MILLRACE_CHECK(tables.merged_count() > 0);
  std::vector<Accumulator> page(7);
  std::uint64_t cursor = 0;
  while (const std::size_t copied = tables.Copy(&cursor, {page.data(), page.size()})) {
    MILLRACE_CHECK(loaded.Load(page.data(), copied) == Status::kOk);
  }
  MILLRACE_CHECK(loaded.session_count() == tables.session_count());
  constexpr std::int64_t kAll = kernel::SessionDeadlines::kForever - 1;
  const std::vector<Accumulator> rest = expected.Fire(kAll);
  for (kernel::SessionTables* each : {&tables, &replayed, &loaded}) {
    CheckSame(Fired(each, kAll), rest);
    MILLRACE_CHECK(each->session_count() == 0);
    MILLRACE_CHECK(each->least_end() == kernel::SessionDeadlines::kForever);
  }
}

// Buckets split while sessions arrive; all are found, also those that remain after half have fired.
void ManySessionsAreFound() {
  constexpr std::uint64_t kKeys = 250'000;
  kernel::SessionTables tables(kGapMs, 1);
  MILLRACE_CHECK(tables.Open() == Status::kOk);
  std::vector<Accumulator> rows;
  for (std::uint64_t i = 0; i < kKeys; i++) {
    rows.push_back(OneSession(i * 0x10001U, 1, i % 2 == 0 ? 0 : 1000));
  }
  MILLRACE_CHECK(tables.Load(rows.data(), rows.size()) == Status::kOk);
  Accumulator found;
  std::size_t in_ranges = 0;
  std::vector<Accumulator> page(500);
  for (std::uint32_t range = 0; range < kernel::kCoverRanges; range++) {
    std::uint64_t cursor = 0;
    while (const std::size_t copied = tables.CopyRange(range, &cursor, {page.data(), 500})) {
      in_ranges += copied;
      for (std::size_t i = 0; i < copied; i++) {
        MILLRACE_CHECK(kernel::RangeOf(page[i].account_id) == range);
      }
    }
  }
  MILLRACE_CHECK(in_ranges == kKeys);
  MILLRACE_CHECK(Fired(&tables, 500).size() == kKeys / 2);
  for (std::uint64_t i = 0; i < kKeys; i++) {
    MILLRACE_CHECK(tables.Find(rows[i].account_id, {&found, 1}) == i % 2);
    MILLRACE_CHECK(i % 2 == 0 || Same(found, rows[i]));
  }
}

// Parts that are detached repeatedly merge into the sessions of one table.
void PartsMergeIntoSessions() {
  constexpr std::size_t kParts = 7;
  Random random(5);
  kernel::SessionTables whole(kGapMs, 2);
  MILLRACE_CHECK(whole.Open() == Status::kOk);
  std::vector<std::vector<Accumulator>> parts;
  {
    kernel::SessionTables tables(kGapMs, 3);
    MILLRACE_CHECK(tables.Open() == Status::kOk);
    for (std::size_t part = 0; part < kParts; part++) {
      std::vector<Accumulator> rows;
      for (int i = 0; i < 20'000; i++) {
        rows.push_back(
            OneSession(random.Below(3000) << 50, 1, static_cast<std::int64_t>(random.Below(6000))));
      }
      MILLRACE_CHECK(tables.Load(rows.data(), rows.size()) == Status::kOk);
      MILLRACE_CHECK(whole.Load(rows.data(), rows.size()) == Status::kOk);
      std::unique_ptr<kernel::SortedRun> run;
      MILLRACE_CHECK(tables.Detach(&run) == Status::kOk);
      MILLRACE_CHECK(tables.session_count() == 0);
      MILLRACE_CHECK(tables.least_end() == kernel::SessionDeadlines::kForever);
      run->Sort();
      parts.emplace_back(run->row_count());
      MILLRACE_CHECK(run->Read(0, {parts.back().data(), parts.back().size()}) == run->row_count());
    }
    tables.Trim();
  }
  std::vector<kernel::Span<const Accumulator>> pages;
  std::vector<std::uint32_t> cursors;
  for (const auto& part : parts) {
    pages.push_back({part.data(), part.size()});
    for (const std::size_t cell : {std::size_t{0}, part.size(), std::size_t{1}}) {
      cursors.push_back(static_cast<std::uint32_t>(cell));
    }
  }
  std::vector<Accumulator> merged(whole.session_count());
  Accumulator open = {};
  std::size_t count = 0;
  MILLRACE_CHECK(kernel::MergeSessions({}, kGapMs, {pages.data(), pages.size()},
                                       {cursors.data(), cursors.size()}, &open,
                                       {merged.data(), merged.size()}, &count) == Status::kOk);
  MILLRACE_CHECK(count == merged.size() && open.count == 0);
  std::unique_ptr<kernel::SortedRun> run;
  MILLRACE_CHECK(whole.Detach(&run) == Status::kOk);
  run->Sort();
  std::vector<Accumulator> expected(run->row_count());
  MILLRACE_CHECK(run->Read(0, {expected.data(), expected.size()}) == count);
  CheckSame(merged, expected);
}

// Most of many sessions end together: the fired and the remaining sessions equal those of a firing
// one by one.
void MostOfManyFire() {
  constexpr std::uint64_t kKeys = 200'000;
  for (const std::uint64_t one_in : {3U, 50U}) {
    kernel::SessionTables tables(kGapMs, 2);
    MILLRACE_CHECK(tables.Open() == Status::kOk);
    std::vector<Accumulator> rows;
    for (std::uint64_t i = 0; i < kKeys; i++) {
      const auto ts = static_cast<std::int64_t>(i % one_in == 0 ? 5000 + i % 700 : i % 900);
      rows.push_back(OneSession(i * 0x10001U, 1, ts));
    }
    MILLRACE_CHECK(tables.Load(rows.data(), rows.size()) == Status::kOk);
    const std::size_t open = (kKeys + one_in - 1) / one_in;
    std::vector<Accumulator> fired = Fired(&tables, 2000);
    MILLRACE_CHECK(fired.size() == kKeys - open && tables.session_count() == open);
    for (std::size_t i = 1; i < fired.size(); i++) {
      MILLRACE_CHECK(fired[i - 1].last_update_ts <= fired[i].last_update_ts);
    }
    MILLRACE_CHECK(tables.least_end() == 5000 + kGapMs);
    Accumulator found;
    for (std::uint64_t i = 0; i < kKeys; i++) {
      const bool is_open = i % one_in == 0;
      MILLRACE_CHECK(tables.Find(rows[i].account_id, {&found, 1}) == (is_open ? 1 : 0));
      MILLRACE_CHECK(!is_open || Same(found, rows[i]));
    }
    MILLRACE_CHECK(Fired(&tables, 10'000).size() == open && tables.session_count() == 0);
  }
}

void SessionsRefuseRowsThatAreNone() {
  World world(2);
  kernel::SessionTables tables(kGapMs, 2);
  MILLRACE_CHECK(tables.Open() == Status::kOk);
  MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kOk);
  world.admitted.at.row[1] = 2;
  MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kBadArgument);
  world.admitted.at.row[1] = 1;
  for (const std::int64_t ts : {INT64_MIN, INT64_MAX, kernel::kEventTsLimit}) {
    world.events.at.event_ts[1] = ts;
    MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kBadArgument);
    Accumulator row = OneSession(9, 1, 0);
    row.last_update_ts = ts;
    MILLRACE_CHECK(tables.Load(&row, 1) == Status::kBadArgument);
  }
  Accumulator empty = OneSession(9, 1, 0);
  empty.count = 0;
  MILLRACE_CHECK(tables.Load(&empty, 1) == Status::kBadArgument);
  MILLRACE_CHECK(tables.session_count() == 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  // Threads on any machine.
  kernel::Workers::Tune(kernel::Workers::kRowsMin, 4);
  for (const std::uint32_t shards : {1U, 2U, 7U}) SessionsEqualIntervals(shards);
  ManySessionsAreFound();
  PartsMergeIntoSessions();
  MostOfManyFire();
  SessionsRefuseRowsThatAreNone();
  std::printf("checks=5\n");
  return 0;
}
