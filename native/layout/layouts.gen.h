// Generated from src/core/layout/layouts.ts by `npm run generate`; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::layout {

inline constexpr std::uint32_t kFingerprint = 0x9aef3cfaU;

constexpr std::uint64_t Align(std::uint64_t at) { return (at + 63U) & ~std::uint64_t{63}; }

// Identity of a batch buffer.
inline constexpr std::int32_t kBatchMagic = 826430029;

// Sentinels of record columns.
inline constexpr std::int32_t kSpanNull = -1;
inline constexpr std::int32_t kSpanNoOffset = -1001;

// Origin of the timestamp.
inline constexpr std::int32_t kTimestampTypeNone = 0;
inline constexpr std::int32_t kTimestampTypeCreate = 1;
inline constexpr std::int32_t kTimestampTypeAppend = 2;

// Properties of a record, as bits.
inline constexpr std::int32_t kRecordFlagKeyNull = 1;
inline constexpr std::int32_t kRecordFlagValueNull = 2;
inline constexpr std::int32_t kRecordFlagHasHeaders = 4;

// Identity, version and bound of the deltas of a batch.
inline constexpr std::int32_t kWindowDeltasFormMagic = 826562381;
inline constexpr std::int32_t kWindowDeltasFormVersion = 1;
inline constexpr std::int32_t kWindowDeltasFormDeltasMax = 16777216;

// Identity, version and bound of the partial sessions of a batch.
inline constexpr std::int32_t kSessionDeltasFormMagic = 826561357;
inline constexpr std::int32_t kSessionDeltasFormVersion = 2;
inline constexpr std::int32_t kSessionDeltasFormDeltasMax = 16777216;

// Aggregates of a row's cells; null counts in none. COUNT, MIN, MAX: one cell. SUM: two cells, 128 bits. MIN_DOUBLE, MAX_DOUBLE: one cell, a number with the order of the doubles. FIRST, LAST: event time, partition, offset, value. SUM_DOUBLE: head and digits, native/kernel/rows/double_sum.h. BUCKETS, BUCKETS_DOUBLE, DISTINCT, DISTINCT_DOUBLE: sketches, native/kernel/rows/sketch.h; TOP: native/kernel/rows/top.h.
inline constexpr std::int32_t kAggregateCount = 1;
inline constexpr std::int32_t kAggregateSum = 2;
inline constexpr std::int32_t kAggregateMin = 3;
inline constexpr std::int32_t kAggregateMax = 4;
inline constexpr std::int32_t kAggregateFirst = 5;
inline constexpr std::int32_t kAggregateLast = 6;
inline constexpr std::int32_t kAggregateSumDouble = 7;
inline constexpr std::int32_t kAggregateMinDouble = 8;
inline constexpr std::int32_t kAggregateMaxDouble = 9;
inline constexpr std::int32_t kAggregateBuckets = 10;
inline constexpr std::int32_t kAggregateBucketsDouble = 11;
inline constexpr std::int32_t kAggregateDistinct = 12;
inline constexpr std::int32_t kAggregateDistinctDouble = 13;
inline constexpr std::int32_t kAggregateTop = 14;

// Verdict of the delta decode; unless OK nothing was folded in.
inline constexpr std::int32_t kDeltaStatusOk = 0;
inline constexpr std::int32_t kDeltaStatusBadHead = 1;
inline constexpr std::int32_t kDeltaStatusBadSlice = 2;
inline constexpr std::int32_t kDeltaStatusBadColumn = 3;
inline constexpr std::int32_t kDeltaStatusBadDelta = 4;

// Verdict of the event decode. FILTERED: a valid event that advances watermarks and is in no window. NO_EVENT: a row that only moves the position, such as that of a record whose list is empty. The others: no event.
inline constexpr std::int32_t kEventStatusOk = 0;
inline constexpr std::int32_t kEventStatusNull = 1;
inline constexpr std::int32_t kEventStatusBadLength = 2;
inline constexpr std::int32_t kEventStatusFiltered = 3;
inline constexpr std::int32_t kEventStatusBadMagic = 4;
inline constexpr std::int32_t kEventStatusTruncatedFrame = 5;
inline constexpr std::int32_t kEventStatusUnknownSchemaId = 6;
inline constexpr std::int32_t kEventStatusBadMessageIndex = 7;
inline constexpr std::int32_t kEventStatusIncompatibleSchema = 8;
inline constexpr std::int32_t kEventStatusMalformedPayload = 9;
inline constexpr std::int32_t kEventStatusMissingField = 10;
inline constexpr std::int32_t kEventStatusBadKey = 11;
inline constexpr std::int32_t kEventStatusBadTime = 12;
inline constexpr std::int32_t kEventStatusBadValue = 13;
inline constexpr std::int32_t kEventStatusBadList = 14;
inline constexpr std::int32_t kEventStatusNoEvent = 15;

// Reason that a row was not admitted.
inline constexpr std::int32_t kRefusalLate = 1;
inline constexpr std::int32_t kRefusalLateAfterIdle = 2;
inline constexpr std::int32_t kRefusalInvalid = 3;

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

