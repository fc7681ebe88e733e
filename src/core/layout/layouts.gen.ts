// Generated from src/core/layout/layouts.ts by `npm run generate`; do not edit.

const align = (at: number): number => (at + 63) & ~63;

/** Identity of the whole set of layouts; the addon must report the same. */
export const LAYOUT_FINGERPRINT = 0x9aef3cfa;

/** Identity of a batch buffer. */
export const BATCH = {
  MAGIC: 826430029,
} as const;

/** Sentinels of record columns. */
export const SPAN = {
  NULL: -1,
  NO_OFFSET: -1001,
} as const;

/** Origin of the timestamp. */
export const TIMESTAMP_TYPE = {
  NONE: 0,
  CREATE: 1,
  APPEND: 2,
} as const;

/** Properties of a record, as bits. */
export const RECORD_FLAG = {
  KEY_NULL: 1,
  VALUE_NULL: 2,
  HAS_HEADERS: 4,
} as const;

/** Identity, version and bound of the deltas of a batch. */
export const WINDOW_DELTAS_FORM = {
  MAGIC: 826562381,
  VERSION: 1,
  DELTAS_MAX: 16777216,
} as const;

/** Identity, version and bound of the partial sessions of a batch. */
export const SESSION_DELTAS_FORM = {
  MAGIC: 826561357,
  VERSION: 2,
  DELTAS_MAX: 16777216,
} as const;

/** Aggregates of a row's cells; null counts in none. COUNT, MIN, MAX: one cell. SUM: two cells, 128 bits. MIN_DOUBLE, MAX_DOUBLE: one cell, a number with the order of the doubles. FIRST, LAST: event time, partition, offset, value. SUM_DOUBLE: head and digits, native/kernel/rows/double_sum.h. BUCKETS, BUCKETS_DOUBLE, DISTINCT, DISTINCT_DOUBLE: sketches, native/kernel/rows/sketch.h; TOP: native/kernel/rows/top.h. */
export const AGGREGATE = {
  COUNT: 1,
  SUM: 2,
  MIN: 3,
  MAX: 4,
  FIRST: 5,
  LAST: 6,
  SUM_DOUBLE: 7,
  MIN_DOUBLE: 8,
  MAX_DOUBLE: 9,
  BUCKETS: 10,
  BUCKETS_DOUBLE: 11,
  DISTINCT: 12,
  DISTINCT_DOUBLE: 13,
  TOP: 14,
} as const;

/** Verdict of the delta decode; unless OK nothing was folded in. */
export const DELTA_STATUS = {
  OK: 0,
  BAD_HEAD: 1,
  BAD_SLICE: 2,
  BAD_COLUMN: 3,
  BAD_DELTA: 4,
} as const;

/** Verdict of the event decode. FILTERED: a valid event that advances watermarks and is in no window. NO_EVENT: a row that only moves the position, such as that of a record whose list is empty. The others: no event. */
export const EVENT_STATUS = {
  OK: 0,
  NULL: 1,
  BAD_LENGTH: 2,
  FILTERED: 3,
  BAD_MAGIC: 4,
  TRUNCATED_FRAME: 5,
  UNKNOWN_SCHEMA_ID: 6,
  BAD_MESSAGE_INDEX: 7,
  INCOMPATIBLE_SCHEMA: 8,
  MALFORMED_PAYLOAD: 9,
  MISSING_FIELD: 10,
  BAD_KEY: 11,
  BAD_TIME: 12,
  BAD_VALUE: 13,
  BAD_LIST: 14,
  NO_EVENT: 15,
} as const;

/** Reason that a row was not admitted. */
export const REFUSAL = {
  LATE: 1,
  LATE_AFTER_IDLE: 2,
  INVALID: 3,
} as const;

/** Numbers of the wire frame. MESSAGE_DEPTH_MAX bounds hostile index arrays. */
export const FRAME = {
  MAGIC: 0,
  HEADER_BYTES: 5,
  MESSAGE_DEPTH_MAX: 16,
} as const;

/** Verdict of the frame scan. */
export const FRAME_STATUS = {
  OK: 0,
  BAD_MAGIC: 1,
  TRUNCATED: 2,
  BAD_MESSAGE_INDEX: 3,
  NULL_VALUE: 4,
} as const;

