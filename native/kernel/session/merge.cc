#include "kernel/session/merge.h"

#include <utility>
#include <vector>

#include "kernel/session/table.h"
#include "kernel/window/inputs.h"
#include "kernel/window/run.h"

namespace millrace::kernel {
namespace {

// Order of the parts of sessions: by key, then by start.
using Place = std::pair<std::uint64_t, std::int64_t>;

Place PlaceOf(const Accumulator& part) { return {part.account_id, StartOf(part)}; }

}  // namespace

Status MergeSessions(const RowForm& form, std::int64_t gap_ms,
                     Span<const Span<const Accumulator>> pages, Span<std::uint32_t> cursors,
                     Accumulator* open, Span<Accumulator> into, std::size_t* written) {
  const std::size_t lines = form.page_lines();
  const std::size_t room = into.size / lines;
  *written = 0;
  const std::size_t runs = pages.size;
  if (runs > kMergeRunsMax || cursors.size < runs * 3) return Status::kBadArgument;
  if (open->count != 0 && !IsSession(*open)) return Status::kBadArgument;
  std::vector<MergeInput> inputs;
  if (!ReadInputs(pages, cursors, lines, &inputs)) return Status::kBadArgument;
  bool starved = false;
  LeastInput<Place> least(runs);
  for (std::size_t i = 0; i < runs; i++) {
    starved = starved || inputs[i].starved();
    if (inputs[i].at != inputs[i].end) least.Add(PlaceOf(*inputs[i].at), i);
  }
  std::size_t count = 0;
  while (!starved) {
    if (least.empty()) {
      if (open->count != 0 && count < room) {
        form.CopyPaged(open, into.data + count++ * lines);
        *open = {};
      }
      break;
    }
    MergeInput& input = inputs[least.first().input];
    const Accumulator& part = *input.at;
    if (!IsSession(part)) return Status::kBadArgument;
    if (open->count != 0) {
      if (PlaceOf(part) < PlaceOf(*open)) return Status::kBadArgument;
      // Parts ascend by start, so a part that does not join the open session joins no earlier one.
      if (part.account_id == open->account_id && StartOf(part) - open->last_update_ts < gap_ms) {
        form.FoldPaged(&part, open);
      } else {
        if (count == room) break;
        form.CopyPaged(open, into.data + count++ * lines);
        form.CopyPaged(&part, open);
      }
    } else {
      form.CopyPaged(&part, open);
    }
    input.at += lines;
    if (input.at == input.end) {
      starved = !input.last;
      least.Remove();
    } else if (PlaceOf(*input.at) <= PlaceOf(part)) {
      return Status::kBadArgument;
    } else {
      least.Advance(PlaceOf(*input.at));
    }
  }
  WriteCursors(inputs, pages, lines, cursors);
  *written = count;
  return Status::kOk;
}

}  // namespace millrace::kernel
