// Admission: which events of a batch are in time, which slice each belongs to, and where the batch
// has to stop because a window is due. One pass in order of arrival; the verdict on a row depends
// on the rows before it alone, so where batches are cut changes nothing.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Takes rows from row `from` on until a window is due: until the frontier reaches the least end of
// an open window, of those that were open before and those that the rows open. Writes the rows in
// time to `admitted` and moves clock and progress; `taken` says how many rows were looked at, 0
// when a window was due before the first.
//
// A row, in this order: left alone at or behind its partition's limit; counted invalid without an
// event or with a timestamp outside the limits of src/core/time.ts; moves its partition's watermark
// (not further than the record's timestamp + max_future_ms, where the record has one) and ends its
// idleness; late when behind its partition's frontier, or behind the frontier of all, which only an
// event of a partition that was idle can be; else admitted. The frontier of all never falls.
// `refused`, which may be null, gets the rows that are late or invalid.
//
// kBadArgument when a cell of clock or progress is outside its range, `progress` is not a whole
// number of partitions, the batches differ in rows, `from` is beyond them, or a row names a
// partition that is not there or an offset that does not ascend: then the rows before it have been
// taken. kTooFewRows when `admitted` or `refused` is too small. REQUIRES: clock is
// layout::WindowClock.
Status Admit(Span<double> clock, Span<double> progress, const Rows<layout::RecordBatch>& records,
             const Rows<layout::EventBatch>& events, std::uint32_t from,
             Rows<layout::AdmittedBatch>* admitted, Rows<layout::RefusedBatch>* refused,
             std::uint32_t* taken);

}  // namespace millrace::kernel
