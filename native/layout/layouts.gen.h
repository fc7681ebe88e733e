// Generated from src/core/layout/layouts.ts by `npm run generate`; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::layout {

inline constexpr std::uint32_t kFingerprint = 0x9a5b40b7U;

constexpr std::uint64_t Align(std::uint64_t at) { return (at + 63U) & ~std::uint64_t{63}; }

// Identity of a batch buffer.
inline constexpr std::int32_t kBatchMagic = 826430029;

// Sentinels of record columns.
inline constexpr std::int32_t kSpanNull = -1;
inline constexpr std::int32_t kSpanNoOffset = -1001;

// Who set the timestamp.
inline constexpr std::int32_t kTimestampTypeNone = 0;
inline constexpr std::int32_t kTimestampTypeCreate = 1;
inline constexpr std::int32_t kTimestampTypeAppend = 2;

// Facts of a record, as bits.
inline constexpr std::int32_t kRecordFlagKeyNull = 1;
inline constexpr std::int32_t kRecordFlagValueNull = 2;
inline constexpr std::int32_t kRecordFlagHasHeaders = 4;

// Verdict of the event decode.
inline constexpr std::int32_t kEventStatusOk = 0;
inline constexpr std::int32_t kEventStatusNull = 1;
inline constexpr std::int32_t kEventStatusBadLength = 2;

// Numbers of the wire frame. MESSAGE_DEPTH_MAX bounds hostile index arrays.
inline constexpr std::int32_t kFrameMagic = 0;
inline constexpr std::int32_t kFrameHeaderBytes = 5;
inline constexpr std::int32_t kFrameMessageDepthMax = 16;

// Verdict of the frame scan.
inline constexpr std::int32_t kFrameStatusOk = 0;
inline constexpr std::int32_t kFrameStatusBadMagic = 1;
inline constexpr std::int32_t kFrameStatusTruncated = 2;
inline constexpr std::int32_t kFrameStatusBadMessageIndex = 3;
inline constexpr std::int32_t kFrameStatusNullValue = 4;

// First 64 bytes of every batch.
struct BatchHeader {
  std::uint32_t magic;  // BATCH.MAGIC
  std::uint32_t layout_id;  // Which batch layout follows.
  std::uint32_t row_count;  // Rows in use.
  std::uint32_t row_capacity;  // Cells a column has.
  std::uint32_t arena_used;  // Bytes of the arena in use.
  std::uint32_t arena_capacity;  // Bytes the arena has.
  std::int32_t status;  // Status word of the last call that filled the batch.
  std::int32_t detail;  // A number that goes with the status.
  std::uint8_t reserved[32];
};
static_assert(sizeof(BatchHeader) == 64);
static_assert(offsetof(BatchHeader, magic) == 0);
static_assert(offsetof(BatchHeader, layout_id) == 4);
static_assert(offsetof(BatchHeader, row_count) == 8);
static_assert(offsetof(BatchHeader, row_capacity) == 12);
static_assert(offsetof(BatchHeader, arena_used) == 16);
static_assert(offsetof(BatchHeader, arena_capacity) == 20);
static_assert(offsetof(BatchHeader, status) == 24);
static_assert(offsetof(BatchHeader, detail) == 28);

// Records of the log broker. Spans are offsets into the arena; a length of -1 is null, 0 is empty.
struct RecordBatch {
  static constexpr std::uint32_t kId = 1;
  BatchHeader* header = nullptr;
  std::int64_t* offset = nullptr;  // Offset in the partition; SPAN.NO_OFFSET before it is known.
  std::int64_t* timestamp = nullptr;  // Milliseconds since the epoch; 0 when producing: now.
  std::int32_t* topic_index = nullptr;  // Index into the topic names of whoever filled the batch.
  std::int32_t* partition = nullptr;  // Partition; -1 when producing: the partitioner decides.
  std::uint32_t* key_start = nullptr;  // Arena offset of the key.
  std::int32_t* key_length = nullptr;  // Bytes of the key; -1 null.
  std::uint32_t* value_start = nullptr;  // Arena offset of the value.
  std::int32_t* value_length = nullptr;  // Bytes of the value; -1 null.
  std::uint32_t* headers_start = nullptr;  // Arena offset of the header block.
  std::int32_t* headers_length = nullptr;  // Bytes of the header block; 0 none.
  std::uint8_t* timestamp_type = nullptr;  // TIMESTAMP_TYPE.*
  std::uint8_t* flags = nullptr;  // RECORD_FLAG.* bits
  std::uint8_t* arena = nullptr;

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity, std::uint64_t arena_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 8);  // offset
    at = Align(at + row_capacity * 8);  // timestamp
    at = Align(at + row_capacity * 4);  // topicIndex
    at = Align(at + row_capacity * 4);  // partition
    at = Align(at + row_capacity * 4);  // keyStart
    at = Align(at + row_capacity * 4);  // keyLength
    at = Align(at + row_capacity * 4);  // valueStart
    at = Align(at + row_capacity * 4);  // valueLength
    at = Align(at + row_capacity * 4);  // headersStart
    at = Align(at + row_capacity * 4);  // headersLength
    at = Align(at + row_capacity * 1);  // timestampType
    at = Align(at + row_capacity * 1);  // flags
    return Align(at + arena_capacity);
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static RecordBatch Over(std::uint8_t* base, std::uint64_t row_capacity) {
    RecordBatch batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.offset = reinterpret_cast<std::int64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.timestamp = reinterpret_cast<std::int64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.topic_index = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.partition = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.key_start = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.key_length = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.value_start = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.value_length = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.headers_start = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.headers_length = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.timestamp_type = reinterpret_cast<std::uint8_t*>(base + at);
    at = Align(at + row_capacity * 1);
    batch.flags = reinterpret_cast<std::uint8_t*>(base + at);
    at = Align(at + row_capacity * 1);
    batch.arena = base + at;
    return batch;
  }
};
static_assert(RecordBatch::Bytes(1000, 5000) == 55424, "the two languages agree on the size");

