// Unit checks of the window kernels that need no corpus: the table against a map, admission at its
// borders, sorted runs, merges, and deltas encoded and decoded.
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "kernel/hash.h"
#include "kernel/shard/workers.h"
#include "kernel/window/admit.h"
#include "kernel/window/ahead.h"
#include "kernel/window/delta.h"
#include "kernel/window/run.h"
#include "kernel/window/tables.h"
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

// Batch of events with its records and room for admission, all of one partition.
struct World {
  explicit World(std::uint32_t rows)
      : record_buffer(test::EmptyRecords(rows, 0)),
        event_buffer(test::EmptyBatch<layout::EventBatch>(rows)),
        admitted_buffer(test::EmptyBatch<layout::AdmittedBatch>(rows)) {
    for (test::Buffer* buffer : {&record_buffer, &event_buffer}) {
      reinterpret_cast<layout::BatchHeader*>(buffer->data())->row_count = rows;
    }
    MILLRACE_CHECK(kernel::View(record_buffer.span(), &records) == Status::kOk);
    MILLRACE_CHECK(kernel::View(event_buffer.span(), &events) == Status::kOk);
    MILLRACE_CHECK(kernel::View(admitted_buffer.span(), &admitted) == Status::kOk);
    for (std::uint32_t row = 0; row < rows; row++) records.at.offset[row] = row;
  }
  void SeeAdmitted() {
    MILLRACE_CHECK(kernel::View(admitted_buffer.span(), &admitted) == Status::kOk);
  }
  test::Buffer record_buffer;
  test::Buffer event_buffer;
  test::Buffer admitted_buffer;
  Rows<layout::RecordBatch> records;
  Rows<layout::EventBatch> events;
  Rows<layout::AdmittedBatch> admitted;
};

struct Times {
  Times(double slice, double delay) {
    const double infinity = std::numeric_limits<double>::infinity();
    using Clock = layout::WindowClock;
    clock[Clock::kSliceMsAt / 8] = clock[Clock::kSlideMsAt / 8] = clock[Clock::kSizeMsAt / 8] =
        slice;
    clock[Clock::kDelayMsAt / 8] = delay;
    clock[Clock::kMaxFutureMsAt / 8] = -1;
    clock[Clock::kFrontierAt / 8] = clock[Clock::kMaxSeenAt / 8] = -infinity;
    clock[Clock::kNextEndAt / 8] = infinity;
    progress[layout::PartitionProgress::kLimitAt / 8] = infinity;
    progress[layout::PartitionProgress::kMaxSeenAt / 8] = -infinity;
  }
  double clock[layout::WindowClock::kBytes / 8] = {};
  double progress[layout::PartitionProgress::kBytes / 8] = {};
};

std::uint32_t Admit(Times* times, World* world, std::uint32_t from) {
  std::uint32_t taken = 0;
  MILLRACE_CHECK(kernel::Admit({times->clock, std::size(times->clock)},
                               {times->progress, std::size(times->progress)}, world->records,
                               world->events, from, &world->admitted, nullptr,
                               &taken) == Status::kOk);
  world->SeeAdmitted();
  return taken;
}

void AdmissionStopsWhereAWindowIsDue() {
  constexpr std::uint32_t kRows = 300;
  World world(kRows);
  for (std::uint32_t row = 0; row < kRows; row++) world.events.at.event_ts[row] = row;
  Times times(100, 10);
  MILLRACE_CHECK(Admit(&times, &world, 0) == 111);
  MILLRACE_CHECK(world.admitted.row_count == 111);
  MILLRACE_CHECK(world.admitted.at.slice[99] == 0 && world.admitted.at.slice[100] == 100);
  MILLRACE_CHECK(times.clock[layout::WindowClock::kFrontierAt / 8] == 100);
  MILLRACE_CHECK(Admit(&times, &world, 111) == 0);
  times.clock[layout::WindowClock::kNextEndAt / 8] = 200;
  world.events.at.event_ts[150] = 99;
  world.events.at.event_ts[151] = std::numeric_limits<std::int64_t>::max();
  world.events.at.event_ts[152] = std::numeric_limits<std::int64_t>::min();
  MILLRACE_CHECK(Admit(&times, &world, 111) == 100);
  MILLRACE_CHECK(world.admitted.row_count == 97);
  MILLRACE_CHECK(world.admitted.at.row[0] == 111);
  MILLRACE_CHECK(times.progress[layout::PartitionProgress::kDroppedLateAt / 8] == 1);
  MILLRACE_CHECK(times.progress[layout::PartitionProgress::kInvalidAt / 8] == 2);
}

