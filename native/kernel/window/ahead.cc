#include "kernel/window/ahead.h"

#include <algorithm>
#include <vector>

#include "kernel/window/run.h"

namespace millrace::kernel {
namespace {

constexpr std::size_t kCells = 3;

}  // namespace

Status MergeRunsAhead(const RowForm& form, Span<const Span<const Accumulator>> pages,
                      Span<std::uint32_t> cursors, Span<Accumulator> into, std::size_t* written) {
  *written = 0;
  const std::size_t runs = pages.size / 2;
  if (pages.size % 2 != 0 || runs > kMergeRunsMax || cursors.size < pages.size * kCells)
    return Status::kBadArgument;
  std::vector<Span<const Accumulator>> current(pages.data, pages.data + runs);
  std::vector<std::uint32_t> cells(cursors.data, cursors.data + runs * kCells);
  // Place of the page that each input is in.
  std::vector<std::size_t> place(runs);
  for (std::size_t i = 0; i < runs; i++) place[i] = i;
  const std::size_t lines = form.page_lines();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < runs; i++) {
      std::uint32_t* const own = cells.data() + i * kCells;
      const std::uint32_t* const next = cursors.data + (runs + i) * kCells;
      if (place[i] != i || own[0] != own[1] || own[2] != 0) continue;
      if (next[0] == next[1] && next[2] == 0) continue;
      std::copy(own, own + kCells, cursors.data + i * kCells);
      place[i] = runs + i;
      current[i] = pages.data[runs + i];
      std::copy(next, next + kCells, own);
      moved = true;
    }
    std::size_t rows = 0;
    const std::size_t used = *written * lines;
    const Status status = MergeRuns(form, {current.data(), runs}, {cells.data(), cells.size()},
                                    {into.data + used, into.size - used}, &rows);
    if (status != Status::kOk) return status;
    *written += rows;
    moved = moved || rows > 0;
  }
  for (std::size_t i = 0; i < runs; i++) {
    std::copy(cells.data() + i * kCells, cells.data() + (i + 1) * kCells,
              cursors.data + place[i] * kCells);
  }
  return Status::kOk;
}

}  // namespace millrace::kernel
