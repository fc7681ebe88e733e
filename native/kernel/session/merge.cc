#include "kernel/session/merge.h"

#include <vector>

#include "kernel/session/table.h"
#include "kernel/window/run.h"

namespace millrace::kernel {
namespace {

bool IsBefore(const Accumulator& a, const Accumulator& b) {
  return a.account_id != b.account_id ? a.account_id < b.account_id : StartOf(a) < StartOf(b);
}

// One input: rows [at, end) of its page.
struct Cursor {
  const Accumulator* at;
  const Accumulator* end;
  bool last;
};

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
  std::vector<Cursor> inputs(runs);
  for (std::size_t i = 0; i < runs; i++) {
    const std::uint32_t* cells = cursors.data + i * 3;
    if (cells[0] > cells[1] || cells[1] > pages.data[i].size / lines || cells[2] > 1) {
      return Status::kBadArgument;
    }
    inputs[i] = {pages.data[i].data + cells[0] * lines, pages.data[i].data + cells[1] * lines,
                 cells[2] == 1};
  }
  std::size_t count = 0;
  for (;;) {
    Cursor* least = nullptr;
    bool starved = false;
    for (Cursor& input : inputs) {
      if (input.at == input.end) {
        starved = starved || !input.last;
      } else if (least == nullptr || IsBefore(*input.at, *least->at)) {
        least = &input;
      }
    }
    if (starved) break;
    if (least == nullptr) {
      if (open->count != 0 && count < room) {
        form.CopyPaged(open, into.data + count++ * lines);
        *open = {};
      }
      break;
    }
    const Accumulator& part = *least->at;
    if (!IsSession(part)) return Status::kBadArgument;
    if (open->count != 0) {
      if (IsBefore(part, *open)) return Status::kBadArgument;
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
    least->at += lines;
    if (least->at != least->end && !IsBefore(part, *least->at)) return Status::kBadArgument;
  }
  for (std::size_t i = 0; i < runs; i++) {
    cursors.data[i * 3] = static_cast<std::uint32_t>(
        static_cast<std::size_t>(inputs[i].at - pages.data[i].data) / lines);
  }
  *written = count;
  return Status::kOk;
}

}  // namespace millrace::kernel