/** Shape of the timing wheel: a slot of a level spans all slots of the level below. */
export const ARRIVAL_WHEEL = {
  LEVELS: 3,
  SLOTS: 1024,
  SLOT_BITS: 10,
} as const;

/** Random streams of the generators: third key word of the counter-based generator. Numbers never change. */
export const GEN_STREAM = {
  ACCOUNT: 1,
  EVENT: 2,
  DELAY: 3,
  NOISE: 4,
  ORDER: 5,
  VERSION: 6,
  LOAD: 7,
} as const;

/** Fourth key word of every stream (changes when the meaning of a stream does), filler bytes per seed. */
export const GEN = {
  KEY: 1297237809,
  NOISE_BYTES: 65792,
} as const;

/** State of the streaming digest, in 32-bit words. */
export const XXH32 = {
  WORDS: 12,
} as const;

/** Memory layout of a column, as in the Arrow columnar format. */
export const COLUMN_KIND = {
  NULL: 0,
  BOOL: 1,
  INT32: 2,
  INT64: 3,
  UINT32: 4,
  UINT64: 5,
  FLOAT32: 6,
  FLOAT64: 7,
  UTF8: 8,
  BINARY: 9,
  FIXED: 10,
  DECIMAL128: 11,
  DECIMAL256: 12,
  DICTIONARY: 13,
  LIST: 14,
  MAP: 15,
  STRUCT: 16,
  UNION: 17,
} as const;

/** Words of one column in the table of a column schema: kind, 1 if nullable, bytes of a cell, index behind its subtree. */
export const COLUMN_CELL = {
  KIND: 0,
  NULLABLE: 1,
  SIZE: 2,
  NEXT: 3,
  COUNT: 4,
} as const;

/** Buffers of one column, in this order; a buffer that a column lacks has capacity 0. */
export const COLUMN_SLOT = {
  VALIDITY: 0,
  OFFSETS: 1,
  VALUES: 2,
  COUNT: 3,
} as const;

/** Words of the state of a column batch. Behind HEAD: the length of each column, then offset and capacity of each buffer. */
export const COLUMN_STATE = {
  ROW_COUNT: 0,
  ROW_CAPACITY: 1,
  NEED_SLOT: 2,
  NEED_BYTES: 3,
  HEAD: 4,
} as const;

/** Verdict of one row. TOO_LARGE: its columns exceed the byte limit of a batch. */
export const COLUMN_STATUS = {
  OK: 0,
  MALFORMED: 1,
  INCOMPATIBLE: 2,
  TOO_LARGE: 3,
  NULL_VALUE: 4,
} as const;

/** Greatest number of columns of a schema, nesting of columns, elements of a column, and words of a program. */
export const COLUMN_LIMIT = {
  COLUMNS: 32768,
  DEPTH: 64,
  ELEMENTS: 2147483647,
  PROGRAM_WORDS: 4194304,
} as const;

/** Bounds of an Avro payload: nesting of records, arrays and maps, and values without bytes. */
export const AVRO_LIMIT = {
  DEPTH: 256,
  EMPTY_VALUES: 65536,
} as const;

/** Instructions of a program for Avro payloads. Operands are words; `to` is the position of an instruction, `column` an index in preorder. */
export const AVRO_OP = {
  END: 0,
  SKIP_INT: 1,
  SKIP_LONG: 2,
  SKIP_BOOL: 3,
  SKIP_FIXED: 4,
  SKIP_BYTES: 5,
  SKIP_TEXT: 6,
  SKIP_INDEX: 7,
  CHECK_ENUM: 8,
  REFUSE: 9,
  CALL: 10,
  JUMP: 11,
  UNION: 12,
  OPTIONAL: 13,
  RECORD: 14,
  ARRAY: 15,
  MAP: 16,
  LAZY: 17,
  PICK: 18,
  BOOL: 20,
  INT: 21,
  LONG: 22,
  INT_TO_LONG: 23,
  INT_TO_FLOAT: 24,
  LONG_TO_FLOAT: 25,
  FLOAT: 26,
  INT_TO_DOUBLE: 27,
  LONG_TO_DOUBLE: 28,
  FLOAT_TO_DOUBLE: 29,
  DOUBLE: 30,
  BYTES: 31,
  TEXT: 32,
  FIXED: 33,
  DECIMAL: 34,
  ENUM: 35,
  NULL: 40,
  CONST_BOOL: 41,
  CONST_INT: 42,
  CONST_BYTES: 43,
  CLOSE: 44,
} as const;