// Shape of the timing wheel: a slot of a level spans all slots of the level below.
inline constexpr std::int32_t kArrivalWheelLevels = 3;
inline constexpr std::int32_t kArrivalWheelSlots = 1024;
inline constexpr std::int32_t kArrivalWheelSlotBits = 10;

// Random streams of the generators: third key word of the counter-based generator. Numbers never change.
inline constexpr std::int32_t kGenStreamAccount = 1;
inline constexpr std::int32_t kGenStreamEvent = 2;
inline constexpr std::int32_t kGenStreamDelay = 3;
inline constexpr std::int32_t kGenStreamNoise = 4;
inline constexpr std::int32_t kGenStreamOrder = 5;
inline constexpr std::int32_t kGenStreamVersion = 6;
inline constexpr std::int32_t kGenStreamLoad = 7;

// Fourth key word of every stream (changes when the meaning of a stream does), filler bytes per seed.
inline constexpr std::int32_t kGenKey = 1297237809;
inline constexpr std::int32_t kGenNoiseBytes = 65792;

// State of the streaming digest, in 32-bit words.
inline constexpr std::int32_t kXxh32Words = 12;

// Memory layout of a column, as in the Arrow columnar format.
inline constexpr std::int32_t kColumnKindNull = 0;
inline constexpr std::int32_t kColumnKindBool = 1;
inline constexpr std::int32_t kColumnKindInt32 = 2;
inline constexpr std::int32_t kColumnKindInt64 = 3;
inline constexpr std::int32_t kColumnKindUint32 = 4;
inline constexpr std::int32_t kColumnKindUint64 = 5;
inline constexpr std::int32_t kColumnKindFloat32 = 6;
inline constexpr std::int32_t kColumnKindFloat64 = 7;
inline constexpr std::int32_t kColumnKindUtf8 = 8;
inline constexpr std::int32_t kColumnKindBinary = 9;
inline constexpr std::int32_t kColumnKindFixed = 10;
inline constexpr std::int32_t kColumnKindDecimal128 = 11;
inline constexpr std::int32_t kColumnKindDecimal256 = 12;
inline constexpr std::int32_t kColumnKindDictionary = 13;
inline constexpr std::int32_t kColumnKindList = 14;
inline constexpr std::int32_t kColumnKindMap = 15;
inline constexpr std::int32_t kColumnKindStruct = 16;
inline constexpr std::int32_t kColumnKindUnion = 17;

// Words of one column in the table of a column schema: kind, 1 if nullable, bytes of a cell, index behind its subtree.
inline constexpr std::int32_t kColumnCellKind = 0;
inline constexpr std::int32_t kColumnCellNullable = 1;
inline constexpr std::int32_t kColumnCellSize = 2;
inline constexpr std::int32_t kColumnCellNext = 3;
inline constexpr std::int32_t kColumnCellCount = 4;

// Buffers of one column, in this order; a buffer that a column lacks has capacity 0.
inline constexpr std::int32_t kColumnSlotValidity = 0;
inline constexpr std::int32_t kColumnSlotOffsets = 1;
inline constexpr std::int32_t kColumnSlotValues = 2;
inline constexpr std::int32_t kColumnSlotCount = 3;

// Words of the state of a column batch. Behind HEAD: the length of each column, then offset and capacity of each buffer.
inline constexpr std::int32_t kColumnStateRowCount = 0;
inline constexpr std::int32_t kColumnStateRowCapacity = 1;
inline constexpr std::int32_t kColumnStateNeedSlot = 2;
inline constexpr std::int32_t kColumnStateNeedBytes = 3;
inline constexpr std::int32_t kColumnStateHead = 4;

// Verdict of one row. TOO_LARGE: its columns exceed the byte limit of a batch.
inline constexpr std::int32_t kColumnStatusOk = 0;
inline constexpr std::int32_t kColumnStatusMalformed = 1;
inline constexpr std::int32_t kColumnStatusIncompatible = 2;
inline constexpr std::int32_t kColumnStatusTooLarge = 3;
inline constexpr std::int32_t kColumnStatusNullValue = 4;

// Greatest number of columns of a schema, nesting of columns, elements of a column, and words of a program.
inline constexpr std::int32_t kColumnLimitColumns = 32768;
inline constexpr std::int32_t kColumnLimitDepth = 64;
inline constexpr std::int32_t kColumnLimitElements = 2147483647;
inline constexpr std::int32_t kColumnLimitProgramWords = 4194304;

// Bounds of an Avro payload: nesting of records, arrays and maps, and values without bytes.
inline constexpr std::int32_t kAvroLimitDepth = 256;
inline constexpr std::int32_t kAvroLimitEmptyValues = 65536;

