// Unit checks of the kernels that need no corpus: boundaries of views, vectors of the hash, frame
// prefixes.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "kernel/event.h"
#include "kernel/frame.h"
#include "kernel/hash.h"
#include "test/input.h"
#include "test/planted.h"

namespace {

using namespace millrace;
using kernel::Rows;
using kernel::Status;
using kernel::View;

void ViewsKeepToTheBuffer() {
  test::Buffer buffer = test::EmptyRecords(3, 10);
  Rows<layout::RecordBatch> rows;
  MILLRACE_CHECK(View(buffer.span(), &rows) == Status::kOk);
  MILLRACE_CHECK(rows.row_capacity == 3 && rows.arena_capacity == 10);
  for (std::size_t size = 0; size < buffer.size(); size++) {
    test::Buffer cut(size);
    if (size > 0) std::memcpy(cut.data(), buffer.data(), size);
    MILLRACE_CHECK(View(cut.span(), &rows) == Status::kNotThisBatch);
  }
  test::Buffer shifted(buffer.size() + 4);
  std::memcpy(shifted.data() + 4, buffer.data(), buffer.size());
  MILLRACE_CHECK(View({shifted.data() + 4, buffer.size()}, &rows) == Status::kNotThisBatch);
  Rows<layout::EventBatch> other;
  MILLRACE_CHECK(View(buffer.span(), &other) == Status::kNotThisBatch);
  MILLRACE_CHECK(View({nullptr, 0}, &other) == Status::kNotThisBatch);

  auto* header = reinterpret_cast<layout::BatchHeader*>(buffer.data());
  header->row_count = 3;
  header->arena_used = 10;
  MILLRACE_CHECK(View(buffer.span(), &rows) == Status::kOk);
  header->row_count = 4;
  MILLRACE_CHECK(View(buffer.span(), &rows) == Status::kRowsBeyondCapacity);
  header->row_count = 0;
  header->arena_used = 11;
  MILLRACE_CHECK(View(buffer.span(), &rows) == Status::kArenaBeyondCapacity);
  for (const std::uint32_t capacity : {0x80000000U, 0xffffffffU, 0x10000000U}) {
    header->arena_used = 0;
    header->row_capacity = capacity;
    MILLRACE_CHECK(View(buffer.span(), &rows) == Status::kNotThisBatch);
    header->row_capacity = 3;
    header->arena_capacity = capacity;
    MILLRACE_CHECK(View(buffer.span(), &rows) == Status::kNotThisBatch);
    header->arena_capacity = 10;
  }
}

void HashHasItsVectors() {
  MILLRACE_CHECK(kernel::ShardHash(0) == 0xba55a4b7U);
  MILLRACE_CHECK(kernel::ShardHash(1) == 0x940f1ebaU);
  MILLRACE_CHECK(kernel::ShardHash(UINT64_MAX) == 0x2043a4bfU);
  MILLRACE_CHECK(kernel::ShardHash(UINT64_C(0x0123456789abcdef)) == 0xaa5cda11U);
}

void RemaindersAreExact() {
  constexpr std::uint32_t kRows = 2000;
  test::Buffer buffer = test::EmptyBatch<layout::EventBatch>(kRows);
  reinterpret_cast<layout::BatchHeader*>(buffer.data())->row_count = kRows;
  Rows<layout::EventBatch> events;
  MILLRACE_CHECK(View(buffer.span(), &events) == Status::kOk);
  for (std::uint32_t row = 0; row < kRows; row++) events.at.account_id[row] = row * 0x9e3779b97f4aU;
  std::int32_t out[kRows];
  for (const std::uint32_t shards :
       {1U, 2U, 3U, 5U, 6U, 7U, 8U, 641U, 65535U, 65536U, 0x55555555U, 0x7ffffffeU, 0x7fffffffU}) {
    MILLRACE_CHECK(kernel::ShardOf(events, shards, {out, kRows}) == Status::kOk);
    for (std::uint32_t row = 0; row < kRows; row++) {
      MILLRACE_CHECK(static_cast<std::uint32_t>(out[row]) ==
                     kernel::ShardHash(events.at.account_id[row]) % shards);
    }
  }
  MILLRACE_CHECK(kernel::ShardOf(events, 0, {out, kRows}) == Status::kBadArgument);
  MILLRACE_CHECK(kernel::ShardOf(events, 4, {out, kRows - 1}) == Status::kTooFewRows);
}

void PrefixesAreBounded() {
  kernel::FramePrefix prefix;
  std::int32_t path[17];
  for (std::int32_t& index : path) index = 0x7fffffff;
  MILLRACE_CHECK(kernel::MakeFramePrefix(7, {path, 16}, &prefix) == Status::kOk);
  MILLRACE_CHECK(prefix.size == 5 + 1 + 16 * 5);
  MILLRACE_CHECK(kernel::MakeFramePrefix(7, {path, 17}, &prefix) == Status::kBadArgument);
  MILLRACE_CHECK(kernel::MakeFramePrefix(7, {path, 0}, &prefix) == Status::kBadArgument);
  path[3] = -1;
  MILLRACE_CHECK(kernel::MakeFramePrefix(7, {path, 4}, &prefix) == Status::kBadArgument);
  MILLRACE_CHECK(kernel::MakeFramePrefix(7, {nullptr, 0}, &prefix) == Status::kOk);
  MILLRACE_CHECK(prefix.size == 5);
}

void ShortTargetsAreRefusedUntouched() {
  test::Buffer buffer = test::EmptyRecords(2, 0);
  reinterpret_cast<layout::BatchHeader*>(buffer.data())->row_count = 2;
  Rows<layout::RecordBatch> records;
  MILLRACE_CHECK(View(buffer.span(), &records) == Status::kOk);
  test::Buffer event_buffer = test::EmptyBatch<layout::EventBatch>(1);
  Rows<layout::EventBatch> events;
  MILLRACE_CHECK(View(event_buffer.span(), &events) == Status::kOk);
  std::uint32_t count = 99;
  MILLRACE_CHECK(kernel::DecodeEvents(records, &events, &count) == Status::kTooFewRows);
  MILLRACE_CHECK(count == 99 && events.at.header->row_count == 0);
  test::Buffer frame_buffer = test::EmptyBatch<layout::FrameBatch>(1);
  Rows<layout::FrameBatch> frames;
  MILLRACE_CHECK(View(frame_buffer.span(), &frames) == Status::kOk);
  MILLRACE_CHECK(kernel::ScanFrames(records, true, &frames, &count) == Status::kTooFewRows);
  MILLRACE_CHECK(count == 99 && frames.at.header->row_count == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  ViewsKeepToTheBuffer();
  HashHasItsVectors();
  RemaindersAreExact();
  PrefixesAreBounded();
  ShortTargetsAreRefusedUntouched();
  std::printf("checks=5\n");
  return 0;
}
