// Wire format of frames: 00, schema id (u32 big-endian), for Protobuf the message indexes, payload.
//
// Message indexes are zigzag varints `count, index…`, from the file down to the message; the path
// [0] is written as the single byte 00 and read as `02 00` too. A varint is at most five bytes,
// within 32 bits, and as short as its number allows.
#pragma once

#include <cstdint>

#include "kernel/batch.h"
#include "kernel/span.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

// Reads the header of each value, and with `protobuf` the message indexes behind it, into the row
// of the same number. `framed` is the number of rows with FRAME_STATUS.OK; the other columns of all
// other rows are 0. A value that leaves the used arena is reported as truncated. Nothing outside a
// value's span is read. kTooFewRows when `into` has fewer rows than there are records; then nothing
// is written.
Status ScanFrames(const Rows<layout::RecordBatch>& records, bool protobuf,
                  Rows<layout::FrameBatch>* into, std::uint32_t* framed);

// Bytes of a frame before its payload.
struct FramePrefix {
  // Five bytes for each number; there is one number more than the path is deep.
  static constexpr std::size_t kBytesMax =
      layout::kFrameHeaderBytes + 5 * (layout::kFrameMessageDepthMax + 1);
  std::uint8_t bytes[kBytesMax];
  std::uint32_t size = 0;
};

// Makes the prefix of a schema id. `indexes` with data == nullptr: no message indexes (Avro).
// kBadArgument for an empty path, a path deeper than FRAME.MESSAGE_DEPTH_MAX, or a negative index.
Status MakeFramePrefix(std::uint32_t schema_id, Span<const std::int32_t> indexes,
                       FramePrefix* prefix);

// Appends one record for each payload to `into` and updates its header. The value is prefix and
// payload; the key is null, the topic index 0, the partition -1. A payload length of -1 appends a
// null value without a frame. `taken` is the number of payloads that fitted; no part of the next
// payload is written. kSpanOutOfRange when a span leaves `payloads`, or there are fewer spans than
// `count`; then nothing is written.
Status WriteFrames(Span<const std::uint8_t> payloads, Span<const std::uint32_t> payload_start,
                   Span<const std::int32_t> payload_length, std::uint32_t count,
                   const FramePrefix& prefix, Rows<layout::RecordBatch>* into,
                   std::uint32_t* taken);

}  // namespace millrace::kernel
