// Fuzzes the decoder of partial sessions with hostile bytes, and the tables with what it accepts.
// Input: u8 mode, u32 gap (0 counts as 1). Mode even: the rest is the encoding. Mode odd: the rest
// follows a head with correct length and gap, so that mutations reach the columns. The next bit of
// the mode: rows have cells. Accepted bytes must encode to the same bytes again. The tables must
// hold the accepted rows as sessions a gap apart that contain every event.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "kernel/session/delta.h"
#include "kernel/session/tables.h"
#include "test/input.h"
#include "test/rows/forms.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  using Head = layout::SessionDeltas;
  test::Input input(data, size);
  const auto mode = input.Take<std::uint8_t>();
  const bool right = mode % 2 == 1;
  const kernel::RowForm form = test::FormOf(mode / 2 % 2 == 1);
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
  const kernel::RowGuard guard(form, &deltas);
  const std::int32_t verdict =
      kernel::DecodeSessionDeltas({bytes.data(), rest}, gap_ms, form, &deltas);
  MILLRACE_CHECK(verdict == layout::kDeltaStatusOk || verdict == layout::kDeltaStatusBadHead ||
                 verdict == layout::kDeltaStatusBadColumn ||
                 verdict == layout::kDeltaStatusBadDelta);
  MILLRACE_CHECK(deltas.capacity() * sizeof(kernel::Accumulator) <=
                 rest * (form.has_cells() ? 56 : 32));

  kernel::SessionTables tables(gap_ms, 2, form);
  MILLRACE_CHECK(tables.Open() == kernel::Status::kOk);
  std::int32_t again = -1;
  MILLRACE_CHECK(tables.ApplyDeltas({bytes.data(), rest}, {}, &again) == kernel::Status::kOk);
  MILLRACE_CHECK(again == verdict);
  if (verdict != layout::kDeltaStatusOk) {
    MILLRACE_CHECK(tables.session_count() == 0);
    return 0;
  }
  const std::size_t count = deltas.size() / form.lines();
  const kernel::Span<const kernel::Accumulator> part = {deltas.data(), count};
  test::Buffer encoded(kernel::SessionDeltaBytesMax({{&part, 1}, form}));
  std::size_t written = 0;
  MILLRACE_CHECK(kernel::EncodeSessionDeltas({{&part, 1}, form}, gap_ms, encoded.span(),
                                             &written) == kernel::Status::kOk);
  MILLRACE_CHECK(written == rest && std::memcmp(encoded.data(), bytes.data(), rest) == 0);

  std::unique_ptr<kernel::SortedRun> run;
  MILLRACE_CHECK(tables.Fire(kernel::SessionDeadlines::kForever - 1, &run) == kernel::Status::kOk);
  MILLRACE_CHECK(tables.session_count() == 0);
  run->Sort();
  std::vector<kernel::Accumulator> rows(run->row_count() * form.page_lines());
  MILLRACE_CHECK(run->Read(0, {rows.data(), rows.size()}) == run->row_count());
  std::uint64_t events = 0;
  std::map<std::uint64_t, std::int64_t> last;
  const kernel::Accumulator* before = nullptr;
  for (std::size_t i = 0; i < rows.size(); i += form.page_lines()) {
    const kernel::Accumulator& row = rows[i];
    events += row.count;
    MILLRACE_CHECK(
        before == nullptr || before->last_update_ts < row.last_update_ts ||
        (before->last_update_ts == row.last_update_ts && before->account_id < row.account_id));
    before = &row;
    const auto [at, is_first] = last.emplace(row.account_id, row.last_update_ts);
    MILLRACE_CHECK(is_first || kernel::StartOf(row) - at->second >= gap_ms);
    at->second = row.last_update_ts;
  }
  for (std::size_t i = 0; i < deltas.size(); i += form.lines()) events -= deltas[i].count;
  MILLRACE_CHECK(events == 0);
  return 0;
}