void AdmissionRefusesInvalidRows() {
  World world(4);
  Times times(100, 10);
  std::uint32_t taken = 7;
  test::Buffer refused_buffer = test::EmptyBatch<layout::RefusedBatch>(4);
  Rows<layout::RefusedBatch> refused;
  MILLRACE_CHECK(kernel::View(refused_buffer.span(), &refused) == Status::kOk);
  const auto admit = [&](std::uint32_t from) {
    return kernel::Admit({times.clock, std::size(times.clock)},
                         {times.progress, std::size(times.progress)}, world.records, world.events,
                         from, &world.admitted, &refused, &taken);
  };
  world.records.at.partition[2] = 1;
  MILLRACE_CHECK(admit(0) == Status::kBadArgument && taken == 2);
  world.records.at.partition[2] = -1;
  MILLRACE_CHECK(admit(2) == Status::kBadArgument && taken == 0);
  world.records.at.partition[2] = 0;
  MILLRACE_CHECK(admit(1) == Status::kBadArgument);  // the offset was processed before
  MILLRACE_CHECK(admit(5) == Status::kBadArgument);
  MILLRACE_CHECK(admit(4) == Status::kOk && taken == 0);
  for (std::size_t cell = 0; cell <= layout::WindowClock::kFrontierAt / 8; cell++) {
    const double kept = times.clock[cell];
    times.clock[cell] = std::numeric_limits<double>::quiet_NaN();
    MILLRACE_CHECK(admit(4) == Status::kBadArgument);
    times.clock[cell] = kept;
  }
  for (std::size_t cell = 0; cell <= layout::PartitionProgress::kIdleAt / 8; cell++) {
    const double kept = times.progress[cell];
    times.progress[cell] = 0.5;
    MILLRACE_CHECK(admit(4) == Status::kBadArgument);
    times.progress[cell] = kept;
  }
  MILLRACE_CHECK(admit(4) == Status::kOk);
}

// Compares tables of several shards with a map and a plain fold over random batches.
void TablesEqualAMap(std::uint32_t shards) {
  constexpr std::uint32_t kRows = 5000;
  constexpr std::int64_t kSliceMs = 1000;
  Random random(shards);
  World world(kRows);
  kernel::WindowTables tables(kSliceMs, shards);
  kernel::WindowTables replayed(kSliceMs, shards + 2);
  std::map<std::int64_t, std::map<std::uint64_t, Accumulator>> expected;
  auto* header = reinterpret_cast<layout::BatchHeader*>(world.admitted_buffer.data());
  for (int batch = 0; batch < 6; batch++) {
    for (std::uint32_t row = 0; row < kRows; row++) {
      const std::uint64_t key =
          random.Below(10) < 3 ? random.Below(4) : random.Next() >> random.Below(60);
      const auto value = static_cast<std::int64_t>(random.Next());
      const auto slice = (static_cast<std::int64_t>(random.Below(6)) - 3) * kSliceMs;
      const std::int64_t event_ts = slice + static_cast<std::int64_t>(random.Below(kSliceMs));
      world.events.at.account_id[row] = key;
      world.events.at.value[row] = value;
      world.events.at.event_ts[row] = event_ts;
      world.admitted.at.row[row] = row;
      world.admitted.at.slice[row] = slice;
      auto& keys = expected[slice];
      const Accumulator one = kernel::OneEvent(key, value, event_ts);
      const auto [at, is_new] = keys.emplace(key, one);
      if (!is_new) kernel::Fold(one, &at->second);
    }
    header->row_count = kRows;
    world.SeeAdmitted();
    MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kOk);
    std::vector<std::uint8_t> bytes(tables.DeltaBytesMax());
    std::size_t written = 0;
    MILLRACE_CHECK(tables.EncodeDeltas({bytes.data(), bytes.size() - 1}, &written) ==
                   Status::kTooFewRows);
    MILLRACE_CHECK(tables.EncodeDeltas({bytes.data(), bytes.size()}, &written) == Status::kOk);
    std::int32_t verdict = -1;
    MILLRACE_CHECK(replayed.ApplyDeltas({bytes.data(), written}, {}, &verdict) == Status::kOk);
    MILLRACE_CHECK(verdict == layout::kDeltaStatusOk);
  }
  MILLRACE_CHECK(tables.slice_count() == expected.size());
  MILLRACE_CHECK(tables.key_count() == replayed.key_count());
  for (const auto& [slice, keys] : expected) {
    std::vector<Accumulator> copied(keys.size() + 1);
    std::uint64_t cursor = 0;
    MILLRACE_CHECK(tables.Copy(slice, &cursor, {copied.data(), 7}) == 7);
    MILLRACE_CHECK(tables.Copy(slice, &cursor, {copied.data() + 7, copied.size() - 7}) ==
                   keys.size() - 7);
    MILLRACE_CHECK(tables.Copy(slice, &cursor, {copied.data(), copied.size()}) == 0);
    kernel::WindowTables loaded(kSliceMs, 1);
    MILLRACE_CHECK(loaded.Load(slice, copied.data(), keys.size()) == Status::kOk);
    for (kernel::WindowTables* each : {&tables, &replayed, &loaded}) {
      const auto run = each->Seal(slice);
      run->Sort();
      MILLRACE_CHECK(run->row_count() == keys.size());
      std::vector<Accumulator> rows(keys.size());
      MILLRACE_CHECK(run->Read(0, {rows.data(), 5}) == 5);
      MILLRACE_CHECK(run->Read(5, {rows.data() + 5, rows.size() - 5}) == rows.size() - 5);
      MILLRACE_CHECK(run->Read(rows.size(), {rows.data(), 1}) == 0);
      std::size_t i = 0;
      for (const auto& [key, row] : keys) MILLRACE_CHECK(Same(rows[i++], row));
    }
  }
  MILLRACE_CHECK(tables.slice_count() == 0 && tables.bytes() == 0);
}

