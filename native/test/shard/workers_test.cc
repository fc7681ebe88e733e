// Unit checks of the threads that share a batch: rounds, the division of rows by shard, and tables
// whose bytes do not depend on the number of threads. tools/native-test.mjs runs them under
// AddressSanitizer and under ThreadSanitizer.
#include "kernel/shard/workers.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "kernel/event.h"
#include "kernel/hash.h"
#include "kernel/session/tables.h"
#include "kernel/shard/rows.h"
#include "kernel/window/tables.h"
#include "test/input.h"
#include "test/planted.h"
#include "test/random.h"

namespace {

using namespace millrace;
using kernel::Rows;
using kernel::Status;
using kernel::Workers;
using test::Random;

constexpr std::int64_t kSliceMs = 1000;

std::size_t ThreadCount() {
#ifdef __linux__
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
#else
  return 0;
#endif
}

void EachItemRunsOnce() {
  Workers workers(4);
  Random random(1);
  for (std::uint32_t round = 0; round < 20'000; round++) {
    const auto items = static_cast<std::uint32_t>(random.Below(9));
    std::vector<std::atomic<std::uint32_t>> calls(items);
    // Not atomic: what an item writes is visible to the caller.
    std::vector<std::uint64_t> results(items);
    workers.Run(items, static_cast<Workers::Work>(round % 3), [&](std::uint32_t item) {
      calls[item]++;
      results[item] = std::uint64_t{round} * item;
    });
    for (std::uint32_t item = 0; item < items; item++) {
      MILLRACE_CHECK(calls[item] == 1 && results[item] == std::uint64_t{round} * item);
    }
  }
}

// Each item waits for all others, so that a round ends only if every thread has one.
void ItemsRunAtTheSameTime() {
  constexpr std::uint32_t kThreads = 3;
  Workers workers(kThreads);
  for (int round = 0; round < 50; round++) {
    std::atomic<std::uint32_t> begun{0};
    workers.Run(kThreads, Workers::Work::kFold, [&](std::uint32_t) {
      begun++;
      while (begun < kThreads) std::this_thread::yield();
    });
  }
}

// The caller does all items while every other thread is held up by the first items of the round.
void TheCallerWaitsOnlyForItemsInProgress() {
  Workers workers(2);
  std::atomic<bool> is_held{false};
  std::atomic<std::uint32_t> by_caller{0};
  const auto caller = std::this_thread::get_id();
  constexpr std::uint32_t kItems = 100;
  workers.Run(kItems, Workers::Work::kFold, [&](std::uint32_t) {
    if (std::this_thread::get_id() == caller) {
      while (!is_held) std::this_thread::yield();
      by_caller++;
    } else {
      is_held = true;
      while (by_caller < kItems - 1) std::this_thread::yield();
    }
  });
  MILLRACE_CHECK(by_caller == kItems - 1);
}

void ThreadsEndWithTheirPool() {
  {
    const Workers unused(8);
  }
  const std::size_t before = ThreadCount();
  for (int i = 0; i < 100; i++) {
    Workers workers(4);
    std::atomic<std::uint32_t> done{0};
    for (int round = 0; round < i % 3; round++) {
      workers.Run(5, Workers::Work::kDivide, [&](std::uint32_t) { done++; });
    }
    MILLRACE_CHECK(done == static_cast<std::uint32_t>(i % 3) * 5);
  }
  // A joined thread is listed for a moment longer.
  for (int i = 0; i < 100'000 && ThreadCount() != before; i++) std::this_thread::yield();
  MILLRACE_CHECK(ThreadCount() == before);
}

// Admitted rows with some hot keys, in a few slices.
struct Batch {
  explicit Batch(std::uint32_t rows)
      : event_buffer(test::EmptyBatch<layout::EventBatch>(rows)),
        admitted_buffer(test::EmptyBatch<layout::AdmittedBatch>(rows)) {
    for (test::Buffer* buffer : {&event_buffer, &admitted_buffer}) {
      reinterpret_cast<layout::BatchHeader*>(buffer->data())->row_count = rows;
    }
    MILLRACE_CHECK(kernel::View(event_buffer.span(), &events) == Status::kOk);
    MILLRACE_CHECK(kernel::View(admitted_buffer.span(), &admitted) == Status::kOk);
  }
  void Fill(Random* random, std::uint64_t slices) {
    for (std::uint32_t row = 0; row < events.row_count; row++) {
      const auto slice = static_cast<std::int64_t>(random->Below(slices)) * kSliceMs;
      events.at.account_id[row] =
          random->Below(10) < 3 ? random->Below(4) : random->Next() >> random->Below(60);
      events.at.value[row] = static_cast<std::int64_t>(random->Next());
      events.at.event_ts[row] = slice + static_cast<std::int64_t>(random->Below(kSliceMs));
      admitted.at.row[row] = row;
      admitted.at.slice[row] = slice;
    }
  }
  test::Buffer event_buffer;
  test::Buffer admitted_buffer;
  Rows<layout::EventBatch> events;
  Rows<layout::AdmittedBatch> admitted;
};

void RowsOfAShardKeepTheirOrder() {
  constexpr std::uint32_t kRows = 5000;
  constexpr std::uint32_t kShards = 3;
  Random random(2);
  Batch batch(kRows);
  // More slices than a chunk keeps in its cache.
  batch.Fill(&random, 500);
  kernel::ShardRows sharded(kShards);
  const std::uint32_t chunks = sharded.Begin(kRows);
  for (std::uint32_t chunk = 0; chunk < chunks; chunk++) {
    sharded.Divide(chunks - 1 - chunk, batch.events, batch.admitted, kSliceMs);
  }
  MILLRACE_CHECK(sharded.AreSound());
  for (std::uint32_t at = 0; at < chunks; at++) {
    // The number of a slice is here its place in time.
    kernel::ShardRows::Chunk& chunk = sharded.chunk(at);
    for (const std::int64_t slice : chunk.slices) {
      chunk.numbers.push_back(static_cast<std::uint32_t>(slice / kSliceMs));
    }
  }
  std::uint32_t all = 0;
  for (std::uint32_t shard = 0; shard < kShards; shard++) {
    std::int64_t before = -1;
    std::uint32_t count = 0;
    sharded.ForEach(shard, [&](const kernel::ShardRows::Row& row, const std::uint32_t* numbers) {
      const std::uint64_t key = batch.events.at.account_id[row.row];
      MILLRACE_CHECK(row.row > before && kernel::ShardHash(key) % kShards == shard);
      MILLRACE_CHECK(row.hash == kernel::TableHash(key));
      MILLRACE_CHECK(numbers[row.slice] * kSliceMs == batch.admitted.at.slice[row.row]);
      before = row.row;
      count++;
    });
    MILLRACE_CHECK(count == sharded.Count(shard));
    all += count;
  }
  MILLRACE_CHECK(all == kRows);
  batch.admitted.at.row[kRows - 1] = kRows;
  sharded.Divide(chunks - 1, batch.events, batch.admitted, kSliceMs);
  MILLRACE_CHECK(!sharded.AreSound());
}

template <typename Tables>
std::vector<std::uint8_t> Encoded(const Tables& tables) {
  std::vector<std::uint8_t> bytes(tables.DeltaBytesMax());
  std::size_t written = 0;
  MILLRACE_CHECK(tables.EncodeDeltas({bytes.data(), bytes.size()}, &written) == Status::kOk);
  bytes.resize(written);
  return bytes;
}

// Feeds tables that have one thread and others that have four with the same batches: all deltas are
// equal, and refused batches change nothing.
template <typename Tables>
void ThreadsChangeNoBit(const std::function<std::unique_ptr<Tables>(std::uint32_t)>& open,
                        const std::function<std::size_t(const Tables&)>& key_count) {
  for (const std::uint32_t shards : {2U, 3U, 8U, 256U}) {
    Workers::Tune(1, 1);
    const std::unique_ptr<Tables> alone = open(shards);
    Workers::Tune(1, 4);
    const std::unique_ptr<Tables> shared = open(shards);
    Random random(shards);
    for (const std::uint32_t rows : {1U, 2U, 5U, 700U, 3000U, 5000U}) {
      Batch batch(rows);
      batch.Fill(&random, 5);
      for (Tables* tables : {alone.get(), shared.get()}) {
        MILLRACE_CHECK(tables->Accumulate(batch.events, batch.admitted) == Status::kOk);
      }
      MILLRACE_CHECK(Encoded(*alone) == Encoded(*shared));
      batch.admitted.at.row[rows - 1] = rows;
      const std::size_t before = key_count(*shared);
      MILLRACE_CHECK(shared->Accumulate(batch.events, batch.admitted) == Status::kBadArgument);
      MILLRACE_CHECK(key_count(*shared) == before && before == key_count(*alone));
    }
  }
}

void ThreadsDecodeWhatOneDecodes() {
  constexpr std::uint32_t kRows = 4000;
  constexpr std::uint32_t kBytes = layout::Event::kBytes;
  test::Buffer record_buffer = test::EmptyRecords(kRows, kRows * kBytes);
  auto* const header = reinterpret_cast<layout::BatchHeader*>(record_buffer.data());
  header->row_count = kRows;
  header->arena_used = kRows * kBytes;
  Rows<layout::RecordBatch> records;
  MILLRACE_CHECK(kernel::View(record_buffer.span(), &records) == Status::kOk);
  Random random(3);
  for (std::uint32_t row = 0; row < kRows; row++) {
    for (std::uint32_t at = 0; at < 32; at++) {
      records.at.arena[row * kBytes + at] = static_cast<std::uint8_t>(random.Next());
    }
    records.at.value_start[row] = row * kBytes;
    records.at.value_length[row] = random.Below(5) == 0 ? -1 : static_cast<std::int32_t>(kBytes);
  }
  Workers workers(4);
  test::Buffer buffers[] = {test::EmptyBatch<layout::EventBatch>(kRows),
                            test::EmptyBatch<layout::EventBatch>(kRows)};
  std::uint32_t decoded[2] = {};
  for (int i = 0; i < 2; i++) {
    Rows<layout::EventBatch> into;
    MILLRACE_CHECK(kernel::View(buffers[i].span(), &into) == Status::kOk);
    const Status status = i == 0 ? kernel::DecodeEvents(records, &into, &decoded[i])
                                 : kernel::DecodeEvents(records, &workers, &into, &decoded[i]);
    MILLRACE_CHECK(status == Status::kOk);
  }
  MILLRACE_CHECK(decoded[0] == decoded[1] && decoded[0] < kRows);
  MILLRACE_CHECK(std::memcmp(buffers[0].data(), buffers[1].data(), buffers[0].size()) == 0);
  test::Buffer small = test::EmptyBatch<layout::EventBatch>(kRows - 1);
  Rows<layout::EventBatch> into;
  MILLRACE_CHECK(kernel::View(small.span(), &into) == Status::kOk);
  MILLRACE_CHECK(kernel::DecodeEvents(records, &workers, &into, decoded) == Status::kTooFewRows);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  EachItemRunsOnce();
  ItemsRunAtTheSameTime();
  TheCallerWaitsOnlyForItemsInProgress();
  ThreadsEndWithTheirPool();
  RowsOfAShardKeepTheirOrder();
  ThreadsDecodeWhatOneDecodes();
  ThreadsChangeNoBit<kernel::WindowTables>(
      [](std::uint32_t shards) { return std::make_unique<kernel::WindowTables>(kSliceMs, shards); },
      [](const kernel::WindowTables& tables) { return tables.key_count(); });
  ThreadsChangeNoBit<kernel::SessionTables>(
      [](std::uint32_t shards) {
        auto tables = std::make_unique<kernel::SessionTables>(50, shards);
        MILLRACE_CHECK(tables->Open() == Status::kOk);
        return tables;
      },
      [](const kernel::SessionTables& tables) { return tables.session_count(); });
  std::printf("checks=8\n");
  return 0;
}