/** Bounds of a Protobuf payload: nesting of messages, map entries and groups; fields of all messages, at least FIELDS and FIELDS_PER_BYTE for each byte. */
export const PROTO_LIMIT = {
  DEPTH: 100,
  FIELDS: 1048576,
  FIELDS_PER_BYTE: 32,
} as const;

/** Encoding of a field of a program for Protobuf payloads. */
export const PROTO_KIND = {
  INT32: 0,
  UINT32: 1,
  SINT32: 2,
  BOOL: 3,
  INT64: 4,
  SINT64: 5,
  FIXED32: 6,
  FIXED64: 7,
  STRING: 8,
  BYTES: 9,
  ENUM: 10,
  CLOSED_ENUM: 11,
  MESSAGE: 12,
} as const;

/** Properties of a field of a program for Protobuf payloads. */
export const PROTO_FLAG = {
  REPEATED: 1,
  PRESENCE: 2,
  REQUIRED: 4,
  GROUP: 8,
  MAP: 16,
  RAW: 32,
  PACKED: 64,
  HIDES_ZERO: 128,
} as const;

/** Words of a program for Protobuf payloads. Head: nodes, enum tables, oneofs. A node is a message at one column (or -1): struct column, fields, counted fields, tags; FIELD words a field: kind, flags, column or -1, node or enum table or -1, oneof or -1, kind of the map key, zero; TAG words a tag, ascending: tag, field, 1 for a packed run. An enum table: count, then number and index, ascending. A oneof: count, then its fields. */
export const PROTO_WORD = {
  HEAD: 3,
  NODE: 4,
  FIELD: 7,
  TAG: 3,
} as const;

/** Words of the state of encoded frames: rows, and bytes that the buffer must hold for the next row. */
export const FRAMES_STATE = {
  ROW_COUNT: 0,
  NEED_BYTES: 1,
  COUNT: 2,
} as const;

/** Verdict of one encoded row. REFUSED: the schema refuses a value. BROKEN: an offset or a type id leaves its column. TOO_LARGE: the frame exceeds its limit. NULL_VALUE, NO_VALUE: the row has no value, or could not be decoded. */
export const ENCODE_STATUS = {
  OK: 0,
  REFUSED: 1,
  BROKEN: 2,
  TOO_LARGE: 3,
  NULL_VALUE: 4,
  NO_VALUE: 5,
} as const;

/** Greatest number of bytes of an encoded payload and of the prefix of a frame; free bytes that a kernel demands for each column; messages around a checked value. */
export const ENCODE_LIMIT = {
  PAYLOAD_BYTES: 67108864,
  PREFIX_BYTES: 1024,
  SPARE_BYTES: 64,
  WRAPS: 128,
} as const;

/** Words of one column in a program that encodes Avro: branch of a value and of null in the column's union (or -1), and the operand: symbols of an enum, bytes of a decimal, check of a binary column with encoded values (or -1). */
export const AVRO_PUT = {
  VALUE_BRANCH: 0,
  NULL_BRANCH: 1,
  OPERAND: 2,
  COUNT: 3,
} as const;

/** Words of one column in a program that encodes Protobuf, zero except at the column of a field: PROTO_KIND, PROTO_FLAG, field number, oneof or -1, table of an enum or check of a binary message or -1, PROTO_KIND of the map key or -1. */
export const PROTO_PUT = {
  KIND: 0,
  FLAGS: 1,
  NUMBER: 2,
  ONEOF: 3,
  OPERAND: 4,
  KEY: 5,
  COUNT: 6,
} as const;

/** First 64 bytes of every batch. Byte offsets of its fields. */
export const BATCH_HEADER = {
  BYTES: 64,
  /** u32. BATCH.MAGIC */
  MAGIC: 0,
  /** u32. Id of the batch layout. */
  LAYOUT_ID: 4,
  /** u32. Rows in use. */
  ROW_COUNT: 8,
  /** u32. Cells of a column. */
  ROW_CAPACITY: 12,
  /** u32. Bytes of the arena in use. */
  ARENA_USED: 16,
  /** u32. Bytes of the arena. */
  ARENA_CAPACITY: 20,
  /** i32. Status word of the last call that filled the batch. */
  STATUS: 24,
  /** i32. Number that belongs to the status. */
  DETAIL: 28,
} as const;