constexpr std::size_t kSegment = kernel::AccumulatorTable::kSegmentRows * sizeof(Accumulator);
constexpr std::size_t kBucket = kernel::kBucketBytes<kernel::KeyEntry>;

// Tables grow from the heap to mapped memory and beyond: every key is found afterwards.
void TablesGrowWithoutLoss() {
  constexpr std::uint64_t kKeys = 200'000;
  kernel::WindowTables tables(1, 1);
  std::vector<Accumulator> rows;
  // Half of the keys are small numbers, half have only high bits.
  for (std::uint64_t i = 0; i < kKeys; i++) {
    rows.push_back(kernel::OneEvent(i % 2 == 0 ? i : i << 46, static_cast<std::int64_t>(i), 5));
  }
  for (int round = 0; round < 2; round++) {
    MILLRACE_CHECK(tables.Load(5, rows.data(), rows.size()) == Status::kOk);
    MILLRACE_CHECK(tables.key_count() == kKeys);
  }
  // Two segments, two buckets of the index, and the buckets that the pool keeps ready.
  MILLRACE_CHECK(tables.bytes() >= 2 * kSegment + 2 * kBucket);
  MILLRACE_CHECK(tables.bytes() <= 2 * kSegment + (2 + kernel::RowPool::kAhead) * kBucket);
  std::size_t in_ranges = 0;
  std::vector<Accumulator> page(100);
  for (std::uint32_t range = 0; range < kernel::kCoverRanges; range++) {
    std::uint64_t cursor = 0;
    while (const std::size_t copied = tables.CopyRange(range, 5, &cursor, {page.data(), 100})) {
      for (std::size_t i = 0; i < copied; i++) {
        MILLRACE_CHECK(kernel::RangeOf(page[i].account_id) == range);
        MILLRACE_CHECK(Same(page[i], *tables.Row(5, page[i].account_id)));
      }
      in_ranges += copied;
    }
  }
  MILLRACE_CHECK(in_ranges == kKeys && tables.Row(5, 1U << 30) == nullptr);
  const auto run = tables.Seal(5);
  run->Sort();
  for (const Accumulator& row : rows) MILLRACE_CHECK(run->Row(row.account_id)->min == row.min);
  MILLRACE_CHECK(run->Row(kKeys + 1) == nullptr && run->Row(UINT64_MAX) == nullptr);
  std::vector<Accumulator> sorted(kKeys);
  MILLRACE_CHECK(run->Read(0, {sorted.data(), kKeys}) == kKeys);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kKeys; i++) {
    MILLRACE_CHECK(sorted[i].count == 2 &&
                   (i == 0 || sorted[i - 1].account_id < sorted[i].account_id));
    sum += sorted[i].sum_low;
  }
  MILLRACE_CHECK(sum == kKeys * (kKeys - 1));
}

