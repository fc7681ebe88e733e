// Sessions that are in parts in several runs, each ascending by account_id (unsigned) and start,
// page by page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Inputs, cursors and stops are those of MergeRuns. Parts of one key that steps of less than the
// gap lead through become one session; what is written ascends by account_id and start. The last
// one begun may go on in pages that are not there yet: it stands in `open`, whose count is 0 when
// there is none, and is written once nothing can come near it. So all is done when every input is
// and `open` is empty. kBadArgument when a cursor leaves its page, a row is no session, or a page
// or the pages of an input do not ascend; then cursors, `open` and `into` are of no more use.
// REQUIRES: 1 <= gap_ms <= kDurationMsMax.
Status MergeSessions(std::int64_t gap_ms, Span<const Span<const Accumulator>> pages,
                     Span<std::uint32_t> cursors, Accumulator* open, Span<Accumulator> into,
                     std::size_t* written);

}  // namespace millrace::kernel