// Instructions of a program for Avro payloads. Operands are words; `to` is the position of an instruction, `column` an index in preorder.
inline constexpr std::int32_t kAvroOpEnd = 0;
inline constexpr std::int32_t kAvroOpSkipInt = 1;
inline constexpr std::int32_t kAvroOpSkipLong = 2;
inline constexpr std::int32_t kAvroOpSkipBool = 3;
inline constexpr std::int32_t kAvroOpSkipFixed = 4;
inline constexpr std::int32_t kAvroOpSkipBytes = 5;
inline constexpr std::int32_t kAvroOpSkipText = 6;
inline constexpr std::int32_t kAvroOpSkipIndex = 7;
inline constexpr std::int32_t kAvroOpCheckEnum = 8;
inline constexpr std::int32_t kAvroOpRefuse = 9;
inline constexpr std::int32_t kAvroOpCall = 10;
inline constexpr std::int32_t kAvroOpJump = 11;
inline constexpr std::int32_t kAvroOpUnion = 12;
inline constexpr std::int32_t kAvroOpOptional = 13;
inline constexpr std::int32_t kAvroOpRecord = 14;
inline constexpr std::int32_t kAvroOpArray = 15;
inline constexpr std::int32_t kAvroOpMap = 16;
inline constexpr std::int32_t kAvroOpLazy = 17;
inline constexpr std::int32_t kAvroOpPick = 18;
inline constexpr std::int32_t kAvroOpBool = 20;
inline constexpr std::int32_t kAvroOpInt = 21;
inline constexpr std::int32_t kAvroOpLong = 22;
inline constexpr std::int32_t kAvroOpIntToLong = 23;
inline constexpr std::int32_t kAvroOpIntToFloat = 24;
inline constexpr std::int32_t kAvroOpLongToFloat = 25;
inline constexpr std::int32_t kAvroOpFloat = 26;
inline constexpr std::int32_t kAvroOpIntToDouble = 27;
inline constexpr std::int32_t kAvroOpLongToDouble = 28;
inline constexpr std::int32_t kAvroOpFloatToDouble = 29;
inline constexpr std::int32_t kAvroOpDouble = 30;
inline constexpr std::int32_t kAvroOpBytes = 31;
inline constexpr std::int32_t kAvroOpText = 32;
inline constexpr std::int32_t kAvroOpFixed = 33;
inline constexpr std::int32_t kAvroOpDecimal = 34;
inline constexpr std::int32_t kAvroOpEnum = 35;
inline constexpr std::int32_t kAvroOpNull = 40;
inline constexpr std::int32_t kAvroOpConstBool = 41;
inline constexpr std::int32_t kAvroOpConstInt = 42;
inline constexpr std::int32_t kAvroOpConstBytes = 43;
inline constexpr std::int32_t kAvroOpClose = 44;

// Bounds of a Protobuf payload: nesting of messages, map entries and groups; fields of all messages, at least FIELDS and FIELDS_PER_BYTE for each byte.
inline constexpr std::int32_t kProtoLimitDepth = 100;
inline constexpr std::int32_t kProtoLimitFields = 1048576;
inline constexpr std::int32_t kProtoLimitFieldsPerByte = 32;

// Encoding of a field of a program for Protobuf payloads.
inline constexpr std::int32_t kProtoKindInt32 = 0;
inline constexpr std::int32_t kProtoKindUint32 = 1;
inline constexpr std::int32_t kProtoKindSint32 = 2;
inline constexpr std::int32_t kProtoKindBool = 3;
inline constexpr std::int32_t kProtoKindInt64 = 4;
inline constexpr std::int32_t kProtoKindSint64 = 5;
inline constexpr std::int32_t kProtoKindFixed32 = 6;
inline constexpr std::int32_t kProtoKindFixed64 = 7;
inline constexpr std::int32_t kProtoKindString = 8;
inline constexpr std::int32_t kProtoKindBytes = 9;
inline constexpr std::int32_t kProtoKindEnum = 10;
inline constexpr std::int32_t kProtoKindClosedEnum = 11;
inline constexpr std::int32_t kProtoKindMessage = 12;

// Properties of a field of a program for Protobuf payloads.
inline constexpr std::int32_t kProtoFlagRepeated = 1;
inline constexpr std::int32_t kProtoFlagPresence = 2;
inline constexpr std::int32_t kProtoFlagRequired = 4;
inline constexpr std::int32_t kProtoFlagGroup = 8;
inline constexpr std::int32_t kProtoFlagMap = 16;
inline constexpr std::int32_t kProtoFlagRaw = 32;
inline constexpr std::int32_t kProtoFlagPacked = 64;
inline constexpr std::int32_t kProtoFlagHidesZero = 128;

// Words of a program for Protobuf payloads. Head: nodes, enum tables, oneofs. A node is a message at one column (or -1): struct column, fields, counted fields, tags; FIELD words a field: kind, flags, column or -1, node or enum table or -1, oneof or -1, kind of the map key, zero; TAG words a tag, ascending: tag, field, 1 for a packed run. An enum table: count, then number and index, ascending. A oneof: count, then its fields.
inline constexpr std::int32_t kProtoWordHead = 3;
inline constexpr std::int32_t kProtoWordNode = 4;
inline constexpr std::int32_t kProtoWordField = 7;
inline constexpr std::int32_t kProtoWordTag = 3;

