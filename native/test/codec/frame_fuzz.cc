// Fuzzes frame scan and frame write with hostile batches. Input: u8 (bit 0: Protobuf), u16 bytes of
// the output arena, a batch (input.h).
#include <cstdio>
#include <cstdlib>

#include "kernel/frame.h"
#include "test/input.h"

namespace {

using namespace millrace;

void CheckScan(const kernel::Rows<layout::RecordBatch>& records,
               const kernel::Rows<layout::FrameBatch>& frames, std::uint32_t framed) {
  std::uint32_t good = 0;
  for (std::uint32_t row = 0; row < records.row_count; row++) {
    const layout::FrameBatch& f = frames.at;
    MILLRACE_CHECK(f.status[row] <= layout::kFrameStatusNullValue);
    if (f.status[row] != layout::kFrameStatusOk) {
      MILLRACE_CHECK(f.schema_id[row] == 0 && f.payload_start[row] == 0 &&
                     f.payload_length[row] == 0 && f.message_index[row] == 0 &&
                     f.index_start[row] == 0);
      continue;
    }
    good++;
    const std::uint64_t start = records.at.value_start[row];
    const std::uint64_t end = start + static_cast<std::uint64_t>(records.at.value_length[row]);
    MILLRACE_CHECK(end <= records.arena_used);
    MILLRACE_CHECK(f.index_start[row] == start + layout::kFrameHeaderBytes);
    MILLRACE_CHECK(f.payload_start[row] >= f.index_start[row] && f.payload_length[row] >= 0);
    MILLRACE_CHECK(f.payload_start[row] + static_cast<std::uint64_t>(f.payload_length[row]) == end);
  }
  MILLRACE_CHECK(good == framed);
}

// Checks that written frames read back unchanged.
void CheckWritten(const kernel::Rows<layout::RecordBatch>& source,
                  const kernel::Rows<layout::RecordBatch>& written, bool protobuf) {
  test::Buffer buffer = test::EmptyBatch<layout::FrameBatch>(written.row_count);
  kernel::Rows<layout::FrameBatch> frames;
  MILLRACE_CHECK(kernel::View(buffer.span(), &frames) == kernel::Status::kOk);
  std::uint32_t framed = 0;
  MILLRACE_CHECK(kernel::ScanFrames(written, protobuf, &frames, &framed) == kernel::Status::kOk);
  CheckScan(written, frames, framed);
  for (std::uint32_t row = 0; row < written.row_count; row++) {
    const std::int32_t length = source.at.value_length[row];
    if (length < 0) {
      MILLRACE_CHECK(frames.at.status[row] == layout::kFrameStatusNullValue);
      continue;
    }
    MILLRACE_CHECK(frames.at.status[row] == layout::kFrameStatusOk);
    MILLRACE_CHECK(frames.at.schema_id[row] == 0x01020304U);
    MILLRACE_CHECK(frames.at.payload_length[row] == length);
    MILLRACE_CHECK(length == 0 || std::memcmp(written.at.arena + frames.at.payload_start[row],
                                              source.at.arena + source.at.value_start[row],
                                              static_cast<std::size_t>(length)) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Input input(data, size);
  const bool protobuf = (input.Take<std::uint8_t>() & 1U) != 0;
  const auto room = input.Take<std::uint16_t>();
  test::Buffer buffer = test::TakeRecords(&input);
  kernel::Rows<layout::RecordBatch> records;
  if (kernel::View(buffer.span(), &records) != kernel::Status::kOk) return 0;
  const test::Fence fence(records);

  test::Buffer frame_buffer = test::EmptyBatch<layout::FrameBatch>(records.row_count);
  kernel::Rows<layout::FrameBatch> frames;
  MILLRACE_CHECK(kernel::View(frame_buffer.span(), &frames) == kernel::Status::kOk);
  std::uint32_t framed = 0;
  MILLRACE_CHECK(kernel::ScanFrames(records, protobuf, &frames, &framed) == kernel::Status::kOk);
  CheckScan(records, frames, framed);

  const std::int32_t path[] = {2, 0x7fffffff, 0};
  kernel::FramePrefix prefix;
  MILLRACE_CHECK(kernel::MakeFramePrefix(0x01020304U, {protobuf ? path : nullptr, 3}, &prefix) ==
                 kernel::Status::kOk);
  test::Buffer into_buffer = test::EmptyRecords(records.row_capacity / 2 + 1, room);
  kernel::Rows<layout::RecordBatch> into;
  MILLRACE_CHECK(kernel::View(into_buffer.span(), &into) == kernel::Status::kOk);
  std::uint32_t taken = 0;
  const kernel::Status status = kernel::WriteFrames(
      {records.at.arena, records.arena_used}, {records.at.value_start, records.row_count},
      {records.at.value_length, records.row_count}, records.row_count, prefix, &into, &taken);
  if (status == kernel::Status::kOk) {
    MILLRACE_CHECK(into.row_count == taken && into.arena_used <= into.arena_capacity);
    CheckWritten(records, into, protobuf);
  } else {
    MILLRACE_CHECK(status == kernel::Status::kSpanOutOfRange && into.row_count == 0);
  }
  return 0;
}