export const RECORD_BATCH_ID = 1;

/** Records of the log broker. Spans are offsets into the arena; a length of -1 is null, 0 is empty. */
export interface RecordBatchViews {
  readonly header: Int32Array;
  /** i64[rowCapacity]. Offset in the partition; SPAN.NO_OFFSET before it is known. */
  readonly offset: BigInt64Array;
  /** i64[rowCapacity]. Milliseconds since the epoch; 0 when producing: now. */
  readonly timestamp: BigInt64Array;
  /** i32[rowCapacity]. Index into the topic names of the component that filled the batch. */
  readonly topicIndex: Int32Array;
  /** i32[rowCapacity]. Partition; -1 when producing: the partitioner decides. */
  readonly partition: Int32Array;
  /** u32[rowCapacity]. Arena offset of the key. */
  readonly keyStart: Uint32Array;
  /** i32[rowCapacity]. Bytes of the key; -1 null. */
  readonly keyLength: Int32Array;
  /** u32[rowCapacity]. Arena offset of the value. */
  readonly valueStart: Uint32Array;
  /** i32[rowCapacity]. Bytes of the value; -1 null. */
  readonly valueLength: Int32Array;
  /** u32[rowCapacity]. Arena offset of the header block. */
  readonly headersStart: Uint32Array;
  /** i32[rowCapacity]. Bytes of the header block; 0 none. */
  readonly headersLength: Int32Array;
  /** u8[rowCapacity]. TIMESTAMP_TYPE.* */
  readonly timestampType: Uint8Array;
  /** u8[rowCapacity]. RECORD_FLAG.* bits */
  readonly flags: Uint8Array;
  readonly arena: Uint8Array;
}

/** Bytes of a buffer that holds this batch. */
export function recordBatchBytes(rowCapacity: number, arenaCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 8); // offset
  at = align(at + rowCapacity * 8); // timestamp
  at = align(at + rowCapacity * 4); // topicIndex
  at = align(at + rowCapacity * 4); // partition
  at = align(at + rowCapacity * 4); // keyStart
  at = align(at + rowCapacity * 4); // keyLength
  at = align(at + rowCapacity * 4); // valueStart
  at = align(at + rowCapacity * 4); // valueLength
  at = align(at + rowCapacity * 4); // headersStart
  at = align(at + rowCapacity * 4); // headersLength
  at = align(at + rowCapacity * 1); // timestampType
  at = align(at + rowCapacity * 1); // flags
  return align(at + arenaCapacity);
}

/** Views over a buffer of at least that size; nothing is copied. */
export function recordBatchViews(buffer: ArrayBufferLike, rowCapacity: number, arenaCapacity: number): RecordBatchViews {
  let at = 64;
  const offset = new BigInt64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const timestamp = new BigInt64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const topicIndex = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const partition = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const keyStart = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const keyLength = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const valueStart = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const valueLength = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const headersStart = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const headersLength = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const timestampType = new Uint8Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 1);
  const flags = new Uint8Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 1);
  const arena = new Uint8Array(buffer, at, arenaCapacity);
  const header = new Int32Array(buffer, 0, 16);
  return { header, offset, timestamp, topicIndex, partition, keyStart, keyLength, valueStart, valueLength, headersStart, headersLength, timestampType, flags, arena };
}

/** One header inside a header block; blocks are these one after the other, unpadded. Byte offsets of its fields. */
export const RECORD_HEADER = {
  BYTES: 8,
  /** u32. Bytes of the name (UTF-8). */
  NAME_LENGTH: 0,
  /** i32. Bytes of the value; -1 null. */
  VALUE_LENGTH: 4,
  /** bytes. Name, then value. */
  TEXT: 8,
} as const;

/** Entry in the cache of variable-length keys, padded with zeros to whole words. Byte offsets of its fields. */
export const KEY_ENTRY = {
  BYTES: 20,
  /** u32. Low half of the id. */
  ID_LOW: 0,
  /** u32. High half of the id. */
  ID_HIGH: 4,
  /** i32. Newest generation that has the key. */
  GENERATION: 8,
  /** i32. Write of the store that has the key. */
  EPOCH: 12,
  /** u32. Twice the bytes of the key, plus 1 once it was used. */
  LENGTH: 16,
  /** bytes. The key. */
  TEXT: 20,
} as const;