// One header inside a header block; blocks are these one after the other, unpadded.
struct RecordHeader {
  static constexpr std::size_t kBytes = 8;
  static constexpr std::size_t kNameLengthAt = 0;  // u32. Bytes of the name (UTF-8).
  static constexpr std::size_t kValueLengthAt = 4;  // i32. Bytes of the value; -1 null.
  static constexpr std::size_t kTextAt = 8;  // bytes. Name, then value.
};
static_assert(RecordHeader::kTextAt <= RecordHeader::kBytes, "fields lie inside the struct");
static_assert(RecordHeader::kNameLengthAt >= 0, "fields do not overlap");
static_assert(RecordHeader::kValueLengthAt >= 4, "fields do not overlap");
static_assert(RecordHeader::kTextAt >= 8, "fields do not overlap");

// Input event of the window engine. Source: requirements of the engine, section 2.
struct Event {
  static constexpr std::size_t kBytes = 256;
  static constexpr std::size_t kAccountIdAt = 0;  // u64. The key.
  static constexpr std::size_t kValueAt = 8;  // i64. Aggregated value.
  static constexpr std::size_t kEventTsAt = 16;  // i64. Event time, ms since the epoch.
  static constexpr std::size_t kSeqAt = 24;  // u64. Number of the event in its true order.
  static constexpr std::size_t kPadAt = 32;  // bytes. Filler to the message size.
};
static_assert(Event::kPadAt <= Event::kBytes, "fields lie inside the struct");
static_assert(Event::kAccountIdAt >= 0, "fields do not overlap");
static_assert(Event::kValueAt >= 8, "fields do not overlap");
static_assert(Event::kEventTsAt >= 16, "fields do not overlap");
static_assert(Event::kSeqAt >= 24, "fields do not overlap");
static_assert(Event::kPadAt >= 32, "fields do not overlap");

// Events decoded into columns, one row a record of the record batch they came from.
struct EventBatch {
  static constexpr std::uint32_t kId = 2;
  BatchHeader* header = nullptr;
  std::uint64_t* account_id = nullptr;  // The key.
  std::int64_t* value = nullptr;  // Aggregated value.
  std::int64_t* event_ts = nullptr;  // Event time, ms since the epoch.
  std::uint64_t* seq = nullptr;  // Number of the event.
  std::uint8_t* status = nullptr;  // EVENT_STATUS.*; the other columns are 0 unless OK.

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 8);  // accountId
    at = Align(at + row_capacity * 8);  // value
    at = Align(at + row_capacity * 8);  // eventTs
    at = Align(at + row_capacity * 8);  // seq
    at = Align(at + row_capacity * 1);  // status
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static EventBatch Over(std::uint8_t* base, std::uint64_t row_capacity) {
    EventBatch batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.account_id = reinterpret_cast<std::uint64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.value = reinterpret_cast<std::int64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.event_ts = reinterpret_cast<std::int64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.seq = reinterpret_cast<std::uint64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.status = reinterpret_cast<std::uint8_t*>(base + at);
    at = Align(at + row_capacity * 1);
    return batch;
  }
};
static_assert(EventBatch::Bytes(1000) == 33088, "the two languages agree on the size");

// Value of a framed record. Source: requirements of the registry, section 2.
struct WireFrame {
  static constexpr std::size_t kBytes = 5;
  static constexpr std::size_t kMagicAt = 0;  // u8. FRAME.MAGIC
  static constexpr std::size_t kSchemaIdAt = 1;  // u32be. Schema id, big-endian.
  static constexpr std::size_t kRestAt = 5;  // bytes. Protobuf: message indexes, then the payload. Avro: the payload.
};
static_assert(WireFrame::kRestAt <= WireFrame::kBytes, "fields lie inside the struct");
static_assert(WireFrame::kMagicAt >= 0, "fields do not overlap");
static_assert(WireFrame::kSchemaIdAt >= 1, "fields do not overlap");
static_assert(WireFrame::kRestAt >= 5, "fields do not overlap");

// Result of a frame scan, one row a record.
struct FrameBatch {
  static constexpr std::uint32_t kId = 3;
  BatchHeader* header = nullptr;
  std::uint32_t* schema_id = nullptr;  // Schema id; 0 unless OK.
  std::uint32_t* payload_start = nullptr;  // Arena offset of the payload in the record batch.
  std::int32_t* payload_length = nullptr;  // Bytes of the payload.
  std::int32_t* message_index = nullptr;  // Protobuf: a path of one index as itself, a deeper path -1; Avro 0.
  std::uint32_t* index_start = nullptr;  // Arena offset of the message-index array.
  std::uint8_t* status = nullptr;  // FRAME_STATUS.*

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 4);  // schemaId
    at = Align(at + row_capacity * 4);  // payloadStart
    at = Align(at + row_capacity * 4);  // payloadLength
    at = Align(at + row_capacity * 4);  // messageIndex
    at = Align(at + row_capacity * 4);  // indexStart
    at = Align(at + row_capacity * 1);  // status
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static FrameBatch Over(std::uint8_t* base, std::uint64_t row_capacity) {
    FrameBatch batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.schema_id = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.payload_start = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.payload_length = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.message_index = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.index_start = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.status = reinterpret_cast<std::uint8_t*>(base + at);
    at = Align(at + row_capacity * 1);
    return batch;
  }
};
static_assert(FrameBatch::Bytes(1000) == 21248, "the two languages agree on the size");

}  // namespace millrace::layout
