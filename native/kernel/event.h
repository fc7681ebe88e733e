// Decoder of the window engine's input event, 256 bytes, from record values into columns.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/shard/workers.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Decodes the value of each record into the row of the same number. `decoded` is the number of rows
// with EVENT_STATUS.OK. A value that leaves the used arena is reported as one of a bad length.
// kTooFewRows when `into` has fewer rows than there are records; then nothing is written.
Status DecodeEvents(const Rows<layout::RecordBatch>& records, Rows<layout::EventBatch>* into,
                    std::uint32_t* decoded);
// The same by several threads, where the batch is worth it.
Status DecodeEvents(const Rows<layout::RecordBatch>& records, Workers* workers,
                    Rows<layout::EventBatch>* into, std::uint32_t* decoded);

}  // namespace millrace::kernel
