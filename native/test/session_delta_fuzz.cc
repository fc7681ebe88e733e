// Fuzzes the decoder of partial sessions with hostile bytes, and the tables with what it accepts.
// Input: u8 mode, u32 gap (0 counts as 1). Mode even: the rest is the encoding. Mode odd: the rest
// follows a head with correct length and gap, so that mutations reach the columns. Accepted bytes
// must encode to the same bytes again. The tables must hold the accepted rows as sessions a gap
// apart that contain every event.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "kernel/session/delta.h"
#include "kernel/session/tables.h"
#include "test/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  using Head = layout::SessionDeltas;
  test::Input input(data, size);
  const bool right = input.Take<std::uint8_t>() % 2 == 1;
  const std::int64_t gap_ms = std::max<std::int64_t>(1, input.Take<std::uint32_t>());
  const std::size_t rest = size > 5 ? size - 5 : 0;
  test::Buffer bytes(rest);
  input.TakeBytes(bytes.data(), rest);
  if (right && rest >= Head::kBytes) {
    const std::uint32_t words[] = {static_cast<std::uint32_t>(layout::kSessionDeltasFormMagic),
                                   static_cast<std::uint32_t>(layout::kSessionDeltasFormVersion),
                                   static_cast<std::uint32_t>(rest)};
    std::memcpy(bytes.data(), words, sizeof words);
    std::memcpy(bytes.data() + Head::kGapMsAt, &gap_ms, sizeof gap_ms);
  }
  std::vector<kernel::Accumulator> deltas;
  const std::int32_t verdict = kernel::DecodeSessionDeltas({bytes.data(), rest}, gap_ms, &deltas);
  MILLRACE_CHECK(verdict == layout::kDeltaStatusOk || verdict == layout::kDeltaStatusBadHead ||
                 verdict == layout::kDeltaStatusBadColumn ||
                 verdict == layout::kDeltaStatusBadDelta);
  MILLRACE_CHECK(deltas.capacity() * sizeof(kernel::Accumulator) <= rest * 32);

  kernel::SessionTables tables(gap_ms, 2);
  MILLRACE_CHECK(tables.Open() == kernel::Status::kOk);
  std::int32_t again = -1;
  MILLRACE_CHECK(tables.ApplyDeltas({bytes.data(), rest}, {}, &again) == kernel::Status::kOk);
  MILLRACE_CHECK(again == verdict);
  if (verdict != layout::kDeltaStatusOk) {
    MILLRACE_CHECK(tables.session_count() == 0);
    return 0;
  }
  test::Buffer encoded(kernel::SessionDeltaBytesMax(deltas.size()));
  const kernel::Span<const kernel::Accumulator> part = {deltas.data(), deltas.size()};
  std::size_t written = 0;
  MILLRACE_CHECK(kernel::EncodeSessionDeltas({&part, 1}, gap_ms, encoded.span(), &written) ==
                 kernel::Status::kOk);
  MILLRACE_CHECK(written == rest && std::memcmp(encoded.data(), bytes.data(), rest) == 0);

  std::unique_ptr<kernel::SortedRun> run;
  MILLRACE_CHECK(tables.Fire(kernel::SessionDeadlines::kForever - 1, &run) == kernel::Status::kOk);
  MILLRACE_CHECK(tables.session_count() == 0);
  run->Sort();
  std::vector<kernel::Accumulator> rows(run->row_count());
  MILLRACE_CHECK(run->Read(0, {rows.data(), rows.size()}) == rows.size());
  std::uint64_t events = 0;
  std::map<std::uint64_t, std::int64_t> last;
  for (std::size_t i = 0; i < rows.size(); i++) {
    events += rows[i].count;
    MILLRACE_CHECK(i == 0 || rows[i - 1].last_update_ts < rows[i].last_update_ts ||
                   (rows[i - 1].last_update_ts == rows[i].last_update_ts &&
                    rows[i - 1].account_id < rows[i].account_id));
    const auto [at, is_first] = last.emplace(rows[i].account_id, rows[i].last_update_ts);
    MILLRACE_CHECK(is_first || kernel::StartOf(rows[i]) - at->second >= gap_ms);
    at->second = rows[i].last_update_ts;
  }
  for (const kernel::Accumulator& delta : deltas) events -= delta.count;
  MILLRACE_CHECK(events == 0);
  return 0;
}