// The memory of a dropped slice serves the next slice, which may have fewer rows: it holds no row
// of the dropped slice.
void SlicesShareMemory() {
  constexpr std::uint64_t kKeys = 300'000;
  kernel::WindowTables tables(1, 1);
  std::vector<Accumulator> rows;
  for (std::uint64_t i = 0; i < kKeys; i++) rows.push_back(kernel::OneEvent(i, 1, 0));
  for (std::int64_t slice = 0; slice < 6; slice++) {
    const std::size_t count = slice % 2 == 0 ? kKeys : kKeys / 2;
    MILLRACE_CHECK(tables.Load(slice, rows.data() + kKeys - count, count) == Status::kOk);
    MILLRACE_CHECK(tables.key_count() == count);
    const auto run = tables.Seal(slice);
    run->Sort();
    MILLRACE_CHECK(run->row_count() == count && run->bytes() >= count * sizeof(Accumulator));
    for (std::size_t i = 0; i < kKeys; i++) {
      const Accumulator* const row = run->Row(i);
      MILLRACE_CHECK(i < kKeys - count ? row == nullptr : Same(*row, rows[i]));
    }
    std::vector<Accumulator> read(count + 1);
    MILLRACE_CHECK(run->Read(0, {read.data(), read.size()}) == count);
    MILLRACE_CHECK(tables.bytes() <= 3 * kSegment + (4 + kernel::RowPool::kAhead) * kBucket);
  }
  // The memory of the last run is back in the pool.
  MILLRACE_CHECK(tables.bytes() >= 2 * kSegment + kBucket);
  tables.Trim();
  // The pool frees the block that its thread is zeroing afterwards.
  while (tables.bytes() != 0) std::this_thread::yield();
}

// Rows with only a head.
const kernel::RowForm kHeads;

// An index bucket at its greatest local depth whose keys all share its bits doubles.
void ABucketOfOneRangeDoubles() {
  constexpr std::size_t kKeys = 190'000;
  kernel::AccumulatorTable table;
  MILLRACE_CHECK(table.Open(std::size_t{100} << 20, {}, kHeads) == Status::kOk);
  const std::size_t bytes = table.bytes();
  std::vector<Accumulator> rows;
  for (std::uint64_t key = 0; rows.size() < kKeys; key++) {
    if (kernel::RangeOf(key) == 77) rows.push_back(kernel::OneEvent(key, 1, 0));
  }
  for (const Accumulator& row : rows) MILLRACE_CHECK(table.Add(row) == Status::kOk);
  MILLRACE_CHECK(table.bytes() - bytes == kBucket + kSegment);
  for (const Accumulator& row : rows) MILLRACE_CHECK(Same(*table.Row(row.account_id), row));
  std::vector<Accumulator> page(kKeys + 1);
  std::size_t copied = 0;
  std::uint64_t cursor = 0;
  MILLRACE_CHECK(table.CopyRange(77, &cursor, {page.data(), page.size()}, &copied));
  MILLRACE_CHECK(copied == kKeys);
  cursor = 0;
  MILLRACE_CHECK(table.CopyRange(78, &cursor, {page.data(), page.size()}, &copied));
  MILLRACE_CHECK(copied == kKeys && table.key_count() == kKeys);
}