/** Input event of the window engine. Source: requirements of the engine, section 2. Byte offsets of its fields. */
export const EVENT = {
  BYTES: 256,
  /** u64. The key. */
  ACCOUNT_ID: 0,
  /** i64. Aggregated value. */
  VALUE: 8,
  /** i64. Event time, ms since the epoch. */
  EVENT_TS: 16,
  /** u64. Number of the event in its true order. */
  SEQ: 24,
  /** bytes. Filler to the message size. */
  PAD: 32,
} as const;

export const EVENT_BATCH_ID = 2;

/** Events decoded into columns, one row a record of the record batch they came from. */
export interface EventBatchViews {
  readonly header: Int32Array;
  /** u64[rowCapacity]. The key. */
  readonly accountId: BigUint64Array;
  /** i64[rowCapacity]. Aggregated value. */
  readonly value: BigInt64Array;
  /** i64[rowCapacity]. Event time, ms since the epoch. */
  readonly eventTs: BigInt64Array;
  /** u64[rowCapacity]. Number of the event. */
  readonly seq: BigUint64Array;
  /** u8[rowCapacity]. EVENT_STATUS.*; the other columns are 0 unless OK or FILTERED. */
  readonly status: Uint8Array;
}

/** Bytes of a buffer that holds this batch. */
export function eventBatchBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 8); // accountId
  at = align(at + rowCapacity * 8); // value
  at = align(at + rowCapacity * 8); // eventTs
  at = align(at + rowCapacity * 8); // seq
  at = align(at + rowCapacity * 1); // status
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function eventBatchViews(buffer: ArrayBufferLike, rowCapacity: number): EventBatchViews {
  let at = 64;
  const accountId = new BigUint64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const value = new BigInt64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const eventTs = new BigInt64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const seq = new BigUint64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const status = new Uint8Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 1);
  const header = new Int32Array(buffer, 0, 16);
  return { header, accountId, value, eventTs, seq, status };
}

/** Aggregate of one key in one window: a slot of the state table, a row of a snapshot, a fired result. Byte offsets of its fields. */
export const ACCUMULATOR = {
  BYTES: 64,
  /** u64. The key. */
  ACCOUNT_ID: 0,
  /** u64. Events folded in; 0 marks an empty slot. */
  COUNT: 8,
  /** u64. Low half of the exact 128-bit sum, two's complement. */
  SUM_LOW: 16,
  /** i64. High half of the sum. */
  SUM_HIGH: 24,
  /** i64. Least value. */
  MIN: 32,
  /** i64. Greatest value. */
  MAX: 40,
  /** i64. Greatest event_ts folded in. */
  LAST_UPDATE_TS: 48,
  /** u64. First event_ts of a session (i64); else zero. */
  SPARE: 56,
} as const;

/** Parameters, then state, that decide which events are in time and which windows are due, as 64-bit floats. Whole ms. Byte offsets of its fields. */
export const WINDOW_CLOCK = {
  BYTES: 128,
  /** f64. 1: one watermark over all partitions; 0: one a partition. */
  GLOBAL: 0,
  /** f64. Width of a slice; divides slide and size. Sessions: 0, as slide and size. */
  SLICE_MS: 8,
  /** f64. Distance of two window starts. */
  SLIDE_MS: 16,
  /** f64. Length of a window; 0: sessions, no slice makes a window due. */
  SIZE_MS: 24,
  /** f64. Allowed skew plus allowed lateness. */
  DELAY_MS: 32,
  /** f64. Most ms that an event may be ahead of its record and still move the watermark; -1: no limit. */
  MAX_FUTURE_MS: 40,
  /** f64. Least end of an open window; Infinity: none. */
  NEXT_END: 48,
  /** f64. Least watermark less lateness: windows that end at or before it are final; it never falls. -Infinity: none is. */
  FRONTIER: 56,
  /** f64. Greatest event_ts that moved a watermark. */
  MAX_SEEN: 64,
  /** bytes. Zero. */
  SPARE: 72,
} as const;

