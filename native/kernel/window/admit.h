// Admission: decides which events of a batch are in time, assigns each to its slice, and stops the
// batch when a window is due. One pass in order of arrival. The verdict on a row depends only on
// earlier rows, so the boundaries of batches change nothing.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Processes rows from row `from` on until a window is due: until the global watermark reaches the
// least end of an open window, including the windows that these rows open, and on to the end of the
// record of the last row: neighbours with one partition and offset are the events of one record.
// Writes the rows in time to `admitted` and updates clock and progress. `taken` is the number of
// processed rows; 0 when a window was due before the first.
//
// Steps for a row, in this order: It is skipped at or behind its partition's limit. A row with
// status NO_EVENT only moves the position. It is counted as invalid without an event, or with a
// timestamp outside the limits of src/core/time.ts. It raises its partition's greatest event time
// (at most to the record's timestamp + max_future_ms, where the record has one) and ends the
// partition's idleness. A filtered event is then counted as accepted, late or not, and is in
// neither output. Any other event is late behind its partition's watermark, or behind the global
// watermark, which only happens to an event of a partition that was idle. Otherwise it is admitted.
// The global watermark (WindowClock.frontier) never decreases. `refused`, which may be null, gets
// the late and invalid rows.
//
// kBadArgument when a cell of clock or progress is outside its range, or `progress` is not a whole
// number of partitions. kBadArgument when the batches differ in rows, or `from` is beyond them.
// kBadArgument when a row names an unknown partition or an offset that does not ascend; then the
// rows before it have been processed. kTooFewRows when `admitted` or `refused` is too small.
//
// REQUIRES: clock is layout::WindowClock.
Status Admit(Span<double> clock, Span<double> progress, const Rows<layout::RecordBatch>& records,
             const Rows<layout::EventBatch>& events, std::uint32_t from,
             Rows<layout::AdmittedBatch>* admitted, Rows<layout::RefusedBatch>* refused,
             std::uint32_t* taken);

}  // namespace millrace::kernel