// Rows that wrapped around the end of a bucket move with their keys when the bucket splits.
void ASplitMovesRowsAroundTheEnd() {
  constexpr std::size_t kPushed = 200;
  constexpr std::uint32_t kLastSlots = 50;
  constexpr std::size_t kKeys = kernel::KeyIndex::kBucketSlots * 4 / 5;
  kernel::AccumulatorTable table;
  MILLRACE_CHECK(table.Open(kKeys / 2, {}, kHeads) == Status::kOk);
  const std::size_t bytes = table.bytes();
  std::vector<Accumulator> rows;
  const std::uint64_t slots = kernel::KeyIndex::kBucketSlots;
  std::uint64_t key = 0;
  for (; rows.size() < kPushed; key++) {
    if ((kernel::TableHash(key) * slots) >> 32 >= slots - kLastSlots) {
      rows.push_back(kernel::OneEvent(key, 1, 0));
    }
  }
  while (rows.size() < kKeys) rows.push_back(kernel::OneEvent(key++, 1, 0));
  for (int round = 0; round < 2; round++) {
    for (const Accumulator& row : rows) MILLRACE_CHECK(table.Add(row) == Status::kOk);
    MILLRACE_CHECK(table.key_count() == kKeys);
  }
  MILLRACE_CHECK(table.bytes() >= bytes + kBucket);
}

// Keys with the same hash are distinguished by their rows, also after the index grew since the
// hint.
void KeysOfOneHashAreApart() {
  constexpr std::uint32_t kRows = 64;
  // Every low word has one high word for which both products cancel.
  std::uint32_t inverse = 0x85ebca77U;
  for (int i = 0; i < 5; i++) inverse *= 2 - 0x85ebca77U * inverse;
  std::vector<std::uint64_t> keys;
  const std::uint32_t wanted = kernel::TableHash(0);
  for (std::uint32_t low = 0; keys.size() < kRows; low++) {
    const std::uint32_t high = ((low * 0x9e3779b1U) * inverse) ^ (low >> 15);
    keys.push_back((std::uint64_t{high} << 32) | low);
    MILLRACE_CHECK(kernel::TableHash(keys.back()) == wanted);
  }
  World world(kRows * 2);
  auto* header = reinterpret_cast<layout::BatchHeader*>(world.admitted_buffer.data());
  for (std::uint32_t row = 0; row < kRows * 2; row++) {
    world.events.at.account_id[row] = keys[row % kRows];
    world.events.at.value[row] = row;
    world.admitted.at.row[row] = row;
  }
  header->row_count = kRows * 2;
  world.SeeAdmitted();
  kernel::WindowTables tables(10, 1);
  for (int batch = 0; batch < 2; batch++) {
    MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kOk);
  }
  MILLRACE_CHECK(tables.key_count() == kRows);
  for (std::uint32_t i = 0; i < kRows; i++) {
    const Accumulator* const row = tables.Row(0, keys[i]);
    MILLRACE_CHECK(row != nullptr && row->count == 4 && row->min == i && row->max == i + kRows);
  }
}

void TablesRefuseRowsThatAreNone() {
  World world(2);
  kernel::WindowTables tables(10, 2);
  auto* header = reinterpret_cast<layout::BatchHeader*>(world.admitted_buffer.data());
  header->row_count = 2;
  world.SeeAdmitted();
  world.admitted.at.row[1] = 1;
  MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kOk);
  world.admitted.at.row[1] = 2;
  MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kBadArgument);
  world.admitted.at.row[1] = 1;
  for (const std::int64_t slice :
       {std::int64_t{10}, std::int64_t{-10}, std::int64_t{3}, INT64_MAX, INT64_MIN}) {
    world.admitted.at.slice[1] = slice;
    MILLRACE_CHECK(tables.Accumulate(world.events, world.admitted) == Status::kBadArgument);
    MILLRACE_CHECK(tables.slice_count() == 1 && tables.delta_count() == 0);
  }
  Accumulator empty{};
  MILLRACE_CHECK(tables.Load(0, &empty, 1) == Status::kBadArgument);
  MILLRACE_CHECK(tables.Load(5, &empty, 0) == Status::kBadArgument);
}