/** Position, watermark and counts of one partition, as 64-bit floats. accepted + droppedLate + invalid = consumed. Byte offsets of its fields. */
export const PARTITION_PROGRESS = {
  BYTES: 128,
  /** f64. Next offset to process. */
  NEXT_OFFSET: 0,
  /** f64. First offset that is not processed; Infinity: no limit. */
  LIMIT: 8,
  /** f64. Greatest event_ts that counts for the watermark; -Infinity: none. */
  MAX_SEEN: 16,
  /** f64. Rows processed. */
  CONSUMED: 24,
  /** f64. Rows admitted. */
  ACCEPTED: 32,
  /** f64. Rows too late. */
  DROPPED_LATE: 40,
  /** f64. Part of droppedLate: in time for their own partition, but behind the watermark of the windows. */
  DROPPED_AFTER_IDLE: 48,
  /** f64. Rows without a valid event. */
  INVALID: 56,
  /** f64. Events whose effect on the watermark was limited. */
  FUTURE_CLAMPED: 64,
  /** f64. 1: does not hold the watermark back until its next valid event; else 0. */
  IDLE: 72,
  /** bytes. Zero. */
  SPARE: 80,
} as const;

export const ADMITTED_BATCH_ID = 7;

/** Rows of an event batch that are in time, in order of arrival. */
export interface AdmittedBatchViews {
  readonly header: Int32Array;
  /** i64[rowCapacity]. Start of the slice that holds the event, ms. */
  readonly slice: BigInt64Array;
  /** u32[rowCapacity]. Row of the event batch. */
  readonly row: Uint32Array;
}

/** Bytes of a buffer that holds this batch. */
export function admittedBatchBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 8); // slice
  at = align(at + rowCapacity * 4); // row
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function admittedBatchViews(buffer: ArrayBufferLike, rowCapacity: number): AdmittedBatchViews {
  let at = 64;
  const slice = new BigInt64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const row = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const header = new Int32Array(buffer, 0, 16);
  return { header, slice, row };
}

export const REFUSED_BATCH_ID = 8;

/** Rows of an event batch that are late or no event, in order of arrival. */
export interface RefusedBatchViews {
  readonly header: Int32Array;
  /** i64[rowCapacity]. Least event_ts that would have been in time, for an invalid row that of its partition; -2^62: any. */
  readonly bound: BigInt64Array;
  /** u32[rowCapacity]. Row of the event batch. */
  readonly row: Uint32Array;
  /** u8[rowCapacity]. REFUSAL.* */
  readonly reason: Uint8Array;
}

/** Bytes of a buffer that holds this batch. */
export function refusedBatchBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 8); // bound
  at = align(at + rowCapacity * 4); // row
  at = align(at + rowCapacity * 1); // reason
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function refusedBatchViews(buffer: ArrayBufferLike, rowCapacity: number): RefusedBatchViews {
  let at = 64;
  const bound = new BigInt64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const row = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const reason = new Uint8Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 1);
  const header = new Int32Array(buffer, 0, 16);
  return { header, bound, row, reason };
}

/** Header of the deltas of one batch, pre-aggregated by key and slice. It precedes the slice starts (i64), then columns of packed integers: ceil(n / 2) bytes of 4-bit lengths (low half first), then each integer little-endian without leading zero bytes. Columns: account_id; slice number; count - 1; least value (zigzag); last_update_ts - slice start; then, of deltas with more than one event, greatest - least value, and the low and high half of the sum (zigzag, 128 bit). Byte offsets of its fields. */
export const WINDOW_DELTAS = {
  BYTES: 32,
  /** u32. WINDOW_DELTAS_FORM.MAGIC */
  MAGIC: 0,
  /** u32. WINDOW_DELTAS_FORM.VERSION */
  VERSION: 4,
  /** u32. Bytes of header and columns together. */
  LENGTH: 8,
  /** u32. Number of deltas. */
  DELTA_COUNT: 12,
  /** u32. Number of distinct slice starts. */
  SLICE_COUNT: 16,
  /** u32. Zero. */
  SPARE: 20,
  /** i64. Width of a slice. */
  SLICE_MS: 24,
} as const;

/** Header of the partial sessions of one batch. It precedes columns of packed integers, as of WindowDeltas: account_id; start - least start; count - 1; least value (zigzag); then, of sessions with more than one event, last_update_ts - start, greatest - least value, and the low and high half of the sum (zigzag, 128 bit). Byte offsets of its fields. */
export const SESSION_DELTAS = {
  BYTES: 32,
  /** u32. SESSION_DELTAS_FORM.MAGIC */
  MAGIC: 0,
  /** u32. SESSION_DELTAS_FORM.VERSION */
  VERSION: 4,
  /** u32. Bytes of header and columns together. */
  LENGTH: 8,
  /** u32. Number of partial sessions. */
  DELTA_COUNT: 12,
  /** i64. Gap of the sessions. */
  GAP_MS: 16,
  /** i64. Start of the earliest partial session; 0 without any. */
  LEAST_START: 24,
} as const;