// Words of the state of encoded frames: rows, and bytes that the buffer must hold for the next row.
inline constexpr std::int32_t kFramesStateRowCount = 0;
inline constexpr std::int32_t kFramesStateNeedBytes = 1;
inline constexpr std::int32_t kFramesStateCount = 2;

// Verdict of one encoded row. REFUSED: the schema refuses a value. BROKEN: an offset or a type id leaves its column. TOO_LARGE: the frame exceeds its limit. NULL_VALUE, NO_VALUE: the row has no value, or could not be decoded.
inline constexpr std::int32_t kEncodeStatusOk = 0;
inline constexpr std::int32_t kEncodeStatusRefused = 1;
inline constexpr std::int32_t kEncodeStatusBroken = 2;
inline constexpr std::int32_t kEncodeStatusTooLarge = 3;
inline constexpr std::int32_t kEncodeStatusNullValue = 4;
inline constexpr std::int32_t kEncodeStatusNoValue = 5;

// Greatest number of bytes of an encoded payload and of the prefix of a frame; free bytes that a kernel demands for each column; messages around a checked value.
inline constexpr std::int32_t kEncodeLimitPayloadBytes = 67108864;
inline constexpr std::int32_t kEncodeLimitPrefixBytes = 1024;
inline constexpr std::int32_t kEncodeLimitSpareBytes = 64;
inline constexpr std::int32_t kEncodeLimitWraps = 128;

// Words of one column in a program that encodes Avro: branch of a value and of null in the column's union (or -1), and the operand: symbols of an enum, bytes of a decimal, check of a binary column with encoded values (or -1).
inline constexpr std::int32_t kAvroPutValueBranch = 0;
inline constexpr std::int32_t kAvroPutNullBranch = 1;
inline constexpr std::int32_t kAvroPutOperand = 2;
inline constexpr std::int32_t kAvroPutCount = 3;

// Words of one column in a program that encodes Protobuf, zero except at the column of a field: PROTO_KIND, PROTO_FLAG, field number, oneof or -1, table of an enum or check of a binary message or -1, PROTO_KIND of the map key or -1.
inline constexpr std::int32_t kProtoPutKind = 0;
inline constexpr std::int32_t kProtoPutFlags = 1;
inline constexpr std::int32_t kProtoPutNumber = 2;
inline constexpr std::int32_t kProtoPutOneof = 3;
inline constexpr std::int32_t kProtoPutOperand = 4;
inline constexpr std::int32_t kProtoPutKey = 5;
inline constexpr std::int32_t kProtoPutCount = 6;

