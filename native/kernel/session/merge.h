// Merge of sorted runs of session parts, page by page. Each run ascends by account_id (unsigned)
// and start.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/rows/form.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Merges sorted runs of session parts; inputs, cursors and stops are those of MergeRuns. Parts of
// one key that lie less than the gap apart become one session. The output ascends by account_id and
// start.
//
// The last session begun may continue in pages that are not loaded yet. It is kept in `open`, whose
// count is 0 when there is none, and is written once no later part can join it. The merge is
// complete when every input is at its end and `open` is empty.
//
// kBadArgument when a cursor leaves its page, a row is no session, or rows of an input do not
// ascend; then cursors, `open` and `into` are invalid. REQUIRES: 1 <= gap_ms <= kDurationMsMax.
Status MergeSessions(const RowForm& form, std::int64_t gap_ms,
                     Span<const Span<const Accumulator>> pages, Span<std::uint32_t> cursors,
                     Accumulator* open, Span<Accumulator> into, std::size_t* written);

}  // namespace millrace::kernel
