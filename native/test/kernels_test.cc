// Unit checks of the kernels that need no corpus: boundaries of views, vectors of the hash, frame
// prefixes.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "kernel/event.h"
#include "kernel/frame.h"
#include "kernel/hash.h"
#include "kernel/keys.h"
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

// Keys in a buffer that ends with the last of them, and entries in a ring that ends with the last
// of them: the sanitizers see every access beyond.
void KeysAreFoundInExactBuffers() {
  constexpr std::uint32_t kRows = 600;
  constexpr std::uint32_t kHeader = layout::KeyEntry::kTextAt / 4;
  const kernel::KeySecret secret{1, 2};
  test::Buffer batch = test::EmptyBatch<layout::EventBatch>(kRows);
  reinterpret_cast<layout::BatchHeader*>(batch.data())->row_count = kRows;
  Rows<layout::EventBatch> events;
  MILLRACE_CHECK(View(batch.span(), &events) == Status::kOk);
  std::vector<std::int32_t> at(kRows);
  std::vector<std::int32_t> length(kRows);
  std::vector<std::int32_t> words;
  for (std::uint32_t row = 0; row < kRows; row++) {
    at[row] = static_cast<std::int32_t>(words.size());
    // Runs of equal lengths, and rows on their own.
    length[row] = static_cast<std::int32_t>(row / 7 % 23);
    const std::int32_t whole = (length[row] + 3) / 4;
    for (std::int32_t i = 0; i < whole; i++) words.push_back(0);
    auto* bytes = reinterpret_cast<std::uint8_t*>(words.data() + at[row]);
    for (std::int32_t i = 0; i < length[row]; i++) {
      bytes[i] = static_cast<std::uint8_t>(row + static_cast<std::uint32_t>(i));
    }
    events.at.event_ts[row] = row;
  }
  words.shrink_to_fit();
  std::vector<std::int32_t> slots(1024);
  std::vector<std::int32_t> ring;
  for (std::uint32_t row = 0; row < kRows; row += 2) {
    const auto* key = reinterpret_cast<const std::uint32_t*>(words.data() + at[row]);
    const auto bytes = static_cast<std::uint32_t>(length[row]);
    const kernel::KeyHash hash = kernel::HashKey(secret, key, bytes);
    slots[hash.low & 1023U] = static_cast<std::int32_t>(ring.size()) + 1;
    for (const std::uint32_t word : {hash.low, hash.high, 5U, 0U, bytes * 2}) {
      ring.push_back(static_cast<std::int32_t>(word));
    }
    for (std::uint32_t i = 0; i < (bytes + 3) / 4; i++) {
      ring.push_back(static_cast<std::int32_t>(key[i]));
    }
  }
  ring.shrink_to_fit();
  std::vector<std::int32_t> rest(kRows * kernel::kRestWords);
  double state[4];
  const kernel::KeyWords keys{
      {at.data(), at.size()}, {length.data(), length.size()}, {words.data(), words.size()}};
  kernel::KeyCacheView cache{{slots.data(), slots.size()}, {ring.data(), ring.size()}, 5};
  const auto probe = [&] {
    return kernel::ProbeKeys(events, keys, 0, secret, cache, UINT32_MAX, {rest.data(), rest.size()},
                             {state, 4});
  };
  MILLRACE_CHECK(probe() == Status::kOk);
  MILLRACE_CHECK(state[0] == kRows && state[3] == kRows - 1);
  MILLRACE_CHECK(state[1] > 0 && state[1] < kRows);
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(state[1]); i++) {
    const auto row = static_cast<std::uint32_t>(rest[i * kernel::kRestWords]);
    const auto* key = reinterpret_cast<const std::uint32_t*>(words.data() + at[row]);
    const kernel::KeyHash hash =
        kernel::HashKey(secret, key, static_cast<std::uint32_t>(length[row]));
    MILLRACE_CHECK(static_cast<std::uint32_t>(rest[i * kernel::kRestWords + 1]) == hash.low);
    MILLRACE_CHECK(static_cast<std::uint32_t>(rest[i * kernel::kRestWords + 2]) == hash.high);
  }
  // The row that was inserted last into its slot is found, and its entry is marked as used.
  constexpr std::uint32_t kLast = kRows - 2;
  const auto* last = reinterpret_cast<const std::uint32_t*>(words.data() + at[kLast]);
  const kernel::KeyHash hash =
      kernel::HashKey(secret, last, static_cast<std::uint32_t>(length[kLast]));
  MILLRACE_CHECK(events.at.account_id[kLast] == ((std::uint64_t{hash.high} << 32) | hash.low));
  const auto entry = static_cast<std::size_t>(slots[hash.low & 1023U] - 1);
  MILLRACE_CHECK((ring[entry + layout::KeyEntry::kLengthAt / 4] & 1) != 0);
  // An entry that ends behind the ring, or begins there.
  cache.ring.size = kHeader - 1;
  MILLRACE_CHECK(probe() == Status::kSpanOutOfRange);
  cache.ring.size = ring.size();
  slots.assign(slots.size(), INT32_MIN);
  MILLRACE_CHECK(probe() == Status::kSpanOutOfRange);
  slots.assign(slots.size(), 0);
  MILLRACE_CHECK(probe() == Status::kOk && state[1] == kRows);
  at[kRows - 1] = static_cast<std::int32_t>(words.size()) + 1;
  MILLRACE_CHECK(probe() == Status::kSpanOutOfRange);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = test::PlantedFault(argc, argv)) return *code;
  ViewsKeepToTheBuffer();
  HashHasItsVectors();
  RemaindersAreExact();
  PrefixesAreBounded();
  ShortTargetsAreRefusedUntouched();
  KeysAreFoundInExactBuffers();
  std::printf("checks=6\n");
  return 0;
}