// First 64 bytes of every batch.
struct BatchHeader {
  std::uint32_t magic;  // BATCH.MAGIC
  std::uint32_t layout_id;  // Id of the batch layout.
  std::uint32_t row_count;  // Rows in use.
  std::uint32_t row_capacity;  // Cells of a column.
  std::uint32_t arena_used;  // Bytes of the arena in use.
  std::uint32_t arena_capacity;  // Bytes of the arena.
  std::int32_t status;  // Status word of the last call that filled the batch.
  std::int32_t detail;  // Number that belongs to the status.
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
  std::int32_t* topic_index = nullptr;  // Index into the topic names of the component that filled the batch.
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

// Entry in the cache of variable-length keys, padded with zeros to whole words.
struct KeyEntry {
  static constexpr std::size_t kBytes = 20;
  static constexpr std::size_t kIdLowAt = 0;  // u32. Low half of the id.
  static constexpr std::size_t kIdHighAt = 4;  // u32. High half of the id.
  static constexpr std::size_t kGenerationAt = 8;  // i32. Newest generation that has the key.
  static constexpr std::size_t kEpochAt = 12;  // i32. Write of the store that has the key.
  static constexpr std::size_t kLengthAt = 16;  // u32. Twice the bytes of the key, plus 1 once it was used.
  static constexpr std::size_t kTextAt = 20;  // bytes. The key.
};
static_assert(KeyEntry::kTextAt <= KeyEntry::kBytes, "fields lie inside the struct");
static_assert(KeyEntry::kIdLowAt >= 0, "fields do not overlap");
static_assert(KeyEntry::kIdHighAt >= 4, "fields do not overlap");
static_assert(KeyEntry::kGenerationAt >= 8, "fields do not overlap");
static_assert(KeyEntry::kEpochAt >= 12, "fields do not overlap");
static_assert(KeyEntry::kLengthAt >= 16, "fields do not overlap");
static_assert(KeyEntry::kTextAt >= 20, "fields do not overlap");

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
  std::uint8_t* status = nullptr;  // EVENT_STATUS.*; the other columns are 0 unless OK or FILTERED.

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

// Aggregate of one key in one window: a slot of the state table, a row of a snapshot, a fired result.
struct Accumulator {
  static constexpr std::size_t kBytes = 64;
  static constexpr std::size_t kAccountIdAt = 0;  // u64. The key.
  static constexpr std::size_t kCountAt = 8;  // u64. Events folded in; 0 marks an empty slot.
  static constexpr std::size_t kSumLowAt = 16;  // u64. Low half of the exact 128-bit sum, two's complement.
  static constexpr std::size_t kSumHighAt = 24;  // i64. High half of the sum.
  static constexpr std::size_t kMinAt = 32;  // i64. Least value.
  static constexpr std::size_t kMaxAt = 40;  // i64. Greatest value.
  static constexpr std::size_t kLastUpdateTsAt = 48;  // i64. Greatest event_ts folded in.
  static constexpr std::size_t kSpareAt = 56;  // u64. First event_ts of a session (i64); else zero.
};
static_assert(Accumulator::kSpareAt <= Accumulator::kBytes, "fields lie inside the struct");
static_assert(Accumulator::kAccountIdAt >= 0, "fields do not overlap");
static_assert(Accumulator::kCountAt >= 8, "fields do not overlap");
static_assert(Accumulator::kSumLowAt >= 16, "fields do not overlap");
static_assert(Accumulator::kSumHighAt >= 24, "fields do not overlap");
static_assert(Accumulator::kMinAt >= 32, "fields do not overlap");
static_assert(Accumulator::kMaxAt >= 40, "fields do not overlap");
static_assert(Accumulator::kLastUpdateTsAt >= 48, "fields do not overlap");
static_assert(Accumulator::kSpareAt >= 56, "fields do not overlap");

// Parameters, then state, that decide which events are in time and which windows are due, as 64-bit floats. Whole ms.
struct WindowClock {
  static constexpr std::size_t kBytes = 128;
  static constexpr std::size_t kGlobalAt = 0;  // f64. 1: one watermark over all partitions; 0: one a partition.
  static constexpr std::size_t kSliceMsAt = 8;  // f64. Width of a slice; divides slide and size. Sessions: 0, as slide and size.
  static constexpr std::size_t kSlideMsAt = 16;  // f64. Distance of two window starts.
  static constexpr std::size_t kSizeMsAt = 24;  // f64. Length of a window; 0: sessions, no slice makes a window due.
  static constexpr std::size_t kDelayMsAt = 32;  // f64. Allowed skew plus allowed lateness.
  static constexpr std::size_t kMaxFutureMsAt = 40;  // f64. Most ms that an event may be ahead of its record and still move the watermark; -1: no limit.
  static constexpr std::size_t kNextEndAt = 48;  // f64. Least end of an open window; Infinity: none.
  static constexpr std::size_t kFrontierAt = 56;  // f64. Least watermark less lateness: windows that end at or before it are final; it never falls. -Infinity: none is.
  static constexpr std::size_t kMaxSeenAt = 64;  // f64. Greatest event_ts that moved a watermark.
  static constexpr std::size_t kSpareAt = 72;  // bytes. Zero.
};
static_assert(WindowClock::kSpareAt <= WindowClock::kBytes, "fields lie inside the struct");
static_assert(WindowClock::kGlobalAt >= 0, "fields do not overlap");
static_assert(WindowClock::kSliceMsAt >= 8, "fields do not overlap");
static_assert(WindowClock::kSlideMsAt >= 16, "fields do not overlap");
static_assert(WindowClock::kSizeMsAt >= 24, "fields do not overlap");
static_assert(WindowClock::kDelayMsAt >= 32, "fields do not overlap");
static_assert(WindowClock::kMaxFutureMsAt >= 40, "fields do not overlap");
static_assert(WindowClock::kNextEndAt >= 48, "fields do not overlap");
static_assert(WindowClock::kFrontierAt >= 56, "fields do not overlap");
static_assert(WindowClock::kMaxSeenAt >= 64, "fields do not overlap");
static_assert(WindowClock::kSpareAt >= 72, "fields do not overlap");

// Position, watermark and counts of one partition, as 64-bit floats. accepted + droppedLate + invalid = consumed.
struct PartitionProgress {
  static constexpr std::size_t kBytes = 128;
  static constexpr std::size_t kNextOffsetAt = 0;  // f64. Next offset to process.
  static constexpr std::size_t kLimitAt = 8;  // f64. First offset that is not processed; Infinity: no limit.
  static constexpr std::size_t kMaxSeenAt = 16;  // f64. Greatest event_ts that counts for the watermark; -Infinity: none.
  static constexpr std::size_t kConsumedAt = 24;  // f64. Rows processed.
  static constexpr std::size_t kAcceptedAt = 32;  // f64. Rows admitted.
  static constexpr std::size_t kDroppedLateAt = 40;  // f64. Rows too late.
  static constexpr std::size_t kDroppedAfterIdleAt = 48;  // f64. Part of droppedLate: in time for their own partition, but behind the watermark of the windows.
  static constexpr std::size_t kInvalidAt = 56;  // f64. Rows without a valid event.
  static constexpr std::size_t kFutureClampedAt = 64;  // f64. Events whose effect on the watermark was limited.
  static constexpr std::size_t kIdleAt = 72;  // f64. 1: does not hold the watermark back until its next valid event; else 0.
  static constexpr std::size_t kSpareAt = 80;  // bytes. Zero.
};
static_assert(PartitionProgress::kSpareAt <= PartitionProgress::kBytes, "fields lie inside the struct");
static_assert(PartitionProgress::kNextOffsetAt >= 0, "fields do not overlap");
static_assert(PartitionProgress::kLimitAt >= 8, "fields do not overlap");
static_assert(PartitionProgress::kMaxSeenAt >= 16, "fields do not overlap");
static_assert(PartitionProgress::kConsumedAt >= 24, "fields do not overlap");
static_assert(PartitionProgress::kAcceptedAt >= 32, "fields do not overlap");
static_assert(PartitionProgress::kDroppedLateAt >= 40, "fields do not overlap");
static_assert(PartitionProgress::kDroppedAfterIdleAt >= 48, "fields do not overlap");
static_assert(PartitionProgress::kInvalidAt >= 56, "fields do not overlap");
static_assert(PartitionProgress::kFutureClampedAt >= 64, "fields do not overlap");
static_assert(PartitionProgress::kIdleAt >= 72, "fields do not overlap");
static_assert(PartitionProgress::kSpareAt >= 80, "fields do not overlap");

// Rows of an event batch that are in time, in order of arrival.
struct AdmittedBatch {
  static constexpr std::uint32_t kId = 7;
  BatchHeader* header = nullptr;
  std::int64_t* slice = nullptr;  // Start of the slice that holds the event, ms.
  std::uint32_t* row = nullptr;  // Row of the event batch.

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 8);  // slice
    at = Align(at + row_capacity * 4);  // row
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static AdmittedBatch Over(std::uint8_t* base, std::uint64_t row_capacity) {
    AdmittedBatch batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.slice = reinterpret_cast<std::int64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.row = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    return batch;
  }
};
static_assert(AdmittedBatch::Bytes(1000) == 12096, "the two languages agree on the size");

