// Unit checks of sketches in tables: a row owns its blocks while it moves through folds, merges,
// firings and runs. The address sanitizer reports a block that is used too late or never freed.
#include "kernel/rows/sketch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "kernel/session/merge.h"
#include "kernel/session/tables.h"
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

constexpr std::uint32_t kRows = 3000;
constexpr std::int64_t kGapMs = 50;

kernel::RowForm Form() {
  kernel::RowForm form;
  const std::uint32_t steps[] = {layout::kAggregateBuckets,  0, layout::kAggregateSum,           0,
                                 layout::kAggregateDistinct, 0, layout::kAggregateBucketsDouble, 0,
                                 layout::kAggregateTop,      2};
  MILLRACE_CHECK(form.Set({steps, std::size(steps)}) == Status::kOk);
  MILLRACE_CHECK(form.lines() == 1 + 4 && form.page_lines() == 1 + 443);
  return form;
}

// A batch of events with a value each.
struct Batch {
  Batch() : cells(3 * kRows), valid(3 * kRows, 1) {
    MILLRACE_CHECK(kernel::View(events_buffer.span(), &events) == Status::kOk);
    auto* header = reinterpret_cast<layout::BatchHeader*>(events_buffer.data());
    header->row_count = kRows;
    header = reinterpret_cast<layout::BatchHeader*>(admitted_buffer.data());
    header->row_count = kRows;
    MILLRACE_CHECK(kernel::View(events_buffer.span(), &events) == Status::kOk);
    MILLRACE_CHECK(kernel::View(admitted_buffer.span(), &admitted) == Status::kOk);
  }
  // Keys from 0 on: a few hot ones, and many cold ones.
  void Fill(Random* random, std::int64_t from, std::uint64_t ahead) {
    for (std::uint32_t row = 0; row < kRows; row++) {
      const std::int64_t event_ts = from + static_cast<std::int64_t>(random->Below(ahead));
      events.at.account_id[row] =
          random->Below(2) == 0 ? random->Below(3) : random->Below(900) << 40;
      events.at.value[row] = 1;
      events.at.event_ts[row] = event_ts;
      admitted.at.row[row] = row;
      admitted.at.slice[row] = event_ts - event_ts % 1000;
      const std::uint64_t kind = random->Below(3);
      cells[row] = static_cast<std::int64_t>(kind == 0   ? random->Below(40)
                                             : kind == 1 ? random->Below(20'000)
                                                         : random->Next());
      valid[row] = random->Below(20) == 0 ? 0 : 1;
      cells[kRows + row] = next_offset++;
      cells[2 * kRows + row] = AddText(random);
    }
  }
  // Adds a value whose text is mostly short, and returns its place.
  std::int64_t AddText(Random* random) {
    const std::uint64_t value = random->Below(random->Below(3) == 0 ? 2'000 : 20);
    const std::size_t length = value % 97 == 0 ? 200 : 1 + value % 13;
    const std::size_t at = texts.size();
    texts.resize(at + 1 + (length + 8) / 8);
    texts[at] = static_cast<std::int64_t>(value * 0x9e3779b97f4a7c15U);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(&texts[at + 1]);
    bytes[0] = static_cast<std::uint8_t>(length);
    std::memset(bytes + 1, static_cast<int>('a' + value % 26), length);
    return static_cast<std::int64_t>(at);
  }
  kernel::Values values() const {
    return {cells.data(), valid.data(), kRows, 3, {texts.data(), texts.size()}};
  }

  test::Buffer events_buffer = test::EmptyBatch<layout::EventBatch>(kRows);
  test::Buffer admitted_buffer = test::EmptyBatch<layout::AdmittedBatch>(kRows);
  Rows<layout::EventBatch> events;
  Rows<layout::AdmittedBatch> admitted;
  std::vector<std::int64_t> cells;
  std::vector<std::uint8_t> valid;
  std::vector<std::int64_t> texts;
  std::int64_t next_offset = 0;
};

std::vector<Accumulator> RowsOf(kernel::SortedRun* run) {
  run->Sort();
  std::vector<Accumulator> rows(run->row_count() * run->form().page_lines());
  MILLRACE_CHECK(run->Read(0, {rows.data(), rows.size()}) == run->row_count());
  return rows;
}

void CheckSame(const std::vector<Accumulator>& a, const std::vector<Accumulator>& b) {
  MILLRACE_CHECK(a.size() == b.size());
  MILLRACE_CHECK(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

template <typename Tables>
void Replay(const Tables& from, Tables* into) {
  std::vector<std::uint8_t> bytes(from.DeltaBytesMax());
  std::size_t written = 0;
  MILLRACE_CHECK(from.EncodeDeltas({bytes.data(), bytes.size()}, &written) == Status::kOk);
  std::int32_t verdict = -1;
  MILLRACE_CHECK(into->ApplyDeltas({bytes.data(), written}, {}, &verdict) == Status::kOk);
  MILLRACE_CHECK(verdict == layout::kDeltaStatusOk);
}

void SlicesOwnTheirBlocks() {
  const kernel::RowForm form = Form();
  kernel::WindowTables tables(1000, 3, form);
  kernel::WindowTables replayed(1000, 1, form);
  kernel::WindowTables loaded(1000, 2, form);
  Random random(1);
  Batch batch;
  for (int i = 0; i < 8; i++) {
    batch.Fill(&random, 0, 3000);
    MILLRACE_CHECK(tables.Accumulate(batch.events, batch.admitted, batch.values()) == Status::kOk);
    Replay(tables, &replayed);
  }
  for (const std::int64_t slice : {0, 1000, 2000}) {
    std::vector<Accumulator> page(5 * form.page_lines());
    std::uint64_t cursor = 0;
    while (const std::size_t count = tables.Copy(slice, &cursor, {page.data(), page.size()})) {
      MILLRACE_CHECK(loaded.Load(slice, page.data(), count) == Status::kOk);
    }
  }
  const std::size_t bytes = tables.bytes();
  tables.Drop(2000);
  MILLRACE_CHECK(tables.bytes() < bytes);
  for (const std::int64_t slice : {0, 1000}) {
    const std::unique_ptr<kernel::SortedRun> run = tables.Seal(slice);
    const std::vector<Accumulator> rows = RowsOf(run.get());
    CheckSame(RowsOf(replayed.Seal(slice).get()), rows);
    CheckSame(RowsOf(loaded.Seal(slice).get()), rows);
    MILLRACE_CHECK(run->Row(1) != nullptr && form.BlockBytes(run->Row(1)) > 0);
  }
  // A run that is never sorted, and slices that are still open.
  const std::unique_ptr<kernel::SortedRun> unsorted = loaded.Seal(2000);
  MILLRACE_CHECK(unsorted->row_count() > 0 && replayed.key_count() > 0);
}

void SessionsOwnTheirBlocks() {
  const kernel::RowForm form = Form();
  kernel::SessionTables tables(kGapMs, 2, form);
  kernel::SessionTables replayed(kGapMs, 3, form);
  for (kernel::SessionTables* each : {&tables, &replayed}) {
    MILLRACE_CHECK(each->Open() == Status::kOk);
  }
  Random random(2);
  Batch batch;
  for (std::int64_t i = 0; i < 10; i++) {
    batch.Fill(&random, i * 400, 2500);
    MILLRACE_CHECK(tables.Accumulate(batch.events, batch.admitted, batch.values()) == Status::kOk);
    Replay(tables, &replayed);
    std::unique_ptr<kernel::SortedRun> fired;
    std::unique_ptr<kernel::SortedRun> again;
    MILLRACE_CHECK(tables.Fire(i * 350, &fired) == Status::kOk);
    MILLRACE_CHECK(replayed.Fire(i * 350, &again) == Status::kOk);
    CheckSame(RowsOf(again.get()), RowsOf(fired.get()));
  }
  MILLRACE_CHECK(tables.merged_count() > 0);
  std::vector<Accumulator> found(40 * form.page_lines());
  const std::size_t count = tables.Find(1, {found.data(), found.size()});
  MILLRACE_CHECK(count > 0 && found[0].account_id == 1);
  std::unique_ptr<kernel::SortedRun> detached;
  MILLRACE_CHECK(tables.Detach(&detached) == Status::kOk);
  // All but the sessions of `replayed`, which stay open.
  MILLRACE_CHECK(detached->row_count() == replayed.session_count());
}

// Most sessions of many end: those that remain are folded back into a fresh table.
void RemainingSessionsKeepTheirBlocks() {
  const kernel::RowForm form = Form();
  kernel::SessionTables tables(kGapMs, 1, form);
  MILLRACE_CHECK(tables.Open() == Status::kOk);
  Random random(3);
  Batch batch;
  for (int i = 0; i < 20; i++) {
    batch.Fill(&random, 0, 500'000);
    for (std::uint32_t row = 0; row < kRows; row++) {
      batch.events.at.account_id[row] = static_cast<std::uint64_t>(i) * kRows + row;
    }
    MILLRACE_CHECK(tables.Accumulate(batch.events, batch.admitted, batch.values()) == Status::kOk);
  }
  const std::size_t before = tables.session_count();
  MILLRACE_CHECK(before > 50'000);
  std::unique_ptr<kernel::SortedRun> fired;
  MILLRACE_CHECK(tables.Fire(400'000, &fired) == Status::kOk);
  MILLRACE_CHECK(fired->row_count() > before / 2);
  MILLRACE_CHECK(fired->row_count() + tables.session_count() == before);
}

// Corrupt pages give wrong cells, and nothing else.
void MergesOfAnyPagesStayInBounds() {
  const kernel::RowForm form = Form();
  Random random(4);
  const std::size_t lines = form.page_lines();
  for (int i = 0; i < 300; i++) {
    std::vector<Accumulator> a(lines);
    std::vector<Accumulator> b(lines);
    std::vector<Accumulator> into(lines);
    for (std::vector<Accumulator>* page : {&a, &b}) {
      auto* words = reinterpret_cast<std::uint64_t*>(page->data());
      for (std::size_t word = 0; word < lines * 8; word++) {
        words[word] = random.Below(3) == 0 ? random.Next() >> random.Below(64) : 0;
      }
      (*page)[0].account_id = 1;
      (*page)[0].count = 1;
    }
    const kernel::Span<const Accumulator> pages[] = {{a.data(), lines}, {b.data(), lines}};
    std::uint32_t cursors[] = {0, 1, 1, 0, 1, 1};
    std::size_t written = 0;
    MILLRACE_CHECK(kernel::MergeRuns(form, {pages, 2}, {cursors, 6}, {into.data(), lines},
                                     &written) == Status::kOk);
    MILLRACE_CHECK(written == 1);
    kernel::WindowTables tables(1000, 1, form);
    const Status status = tables.Load(0, into.data(), 1);
    MILLRACE_CHECK(status == Status::kOk || status == Status::kBadArgument);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  SlicesOwnTheirBlocks();
  SessionsOwnTheirBlocks();
  RemainingSessionsKeepTheirBlocks();
  MergesOfAnyPagesStayInBounds();
  std::printf("checks=4\n");
  return 0;
}