/** Value of a framed record. Source: requirements of the registry, section 2. Byte offsets of its fields. */
export const WIRE_FRAME = {
  BYTES: 5,
  /** u8. FRAME.MAGIC */
  MAGIC: 0,
  /** u32be. Schema id, big-endian. */
  SCHEMA_ID: 1,
  /** bytes. Protobuf: message indexes, then the payload. Avro: the payload. */
  REST: 5,
} as const;

export const FRAME_BATCH_ID = 3;

/** Result of a frame scan, one row a record. */
export interface FrameBatchViews {
  readonly header: Int32Array;
  /** u32[rowCapacity]. Schema id; 0 unless OK. */
  readonly schemaId: Uint32Array;
  /** u32[rowCapacity]. Arena offset of the payload in the record batch. */
  readonly payloadStart: Uint32Array;
  /** i32[rowCapacity]. Bytes of the payload. */
  readonly payloadLength: Int32Array;
  /** i32[rowCapacity]. Protobuf: a path of one index as itself, a deeper path -1; Avro 0. */
  readonly messageIndex: Int32Array;
  /** u32[rowCapacity]. Arena offset of the message-index array. */
  readonly indexStart: Uint32Array;
  /** u8[rowCapacity]. FRAME_STATUS.* */
  readonly status: Uint8Array;
}

/** Bytes of a buffer that holds this batch. */
export function frameBatchBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 4); // schemaId
  at = align(at + rowCapacity * 4); // payloadStart
  at = align(at + rowCapacity * 4); // payloadLength
  at = align(at + rowCapacity * 4); // messageIndex
  at = align(at + rowCapacity * 4); // indexStart
  at = align(at + rowCapacity * 1); // status
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function frameBatchViews(buffer: ArrayBufferLike, rowCapacity: number): FrameBatchViews {
  let at = 64;
  const schemaId = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const payloadStart = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const payloadLength = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const messageIndex = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const indexStart = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const status = new Uint8Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 1);
  const header = new Int32Array(buffer, 0, 16);
  return { header, schemaId, payloadStart, payloadLength, messageIndex, indexStart, status };
}

/** Parameters of the event generator, as 64-bit floats. Whole numbers unless stated otherwise. Byte offsets of its fields. */
export const GEN_PARAMS = {
  BYTES: 128,
  /** f64. Low 32 bits of the seed. */
  SEED_LOW: 0,
  /** f64. High 32 bits of the seed. */
  SEED_HIGH: 8,
  /** f64. Low 32 bits of the account_id of rank 1. */
  ACCOUNT_BASE_LOW: 16,
  /** f64. High 32 bits of the account_id of rank 1. */
  ACCOUNT_BASE_HIGH: 24,
  /** f64. Whole part of the Zipf exponent. */
  POWER_WHOLE: 32,
  /** f64. Fraction of the Zipf exponent in units of 2^-30. */
  POWER_FRACTION: 40,
  /** f64. Least value. */
  VALUE_MIN: 48,
  /** f64. Number of different values. */
  VALUE_SPAN: 56,
  /** f64. event_ts of event 0, ms since the epoch. */
  BASE_TS: 64,
  /** f64. Events in a millisecond of event time; may be a fraction. */
  PER_MS: 72,
  /** f64. A 32-bit word below this is a typical delay. */
  TYPICAL_BELOW: 80,
  /** f64. Any other word below this is a delay of the tail; the rest are stragglers. */
  TAIL_BELOW: 88,
  /** f64. Largest typical delay, ms. */
  TYPICAL_MAX_MS: 96,
  /** f64. Largest delay of the tail, ms. */
  TAIL_MAX_MS: 104,
  /** f64. Largest delay of a straggler, ms. */
  STRAGGLER_MAX_MS: 112,
  /** f64. Events in the whole stream. */
  COUNT: 120,
} as const;

export const ZIPF_TABLE_ID = 4;