// Rows of an event batch that are late or no event, in order of arrival.
struct RefusedBatch {
  static constexpr std::uint32_t kId = 8;
  BatchHeader* header = nullptr;
  std::int64_t* bound = nullptr;  // Least event_ts that would have been in time, for an invalid row that of its partition; -2^62: any.
  std::uint32_t* row = nullptr;  // Row of the event batch.
  std::uint8_t* reason = nullptr;  // REFUSAL.*

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 8);  // bound
    at = Align(at + row_capacity * 4);  // row
    at = Align(at + row_capacity * 1);  // reason
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static RefusedBatch Over(std::uint8_t* base, std::uint64_t row_capacity) {
    RefusedBatch batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.bound = reinterpret_cast<std::int64_t*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.row = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.reason = reinterpret_cast<std::uint8_t*>(base + at);
    at = Align(at + row_capacity * 1);
    return batch;
  }
};
static_assert(RefusedBatch::Bytes(1000) == 13120, "the two languages agree on the size");

// Header of the deltas of one batch, pre-aggregated by key and slice. It precedes the slice starts (i64), then columns of packed integers: ceil(n / 2) bytes of 4-bit lengths (low half first), then each integer little-endian without leading zero bytes. Columns: account_id; slice number; count - 1; least value (zigzag); last_update_ts - slice start; then, of deltas with more than one event, greatest - least value, and the low and high half of the sum (zigzag, 128 bit).
struct WindowDeltas {
  static constexpr std::size_t kBytes = 32;
  static constexpr std::size_t kMagicAt = 0;  // u32. WINDOW_DELTAS_FORM.MAGIC
  static constexpr std::size_t kVersionAt = 4;  // u32. WINDOW_DELTAS_FORM.VERSION
  static constexpr std::size_t kLengthAt = 8;  // u32. Bytes of header and columns together.
  static constexpr std::size_t kDeltaCountAt = 12;  // u32. Number of deltas.
  static constexpr std::size_t kSliceCountAt = 16;  // u32. Number of distinct slice starts.
  static constexpr std::size_t kSpareAt = 20;  // u32. Zero.
  static constexpr std::size_t kSliceMsAt = 24;  // i64. Width of a slice.
};
static_assert(WindowDeltas::kSliceMsAt <= WindowDeltas::kBytes, "fields lie inside the struct");
static_assert(WindowDeltas::kMagicAt >= 0, "fields do not overlap");
static_assert(WindowDeltas::kVersionAt >= 4, "fields do not overlap");
static_assert(WindowDeltas::kLengthAt >= 8, "fields do not overlap");
static_assert(WindowDeltas::kDeltaCountAt >= 12, "fields do not overlap");
static_assert(WindowDeltas::kSliceCountAt >= 16, "fields do not overlap");
static_assert(WindowDeltas::kSpareAt >= 20, "fields do not overlap");
static_assert(WindowDeltas::kSliceMsAt >= 24, "fields do not overlap");

