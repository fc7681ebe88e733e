// Merge of sorted runs with a page ahead of each, so that one call passes many page ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/rows/form.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Merges as MergeRuns, with two pages of each of n inputs: page n + i follows page i, and `cursors`
// has three cells for each page. A following page without rows that is not the last is one that is
// not loaded. Stops when `into` is full, or when an input is at the end of its loaded pages and has
// more. `written` is the number of rows written; the cursors of all pages have moved. kBadArgument
// as MergeRuns, and for an odd number of pages.
Status MergeRunsAhead(const RowForm& form, Span<const Span<const Accumulator>> pages,
                      Span<std::uint32_t> cursors, Span<Accumulator> into, std::size_t* written);

}  // namespace millrace::kernel
