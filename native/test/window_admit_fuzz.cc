// Fuzzes admission with hostile clocks, progress and rows, once in whole batches and once row by
// row: both must end in the same state. Input: u8 flags (1: the clock is 16 doubles of the input,
// 2: global watermark, 4: bounded future, 8: sessions), u8 slide, u8 slices of a window, u8 delay,
// u8 partitions, u8 limit and u8 idle for each partition. Then rows: u8 partition, u8 kind (below
// 200: i16 event_ts; else i64 event_ts), u8 offset step, u8 status, i16 timestamp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "kernel/window/admit.h"
#include "test/input.h"

namespace {

using namespace millrace;
using kernel::Rows;
using kernel::Status;
using Clock = layout::WindowClock;
using Progress = layout::PartitionProgress;

constexpr std::size_t kClock = Clock::kBytes / sizeof(double);
constexpr std::size_t kProgress = Progress::kBytes / sizeof(double);
constexpr std::uint32_t kRowsMax = 220;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double& Cell(std::vector<double>* cells, std::size_t at) { return (*cells)[at / sizeof(double)]; }

struct World {
  std::vector<double> clock;
  std::vector<double> progress;
  std::vector<std::uint32_t> rows;
  std::vector<std::int64_t> slices;
  Status status = Status::kOk;
};

std::uint32_t RowCount(test::Buffer* buffer, std::uint32_t rows) {
  return std::exchange(reinterpret_cast<layout::BatchHeader*>(buffer->data())->row_count, rows);
}

// Admits the batches in blocks of `step` rows; due windows fire immediately.
void Run(test::Buffer* record_buffer, test::Buffer* event_buffer, std::uint32_t step,
         World* world) {
  const std::uint32_t rows = RowCount(record_buffer, 0);
  test::Buffer admitted_buffer = test::EmptyBatch<layout::AdmittedBatch>(rows);
  test::Buffer refused_buffer = test::EmptyBatch<layout::RefusedBatch>(rows);
  std::uint32_t from = 0;
  for (std::uint32_t end = 0; end < rows;) {
    end = std::min(rows, end + step);
    RowCount(record_buffer, end);
    RowCount(event_buffer, end);
    Rows<layout::RecordBatch> records;
    Rows<layout::EventBatch> events;
    Rows<layout::AdmittedBatch> admitted;
    MILLRACE_CHECK(kernel::View(record_buffer->span(), &records) == Status::kOk);
    MILLRACE_CHECK(kernel::View(event_buffer->span(), &events) == Status::kOk);
    Rows<layout::RefusedBatch> refused;
    MILLRACE_CHECK(kernel::View(admitted_buffer.span(), &admitted) == Status::kOk);
    MILLRACE_CHECK(kernel::View(refused_buffer.span(), &refused) == Status::kOk);
    while (from < end && world->status == Status::kOk) {
      std::uint32_t taken = 0;
      world->status = kernel::Admit({world->clock.data(), kClock},
                                    {world->progress.data(), world->progress.size()}, records,
                                    events, from, &admitted, &refused, &taken);
      const std::uint32_t count = RowCount(&admitted_buffer, 0);
      MILLRACE_CHECK(taken <= end - from && count <= (world->status == Status::kOk ? taken : rows));
      for (std::uint32_t i = 0; i < count; i++) {
        const std::uint32_t row = admitted.at.row[i];
        const std::int64_t slice = admitted.at.slice[i];
        // Sessions have one slice, which holds every event.
        const auto width = static_cast<std::int64_t>(Cell(&world->clock, Clock::kSliceMsAt));
        MILLRACE_CHECK(row >= from && row < from + taken);
        MILLRACE_CHECK(events.at.event_ts[row] >= slice &&
                       (width == 0 || events.at.event_ts[row] - slice < width));
        world->rows.push_back(row);
        world->slices.push_back(slice);
      }
      const std::uint32_t refusals = RowCount(&refused_buffer, 0);
      MILLRACE_CHECK(count + refusals <= (world->status == Status::kOk ? taken : rows));
      for (std::uint32_t i = 0; i < refusals; i++) {
        MILLRACE_CHECK(refused.at.row[i] >= from && refused.at.row[i] < from + taken);
        MILLRACE_CHECK(refused.at.reason[i] == layout::kRefusalInvalid ||
                       events.at.event_ts[refused.at.row[i]] < refused.at.bound[i]);
      }
      from += taken;
      double& next_end = Cell(&world->clock, Clock::kNextEndAt);
      const double watermark = Cell(&world->clock, Clock::kFrontierAt);
      if (watermark >= next_end) {
        next_end = kInfinity;
      } else {
        MILLRACE_CHECK(world->status != Status::kOk || from == end);
      }
    }
  }
  RowCount(record_buffer, rows);
  RowCount(event_buffer, rows);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const auto flags = input.Take<std::uint8_t>();
  World world;
  world.clock.resize(kClock);
  const double slice = 1 + input.Take<std::uint8_t>() % 60;
  const double slices = 1 + input.Take<std::uint8_t>() % 4;
  Cell(&world.clock, Clock::kGlobalAt) = (flags & 2) != 0 ? 1 : 0;
  if ((flags & 8) == 0) {
    Cell(&world.clock, Clock::kSliceMsAt) = slice;
    Cell(&world.clock, Clock::kSlideMsAt) = slice;
    Cell(&world.clock, Clock::kSizeMsAt) = slice * slices;
  }
  Cell(&world.clock, Clock::kDelayMsAt) = input.Take<std::uint8_t>();
  Cell(&world.clock, Clock::kMaxFutureMsAt) = (flags & 4) != 0 ? 30 : -1;
  Cell(&world.clock, Clock::kFrontierAt) = -kInfinity;
  Cell(&world.clock, Clock::kMaxSeenAt) = -kInfinity;
  Cell(&world.clock, Clock::kNextEndAt) = kInfinity;
  const std::uint32_t partitions = 1 + input.Take<std::uint8_t>() % 5;
  world.progress.resize(partitions * kProgress);
  for (std::uint32_t p = 0; p < partitions; p++) {
    double* cells = world.progress.data() + p * kProgress;
    const auto limit = input.Take<std::uint8_t>();
    cells[Progress::kLimitAt / 8] = limit == 0 ? kInfinity : limit;
    cells[Progress::kMaxSeenAt / 8] = -kInfinity;
    cells[Progress::kIdleAt / 8] = input.Take<std::uint8_t>() % 4 == 1 ? 1 : 0;
  }
  if ((flags & 1) != 0) {
    for (double& cell : world.clock) cell = input.Take<double>();
  }
  const auto rows = static_cast<std::uint32_t>(std::min<std::size_t>(kRowsMax, size / 7));
  test::Buffer record_buffer = test::EmptyRecords(rows, 0);
  test::Buffer event_buffer = test::EmptyBatch<layout::EventBatch>(rows);
  const auto records = layout::RecordBatch::Over(record_buffer.data(), rows);
  const auto events = layout::EventBatch::Over(event_buffer.data(), rows);
  std::vector<std::int64_t> next(partitions);
  for (std::uint32_t row = 0; row < rows; row++) {
    const auto partition = input.Take<std::uint8_t>();
    const auto kind = input.Take<std::uint8_t>();
    events.event_ts[row] = kind < 200 ? input.Take<std::int16_t>() : input.Take<std::int64_t>();
    const auto step = input.Take<std::uint8_t>();
    // Most partitions exist, and most offsets ascend.
    records.partition[row] = partition == 255   ? -1
                             : partition == 254 ? 99
                                                : static_cast<std::int32_t>(partition % partitions);
    std::int64_t& offset = next[static_cast<std::size_t>(partition % partitions)];
    records.offset[row] = step == 255 ? INT64_MIN + row : step == 254 ? INT64_MAX : offset;
    offset += 1 + step % 3;
    const auto status = input.Take<std::uint8_t>();
    events.status[row] = status < 3 ? status : 0;
    records.timestamp[row] = step == 253   ? INT64_MIN
                             : step == 252 ? INT64_MAX
                                           : input.Take<std::int16_t>();
    records.timestamp_type[row] = status % 2;
  }
  RowCount(&record_buffer, rows);
  RowCount(&event_buffer, rows);

  World by_row = world;
  World by_seven = world;
  Run(&record_buffer, &event_buffer, kRowsMax, &world);
  Run(&record_buffer, &event_buffer, 1, &by_row);
  Run(&record_buffer, &event_buffer, 7, &by_seven);
  for (const World* other : {&by_row, &by_seven}) {
    MILLRACE_CHECK(other->status == world.status);
    MILLRACE_CHECK(other->rows == world.rows && other->slices == world.slices);
    // Bytes are compared, because a hostile clock may hold NaN cells.
    MILLRACE_CHECK(std::memcmp(other->clock.data(), world.clock.data(), kClock * 8) == 0);
    MILLRACE_CHECK(
        std::memcmp(other->progress.data(), world.progress.data(), world.progress.size() * 8) == 0);
  }
  return 0;
}