// Header of the partial sessions of one batch. It precedes columns of packed integers, as of WindowDeltas: account_id; start - least start; count - 1; least value (zigzag); then, of sessions with more than one event, last_update_ts - start, greatest - least value, and the low and high half of the sum (zigzag, 128 bit).
struct SessionDeltas {
  static constexpr std::size_t kBytes = 32;
  static constexpr std::size_t kMagicAt = 0;  // u32. SESSION_DELTAS_FORM.MAGIC
  static constexpr std::size_t kVersionAt = 4;  // u32. SESSION_DELTAS_FORM.VERSION
  static constexpr std::size_t kLengthAt = 8;  // u32. Bytes of header and columns together.
  static constexpr std::size_t kDeltaCountAt = 12;  // u32. Number of partial sessions.
  static constexpr std::size_t kGapMsAt = 16;  // i64. Gap of the sessions.
  static constexpr std::size_t kLeastStartAt = 24;  // i64. Start of the earliest partial session; 0 without any.
};
static_assert(SessionDeltas::kLeastStartAt <= SessionDeltas::kBytes, "fields lie inside the struct");
static_assert(SessionDeltas::kMagicAt >= 0, "fields do not overlap");
static_assert(SessionDeltas::kVersionAt >= 4, "fields do not overlap");
static_assert(SessionDeltas::kLengthAt >= 8, "fields do not overlap");
static_assert(SessionDeltas::kDeltaCountAt >= 12, "fields do not overlap");
static_assert(SessionDeltas::kGapMsAt >= 16, "fields do not overlap");
static_assert(SessionDeltas::kLeastStartAt >= 24, "fields do not overlap");

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

// Parameters of the event generator, as 64-bit floats. Whole numbers unless stated otherwise.
struct GenParams {
  static constexpr std::size_t kBytes = 128;
  static constexpr std::size_t kSeedLowAt = 0;  // f64. Low 32 bits of the seed.
  static constexpr std::size_t kSeedHighAt = 8;  // f64. High 32 bits of the seed.
  static constexpr std::size_t kAccountBaseLowAt = 16;  // f64. Low 32 bits of the account_id of rank 1.
  static constexpr std::size_t kAccountBaseHighAt = 24;  // f64. High 32 bits of the account_id of rank 1.
  static constexpr std::size_t kPowerWholeAt = 32;  // f64. Whole part of the Zipf exponent.
  static constexpr std::size_t kPowerFractionAt = 40;  // f64. Fraction of the Zipf exponent in units of 2^-30.
  static constexpr std::size_t kValueMinAt = 48;  // f64. Least value.
  static constexpr std::size_t kValueSpanAt = 56;  // f64. Number of different values.
  static constexpr std::size_t kBaseTsAt = 64;  // f64. event_ts of event 0, ms since the epoch.
  static constexpr std::size_t kPerMsAt = 72;  // f64. Events in a millisecond of event time; may be a fraction.
  static constexpr std::size_t kTypicalBelowAt = 80;  // f64. A 32-bit word below this is a typical delay.
  static constexpr std::size_t kTailBelowAt = 88;  // f64. Any other word below this is a delay of the tail; the rest are stragglers.
  static constexpr std::size_t kTypicalMaxMsAt = 96;  // f64. Largest typical delay, ms.
  static constexpr std::size_t kTailMaxMsAt = 104;  // f64. Largest delay of the tail, ms.
  static constexpr std::size_t kStragglerMaxMsAt = 112;  // f64. Largest delay of a straggler, ms.
  static constexpr std::size_t kCountAt = 120;  // f64. Events in the whole stream.
};
static_assert(GenParams::kCountAt <= GenParams::kBytes, "fields lie inside the struct");
static_assert(GenParams::kSeedLowAt >= 0, "fields do not overlap");
static_assert(GenParams::kSeedHighAt >= 8, "fields do not overlap");
static_assert(GenParams::kAccountBaseLowAt >= 16, "fields do not overlap");
static_assert(GenParams::kAccountBaseHighAt >= 24, "fields do not overlap");
static_assert(GenParams::kPowerWholeAt >= 32, "fields do not overlap");
static_assert(GenParams::kPowerFractionAt >= 40, "fields do not overlap");
static_assert(GenParams::kValueMinAt >= 48, "fields do not overlap");
static_assert(GenParams::kValueSpanAt >= 56, "fields do not overlap");
static_assert(GenParams::kBaseTsAt >= 64, "fields do not overlap");
static_assert(GenParams::kPerMsAt >= 72, "fields do not overlap");
static_assert(GenParams::kTypicalBelowAt >= 80, "fields do not overlap");
static_assert(GenParams::kTailBelowAt >= 88, "fields do not overlap");
static_assert(GenParams::kTypicalMaxMsAt >= 96, "fields do not overlap");
static_assert(GenParams::kTailMaxMsAt >= 104, "fields do not overlap");
static_assert(GenParams::kStragglerMaxMsAt >= 112, "fields do not overlap");
static_assert(GenParams::kCountAt >= 120, "fields do not overlap");