/** Ranks in runs, one row a run, with an alias table over the runs. Source: Walker 1977, Vose 1991. */
export interface ZipfTableViews {
  readonly header: Int32Array;
  /** f64[rowCapacity]. A fraction below this stays in the run, above goes to the alias. */
  readonly cut: Float64Array;
  /** f64[rowCapacity]. First rank of the run to the power s. */
  readonly top: Float64Array;
  /** f64[rowCapacity]. A fraction below this accepts any rank of the run. */
  readonly sure: Float64Array;
  /** u32[rowCapacity]. First rank of the run, from 1. */
  readonly first: Uint32Array;
  /** u32[rowCapacity]. Ranks in the run. */
  readonly size: Uint32Array;
  /** i32[rowCapacity]. The other run of this cell. */
  readonly alias: Int32Array;
}

/** Bytes of a buffer that holds this batch. */
export function zipfTableBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 8); // cut
  at = align(at + rowCapacity * 8); // top
  at = align(at + rowCapacity * 8); // sure
  at = align(at + rowCapacity * 4); // first
  at = align(at + rowCapacity * 4); // size
  at = align(at + rowCapacity * 4); // alias
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function zipfTableViews(buffer: ArrayBufferLike, rowCapacity: number): ZipfTableViews {
  let at = 64;
  const cut = new Float64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const top = new Float64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const sure = new Float64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const first = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const size = new Uint32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const alias = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const header = new Int32Array(buffer, 0, 16);
  return { header, cut, top, sure, first, size, alias };
}

/** State of the delayed order, as 64-bit floats. Times are ms after the first event. Byte offsets of its fields. */
export const ARRIVAL_STATE = {
  BYTES: 64,
  /** f64. Millisecond whose arrivals are emitted. */
  CLOCK: 0,
  /** f64. First event not yet delayed. */
  NEXT_SEQ: 8,
  /** f64. Events delayed and not yet emitted. */
  PENDING: 16,
  /** f64. First free row of the pool; -1 none. */
  FREE_HEAD: 24,
  /** f64. Events emitted. */
  EMITTED: 32,
  /** f64. 1: the last call stopped for want of pool rows. */
  POOL_FULL: 40,
  /** f64. 0. */
  RESERVED: 48,
} as const;

export const ARRIVAL_WHEEL_ID = 5;

/** Hierarchical timing wheel: ARRIVAL_WHEEL.LEVELS times ARRIVAL_WHEEL.SLOTS lists of pool rows. Source: Varghese, Lauck 1987. */
export interface ArrivalWheelViews {
  readonly header: Int32Array;
  /** i32[rowCapacity]. First pool row of the list; -1 empty. */
  readonly head: Int32Array;
  /** i32[rowCapacity]. Last pool row of the list. */
  readonly tail: Int32Array;
}

/** Bytes of a buffer that holds this batch. */
export function arrivalWheelBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 4); // head
  at = align(at + rowCapacity * 4); // tail
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function arrivalWheelViews(buffer: ArrayBufferLike, rowCapacity: number): ArrivalWheelViews {
  let at = 64;
  const head = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const tail = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const header = new Int32Array(buffer, 0, 16);
  return { header, head, tail };
}

export const ARRIVAL_POOL_ID = 6;

/** Events that wait for their arrival, one row each; free rows form a list. */
export interface ArrivalPoolViews {
  readonly header: Int32Array;
  /** f64[rowCapacity]. Number of the event. */
  readonly seq: Float64Array;
  /** f64[rowCapacity]. Arrival time, ms after the first event. */
  readonly arrival: Float64Array;
  /** i32[rowCapacity]. Next row of its list; -1 last. */
  readonly next: Int32Array;
}

/** Bytes of a buffer that holds this batch. */
export function arrivalPoolBytes(rowCapacity: number): number {
  let at = 64;
  at = align(at + rowCapacity * 8); // seq
  at = align(at + rowCapacity * 8); // arrival
  at = align(at + rowCapacity * 4); // next
  return at;
}

/** Views over a buffer of at least that size; nothing is copied. */
export function arrivalPoolViews(buffer: ArrayBufferLike, rowCapacity: number): ArrivalPoolViews {
  let at = 64;
  const seq = new Float64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const arrival = new Float64Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 8);
  const next = new Int32Array(buffer, at, rowCapacity);
  at = align(at + rowCapacity * 4);
  const header = new Int32Array(buffer, 0, 16);
  return { header, seq, arrival, next };
}
