// Fuzzes event decode and shard hash with hostile batches. Input: u32 shards, a batch (input.h).
#include <cstdio>
#include <cstdlib>

#include "kernel/event.h"
#include "kernel/hash.h"
#include "test/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  test::Input input(data, size);
  const auto shards = input.Take<std::uint32_t>();
  test::Buffer buffer = test::TakeRecords(&input);
  kernel::Rows<layout::RecordBatch> records;
  if (kernel::View(buffer.span(), &records) != kernel::Status::kOk) return 0;
  const test::Fence fence(records);

  test::Buffer event_buffer = test::EmptyBatch<layout::EventBatch>(records.row_count);
  kernel::Rows<layout::EventBatch> events;
  MILLRACE_CHECK(kernel::View(event_buffer.span(), &events) == kernel::Status::kOk);
  std::uint32_t decoded = 0;
  MILLRACE_CHECK(kernel::DecodeEvents(records, &events, &decoded) == kernel::Status::kOk);
  std::uint32_t good = 0;
  for (std::uint32_t row = 0; row < records.row_count; row++) {
    const std::int32_t length = records.at.value_length[row];
    const bool fits = length == static_cast<std::int32_t>(layout::Event::kBytes) &&
                      kernel::Inside(records.at.value_start[row], length, records.arena_used);
    MILLRACE_CHECK(fits == (events.at.status[row] == layout::kEventStatusOk));
    if (!fits) {
      MILLRACE_CHECK(events.at.account_id[row] == 0 && events.at.seq[row] == 0);
      continue;
    }
    good++;
    const std::uint8_t* event = records.at.arena + records.at.value_start[row];
    MILLRACE_CHECK(std::memcmp(&events.at.account_id[row], event, 8) == 0);
    MILLRACE_CHECK(std::memcmp(&events.at.value[row], event + 8, 8) == 0);
    MILLRACE_CHECK(std::memcmp(&events.at.event_ts[row], event + 16, 8) == 0);
    MILLRACE_CHECK(std::memcmp(&events.at.seq[row], event + 24, 8) == 0);
  }
  MILLRACE_CHECK(good == decoded);

  kernel::Rows<layout::EventBatch> filled;
  MILLRACE_CHECK(kernel::View(event_buffer.span(), &filled) == kernel::Status::kOk);
  MILLRACE_CHECK(filled.row_count == records.row_count);
  test::Buffer owners(filled.row_count * sizeof(std::int32_t));
  auto* out = reinterpret_cast<std::int32_t*>(owners.data());
  const kernel::Status status = kernel::ShardOf(filled, shards, {out, filled.row_count});
  const bool valid = shards >= 1 && shards <= 0x7fffffffU;
  MILLRACE_CHECK(status == (valid ? kernel::Status::kOk : kernel::Status::kBadArgument));
  if (!valid) return 0;
  for (std::uint32_t row = 0; row < filled.row_count; row++) {
    MILLRACE_CHECK(static_cast<std::uint32_t>(out[row]) ==
                   kernel::ShardHash(filled.at.account_id[row]) % shards);
  }
  return 0;
}