// Ranks in runs, one row a run, with an alias table over the runs. Source: Walker 1977, Vose 1991.
struct ZipfTable {
  static constexpr std::uint32_t kId = 4;
  BatchHeader* header = nullptr;
  double* cut = nullptr;  // A fraction below this stays in the run, above goes to the alias.
  double* top = nullptr;  // First rank of the run to the power s.
  double* sure = nullptr;  // A fraction below this accepts any rank of the run.
  std::uint32_t* first = nullptr;  // First rank of the run, from 1.
  std::uint32_t* size = nullptr;  // Ranks in the run.
  std::int32_t* alias = nullptr;  // The other run of this cell.

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 8);  // cut
    at = Align(at + row_capacity * 8);  // top
    at = Align(at + row_capacity * 8);  // sure
    at = Align(at + row_capacity * 4);  // first
    at = Align(at + row_capacity * 4);  // size
    at = Align(at + row_capacity * 4);  // alias
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static ZipfTable Over(std::uint8_t* base, std::uint64_t row_capacity) {
    ZipfTable batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.cut = reinterpret_cast<double*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.top = reinterpret_cast<double*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.sure = reinterpret_cast<double*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.first = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.size = reinterpret_cast<std::uint32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.alias = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    return batch;
  }
};
static_assert(ZipfTable::Bytes(1000) == 36160, "the two languages agree on the size");

// State of the delayed order, as 64-bit floats. Times are ms after the first event.
struct ArrivalState {
  static constexpr std::size_t kBytes = 64;
  static constexpr std::size_t kClockAt = 0;  // f64. Millisecond whose arrivals are emitted.
  static constexpr std::size_t kNextSeqAt = 8;  // f64. First event not yet delayed.
  static constexpr std::size_t kPendingAt = 16;  // f64. Events delayed and not yet emitted.
  static constexpr std::size_t kFreeHeadAt = 24;  // f64. First free row of the pool; -1 none.
  static constexpr std::size_t kEmittedAt = 32;  // f64. Events emitted.
  static constexpr std::size_t kPoolFullAt = 40;  // f64. 1: the last call stopped for want of pool rows.
  static constexpr std::size_t kReservedAt = 48;  // f64. 0.
};
static_assert(ArrivalState::kReservedAt <= ArrivalState::kBytes, "fields lie inside the struct");
static_assert(ArrivalState::kClockAt >= 0, "fields do not overlap");
static_assert(ArrivalState::kNextSeqAt >= 8, "fields do not overlap");
static_assert(ArrivalState::kPendingAt >= 16, "fields do not overlap");
static_assert(ArrivalState::kFreeHeadAt >= 24, "fields do not overlap");
static_assert(ArrivalState::kEmittedAt >= 32, "fields do not overlap");
static_assert(ArrivalState::kPoolFullAt >= 40, "fields do not overlap");
static_assert(ArrivalState::kReservedAt >= 48, "fields do not overlap");

// Hierarchical timing wheel: ARRIVAL_WHEEL.LEVELS times ARRIVAL_WHEEL.SLOTS lists of pool rows. Source: Varghese, Lauck 1987.
struct ArrivalWheel {
  static constexpr std::uint32_t kId = 5;
  BatchHeader* header = nullptr;
  std::int32_t* head = nullptr;  // First pool row of the list; -1 empty.
  std::int32_t* tail = nullptr;  // Last pool row of the list.

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 4);  // head
    at = Align(at + row_capacity * 4);  // tail
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static ArrivalWheel Over(std::uint8_t* base, std::uint64_t row_capacity) {
    ArrivalWheel batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.head = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    batch.tail = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    return batch;
  }
};
static_assert(ArrivalWheel::Bytes(1000) == 8128, "the two languages agree on the size");

// Events that wait for their arrival, one row each; free rows form a list.
struct ArrivalPool {
  static constexpr std::uint32_t kId = 6;
  BatchHeader* header = nullptr;
  double* seq = nullptr;  // Number of the event.
  double* arrival = nullptr;  // Arrival time, ms after the first event.
  std::int32_t* next = nullptr;  // Next row of its list; -1 last.

  // Bytes of a buffer that holds this batch.
  static constexpr std::uint64_t Bytes(std::uint64_t row_capacity) {
    std::uint64_t at = 64;
    at = Align(at + row_capacity * 8);  // seq
    at = Align(at + row_capacity * 8);  // arrival
    at = Align(at + row_capacity * 4);  // next
    return at;
  }

  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.
  static ArrivalPool Over(std::uint8_t* base, std::uint64_t row_capacity) {
    ArrivalPool batch;
    batch.header = reinterpret_cast<BatchHeader*>(base);
    std::uint64_t at = 64;
    batch.seq = reinterpret_cast<double*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.arrival = reinterpret_cast<double*>(base + at);
    at = Align(at + row_capacity * 8);
    batch.next = reinterpret_cast<std::int32_t*>(base + at);
    at = Align(at + row_capacity * 4);
    return batch;
  }
};
static_assert(ArrivalPool::Bytes(1000) == 20096, "the two languages agree on the size");

}  // namespace millrace::layout
