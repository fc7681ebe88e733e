// Fuzzes the delta decoder with hostile bytes. Input: u8 mode, u32 slice width (0 counts as 1).
// Mode even: the rest is the encoding. Mode odd: the rest follows a head with correct length and
// width, so that mutations reach the columns. The next bit of the mode: rows have cells. Accepted
// bytes must encode to the same bytes again.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernel/window/delta.h"
#include "test/input.h"
#include "test/rows/forms.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  using Head = layout::WindowDeltas;
  test::Input input(data, size);
  const auto mode = input.Take<std::uint8_t>();
  const bool right = mode % 2 == 1;
  const kernel::RowForm form = test::FormOf(mode / 2 % 2 == 1);
  const std::int64_t slice_ms = std::max<std::int64_t>(1, input.Take<std::uint32_t>());
  const std::size_t rest = size > 5 ? size - 5 : 0;
  test::Buffer bytes(rest);
  input.TakeBytes(bytes.data(), rest);
  if (right && rest >= Head::kBytes) {
    const std::uint32_t words[] = {static_cast<std::uint32_t>(layout::kWindowDeltasFormMagic),
                                   static_cast<std::uint32_t>(layout::kWindowDeltasFormVersion),
                                   static_cast<std::uint32_t>(rest)};
    std::memcpy(bytes.data(), words, sizeof words);
    std::memset(bytes.data() + Head::kSpareAt, 0, 4);
    std::memcpy(bytes.data() + Head::kSliceMsAt, &slice_ms, sizeof slice_ms);
  }
  std::vector<std::int64_t> slices;
  std::vector<kernel::Accumulator> deltas;
  const kernel::RowGuard guard(form, &deltas);
  const std::int32_t verdict =
      kernel::DecodeDeltas({bytes.data(), rest}, slice_ms, form, &slices, &deltas);
  MILLRACE_CHECK(verdict >= layout::kDeltaStatusOk && verdict <= layout::kDeltaStatusBadDelta);
  MILLRACE_CHECK(deltas.capacity() * sizeof(kernel::Accumulator) <=
                 rest * (form.has_cells() ? 48 : 26));
  if (verdict != layout::kDeltaStatusOk) return 0;
  const std::size_t count = deltas.size() / form.lines();
  const kernel::Span<const kernel::Accumulator> part = {deltas.data(), count};
  test::Buffer again(kernel::DeltaBytesMax({{&part, 1}, form}, slices.size()));
  std::size_t written = 0;
  MILLRACE_CHECK(kernel::EncodeDeltas({{&part, 1}, form}, {slices.data(), slices.size()}, slice_ms,
                                      again.span(), &written) == kernel::Status::kOk);
  MILLRACE_CHECK(written == rest && std::memcmp(again.data(), bytes.data(), rest) == 0);
  return 0;
}