// Merges runs in small pages into small pages, with a page ahead of each run or without.
std::vector<Accumulator> Merged(const std::vector<std::vector<Accumulator>>& sorted,
                                bool is_ahead) {
  constexpr std::size_t kPage = 16;
  const std::size_t runs = sorted.size();
  const std::size_t count = is_ahead ? 2 * runs : runs;
  std::vector<std::size_t> next(runs);
  std::vector<kernel::Span<const Accumulator>> pages(count);
  std::vector<std::uint32_t> cursors(count * 3);
  const auto load = [&](std::size_t i, std::size_t place) {
    const std::size_t rows = std::min(kPage, sorted[i].size() - next[i]);
    pages[place] = {sorted[i].data() + next[i], rows};
    next[i] += rows;
    cursors[place * 3] = 0;
    cursors[place * 3 + 1] = static_cast<std::uint32_t>(rows);
    cursors[place * 3 + 2] = next[i] == sorted[i].size() ? 1 : 0;
  };
  const auto is_read = [&](std::size_t place) {
    return cursors[place * 3] == cursors[place * 3 + 1] && cursors[place * 3 + 2] == 0;
  };
  std::vector<Accumulator> merged;
  for (;;) {
    for (std::size_t i = 0; i < runs; i++) {
      if (is_ahead && is_read(i)) {
        pages[i] = pages[runs + i];
        std::copy_n(cursors.data() + (runs + i) * 3, 3, cursors.data() + i * 3);
        std::fill_n(cursors.data() + (runs + i) * 3, 3, 0U);
      }
      if (is_read(i)) load(i, i);
      // Every second page ahead is not loaded in time.
      const bool has_more = cursors[i * 3 + 2] == 0 && next[i] % (2 * kPage) == kPage;
      if (is_ahead && has_more && is_read(runs + i)) load(i, runs + i);
    }
    Accumulator out[10];
    std::size_t written = 0;
    const auto merge = is_ahead ? kernel::MergeRunsAhead : kernel::MergeRuns;
    MILLRACE_CHECK(merge({}, {pages.data(), count}, {cursors.data(), cursors.size()},
                         {out, std::size(out)}, &written) == Status::kOk);
    merged.insert(merged.end(), out, out + written);
    bool more = written > 0;
    for (std::size_t i = 0; i < runs; i++) {
      more = more || (cursors[i * 3 + 2] == 0 && (!is_ahead || cursors[(runs + i) * 3 + 2] == 0));
    }
    if (!more) return merged;
  }
}

// Merges equal a map.
void MergesEqualAMap() {
  Random random(9);
  for (const std::size_t runs : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 10U, 11U, 100U}) {
    std::map<std::uint64_t, Accumulator> expected;
    std::vector<std::vector<Accumulator>> sorted(runs);
    for (auto& rows : sorted) {
      std::map<std::uint64_t, Accumulator> mine;
      for (std::uint64_t i = random.Below(200); i > 0; i--) {
        Accumulator row =
            kernel::OneEvent(random.Below(300) << 55, static_cast<std::int64_t>(random.Next()),
                             static_cast<std::int64_t>(random.Next()));
        row.count = random.Next() | 1;
        mine[row.account_id] = row;
      }
      for (const auto& [key, row] : mine) {
        rows.push_back(row);
        const auto [at, is_new] = expected.emplace(key, row);
        if (!is_new) kernel::Fold(row, &at->second);
      }
    }
    for (const bool is_ahead : {false, true}) {
      const std::vector<Accumulator> merged = Merged(sorted, is_ahead);
      MILLRACE_CHECK(merged.size() == expected.size());
      std::size_t i = 0;
      for (const auto& [key, row] : expected) MILLRACE_CHECK(Same(merged[i++], row));
    }
  }
  Accumulator rows[2] = {kernel::OneEvent(5, 0, 0), kernel::OneEvent(5, 0, 0)};
  const kernel::Span<const Accumulator> page = {rows, 2};
  std::uint32_t cursor[3] = {0, 2, 1};
  Accumulator out[4];
  std::size_t written = 0;
  MILLRACE_CHECK(kernel::MergeRuns({}, {&page, 1}, {cursor, 3}, {out, 4}, &written) ==
                 Status::kBadArgument);
  cursor[1] = 3;
  MILLRACE_CHECK(kernel::MergeRuns({}, {&page, 1}, {cursor, 3}, {out, 4}, &written) ==
                 Status::kBadArgument);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  AdmissionStopsWhereAWindowIsDue();
  AdmissionRefusesInvalidRows();
  // Threads on any machine.
  kernel::Workers::Tune(kernel::Workers::kRowsMin, 4);
  for (const std::uint32_t shards : {1U, 2U, 7U}) TablesEqualAMap(shards);
  TablesGrowWithoutLoss();
  ABucketOfOneRangeDoubles();
  ASplitMovesRowsAroundTheEnd();
  KeysOfOneHashAreApart();
  SlicesShareMemory();
  TablesRefuseRowsThatAreNone();
  MergesEqualAMap();
  std::printf("checks=12\n");
  return 0;
}
