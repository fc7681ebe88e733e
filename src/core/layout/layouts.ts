/** All binary layouts of Millrace. After a change here, `npm run generate` updates both languages.
 */
import type { ConstantGroup, Layout } from './define.ts';

export const LAYOUTS: readonly Layout[] = [
  {
    shape: 'struct',
    name: 'BatchHeader',
    bytes: 64,
    meaning: 'First 64 bytes of every batch.',
    fields: [
      { name: 'magic', type: 'u32', at: 0, meaning: 'BATCH.MAGIC' },
      { name: 'layoutId', type: 'u32', at: 4, meaning: 'Id of the batch layout.' },
      { name: 'rowCount', type: 'u32', at: 8, meaning: 'Rows in use.' },
      { name: 'rowCapacity', type: 'u32', at: 12, meaning: 'Cells of a column.' },
      { name: 'arenaUsed', type: 'u32', at: 16, meaning: 'Bytes of the arena in use.' },
      { name: 'arenaCapacity', type: 'u32', at: 20, meaning: 'Bytes of the arena.' },
      { name: 'status', type: 'i32', at: 24, meaning: 'Status word of the last call that filled the batch.' },
      { name: 'detail', type: 'i32', at: 28, meaning: 'Number that belongs to the status.' },
    ],
  },
  {
    shape: 'batch',
    name: 'RecordBatch',
    id: 1,
    arena: true,
    meaning:
      'Records of the log broker. Spans are offsets into the arena; a length of -1 is null, 0 is empty.',
    columns: [
      { name: 'offset', type: 'i64', meaning: 'Offset in the partition; SPAN.NO_OFFSET before it is known.' },
      { name: 'timestamp', type: 'i64', meaning: 'Milliseconds since the epoch; 0 when producing: now.' },
      {
        name: 'topicIndex',
        type: 'i32',
        meaning: 'Index into the topic names of the component that filled the batch.',
      },
      { name: 'partition', type: 'i32', meaning: 'Partition; -1 when producing: the partitioner decides.' },
      { name: 'keyStart', type: 'u32', meaning: 'Arena offset of the key.' },
      { name: 'keyLength', type: 'i32', meaning: 'Bytes of the key; -1 null.' },
      { name: 'valueStart', type: 'u32', meaning: 'Arena offset of the value.' },
      { name: 'valueLength', type: 'i32', meaning: 'Bytes of the value; -1 null.' },
      { name: 'headersStart', type: 'u32', meaning: 'Arena offset of the header block.' },
      { name: 'headersLength', type: 'i32', meaning: 'Bytes of the header block; 0 none.' },
      { name: 'timestampType', type: 'u8', meaning: 'TIMESTAMP_TYPE.*' },
      { name: 'flags', type: 'u8', meaning: 'RECORD_FLAG.* bits' },
    ],
  },
  {
    shape: 'struct',
    name: 'RecordHeader',
    bytes: 8,
    meaning: 'One header inside a header block; blocks are these one after the other, unpadded.',
    fields: [
      { name: 'nameLength', type: 'u32', at: 0, meaning: 'Bytes of the name (UTF-8).' },
      { name: 'valueLength', type: 'i32', at: 4, meaning: 'Bytes of the value; -1 null.' },
      { name: 'text', type: 'bytes', at: 8, meaning: 'Name, then value.' },
    ],
  },
  {
    shape: 'struct',
    name: 'KeyEntry',
    bytes: 20,
    meaning: 'Entry in the cache of variable-length keys, padded with zeros to whole words.',
    fields: [
      { name: 'idLow', type: 'u32', at: 0, meaning: 'Low half of the id.' },
      { name: 'idHigh', type: 'u32', at: 4, meaning: 'High half of the id.' },
      { name: 'generation', type: 'i32', at: 8, meaning: 'Newest generation that has the key.' },
      { name: 'epoch', type: 'i32', at: 12, meaning: 'Write of the store that has the key.' },
      {
        name: 'length',
        type: 'u32',
        at: 16,
        meaning: 'Twice the bytes of the key, plus 1 once it was used.',
      },
      { name: 'text', type: 'bytes', at: 20, meaning: 'The key.' },
    ],
  },
  {
    shape: 'struct',
    name: 'Event',
    bytes: 256,
    meaning: 'Input event of the window engine. Source: requirements of the engine, section 2.',
    fields: [
      { name: 'accountId', type: 'u64', at: 0, meaning: 'The key.' },
      { name: 'value', type: 'i64', at: 8, meaning: 'Aggregated value.' },
      { name: 'eventTs', type: 'i64', at: 16, meaning: 'Event time, ms since the epoch.' },
      { name: 'seq', type: 'u64', at: 24, meaning: 'Number of the event in its true order.' },
      { name: 'pad', type: 'bytes', at: 32, bytes: 224, meaning: 'Filler to the message size.' },
    ],
  },
  {
    shape: 'batch',
    name: 'EventBatch',
    id: 2,
    arena: false,
    meaning: 'Events decoded into columns, one row a record of the record batch they came from.',
    columns: [
      { name: 'accountId', type: 'u64', meaning: 'The key.' },
      { name: 'value', type: 'i64', meaning: 'Aggregated value.' },
      { name: 'eventTs', type: 'i64', meaning: 'Event time, ms since the epoch.' },
      { name: 'seq', type: 'u64', meaning: 'Number of the event.' },
      {
        name: 'status',
        type: 'u8',
        meaning: 'EVENT_STATUS.*; the other columns are 0 unless OK or FILTERED.',
      },
    ],
  },
  {
    shape: 'struct',
    name: 'Accumulator',
    bytes: 64,
    meaning:
      'Aggregate of one key in one window: a slot of the state table, a row of a snapshot, a fired result.',
    fields: [
      { name: 'accountId', type: 'u64', at: 0, meaning: 'The key.' },
      { name: 'count', type: 'u64', at: 8, meaning: 'Events folded in; 0 marks an empty slot.' },
      {
        name: 'sumLow',
        type: 'u64',
        at: 16,
        meaning: "Low half of the exact 128-bit sum, two's complement.",
      },
      { name: 'sumHigh', type: 'i64', at: 24, meaning: 'High half of the sum.' },
      { name: 'min', type: 'i64', at: 32, meaning: 'Least value.' },
      { name: 'max', type: 'i64', at: 40, meaning: 'Greatest value.' },
      { name: 'lastUpdateTs', type: 'i64', at: 48, meaning: 'Greatest event_ts folded in.' },
      { name: 'spare', type: 'u64', at: 56, meaning: 'First event_ts of a session (i64); else zero.' },
    ],
  },
  {
    shape: 'struct',
    name: 'WindowClock',
    bytes: 128,
    meaning:
      'Parameters, then state, that decide which events are in time and which windows are due, as 64-bit floats. Whole ms.',
    fields: [
      {
        name: 'global',
        type: 'f64',
        at: 0,
        meaning: '1: one watermark over all partitions; 0: one a partition.',
      },
      {
        name: 'sliceMs',
        type: 'f64',
        at: 8,
        meaning: 'Width of a slice; divides slide and size. Sessions: 0, as slide and size.',
      },
      { name: 'slideMs', type: 'f64', at: 16, meaning: 'Distance of two window starts.' },
      {
        name: 'sizeMs',
        type: 'f64',
        at: 24,
        meaning: 'Length of a window; 0: sessions, no slice makes a window due.',
      },
      { name: 'delayMs', type: 'f64', at: 32, meaning: 'Allowed skew plus allowed lateness.' },
      {
        name: 'maxFutureMs',
        type: 'f64',
        at: 40,
        meaning:
          'Most ms that an event may be ahead of its record and still move the watermark; -1: no limit.',
      },
      { name: 'nextEnd', type: 'f64', at: 48, meaning: 'Least end of an open window; Infinity: none.' },
      {
        name: 'frontier',
        type: 'f64',
        at: 56,
        meaning:
          'Least watermark less lateness: windows that end at or before it are final; it never falls. -Infinity: none is.',
      },
      { name: 'maxSeen', type: 'f64', at: 64, meaning: 'Greatest event_ts that moved a watermark.' },
      { name: 'spare', type: 'bytes', at: 72, bytes: 56, meaning: 'Zero.' },
    ],
  },
  {
    shape: 'struct',
    name: 'PartitionProgress',
    bytes: 128,
    meaning:
      'Position, watermark and counts of one partition, as 64-bit floats. accepted + droppedLate + invalid = consumed.',
    fields: [
      { name: 'nextOffset', type: 'f64', at: 0, meaning: 'Next offset to process.' },
      {
        name: 'limit',
        type: 'f64',
        at: 8,
        meaning: 'First offset that is not processed; Infinity: no limit.',
      },
      {
        name: 'maxSeen',
        type: 'f64',
        at: 16,
        meaning: 'Greatest event_ts that counts for the watermark; -Infinity: none.',
      },
      { name: 'consumed', type: 'f64', at: 24, meaning: 'Rows processed.' },
      { name: 'accepted', type: 'f64', at: 32, meaning: 'Rows admitted.' },
      { name: 'droppedLate', type: 'f64', at: 40, meaning: 'Rows too late.' },
      {
        name: 'droppedAfterIdle',
        type: 'f64',
        at: 48,
        meaning:
          'Part of droppedLate: in time for their own partition, but behind the watermark of the windows.',
      },
      { name: 'invalid', type: 'f64', at: 56, meaning: 'Rows without a valid event.' },
      {
        name: 'futureClamped',
        type: 'f64',
        at: 64,
        meaning: 'Events whose effect on the watermark was limited.',
      },
      {
        name: 'idle',
        type: 'f64',
        at: 72,
        meaning: '1: does not hold the watermark back until its next valid event; else 0.',
      },
      { name: 'spare', type: 'bytes', at: 80, bytes: 48, meaning: 'Zero.' },
    ],
  },
  {
    shape: 'batch',
    name: 'AdmittedBatch',
    id: 7,
    arena: false,
    meaning: 'Rows of an event batch that are in time, in order of arrival.',
    columns: [
      { name: 'slice', type: 'i64', meaning: 'Start of the slice that holds the event, ms.' },
      { name: 'row', type: 'u32', meaning: 'Row of the event batch.' },
    ],
  },
  {
    shape: 'batch',
    name: 'RefusedBatch',
    id: 8,
    arena: false,
    meaning: 'Rows of an event batch that are late or no event, in order of arrival.',
    columns: [
      {
        name: 'bound',
        type: 'i64',
        meaning:
          'Least event_ts that would have been in time, for an invalid row that of its partition; -2^62: any.',
      },
      { name: 'row', type: 'u32', meaning: 'Row of the event batch.' },
      { name: 'reason', type: 'u8', meaning: 'REFUSAL.*' },
    ],
  },
  {
    shape: 'struct',
    name: 'WindowDeltas',
    bytes: 32,
    meaning:
      'Header of the deltas of one batch, pre-aggregated by key and slice. It precedes the slice starts (i64), then columns of packed integers: ceil(n / 2) bytes of 4-bit lengths (low half first), then each integer little-endian without leading zero bytes. Columns: account_id; slice number; count - 1; least value (zigzag); last_update_ts - slice start; then, of deltas with more than one event, greatest - least value, and the low and high half of the sum (zigzag, 128 bit).',
    fields: [
      { name: 'magic', type: 'u32', at: 0, meaning: 'WINDOW_DELTAS_FORM.MAGIC' },
      { name: 'version', type: 'u32', at: 4, meaning: 'WINDOW_DELTAS_FORM.VERSION' },
      { name: 'length', type: 'u32', at: 8, meaning: 'Bytes of header and columns together.' },
      { name: 'deltaCount', type: 'u32', at: 12, meaning: 'Number of deltas.' },
      { name: 'sliceCount', type: 'u32', at: 16, meaning: 'Number of distinct slice starts.' },
      { name: 'spare', type: 'u32', at: 20, meaning: 'Zero.' },
      { name: 'sliceMs', type: 'i64', at: 24, meaning: 'Width of a slice.' },
    ],
  },
  {
    shape: 'struct',
    name: 'SessionDeltas',
    bytes: 32,
    meaning:
      'Header of the partial sessions of one batch. It precedes columns of packed integers, as of WindowDeltas: account_id; start - least start; count - 1; least value (zigzag); then, of sessions with more than one event, last_update_ts - start, greatest - least value, and the low and high half of the sum (zigzag, 128 bit).',
    fields: [
      { name: 'magic', type: 'u32', at: 0, meaning: 'SESSION_DELTAS_FORM.MAGIC' },
      { name: 'version', type: 'u32', at: 4, meaning: 'SESSION_DELTAS_FORM.VERSION' },
      { name: 'length', type: 'u32', at: 8, meaning: 'Bytes of header and columns together.' },
      { name: 'deltaCount', type: 'u32', at: 12, meaning: 'Number of partial sessions.' },
      { name: 'gapMs', type: 'i64', at: 16, meaning: 'Gap of the sessions.' },
      {
        name: 'leastStart',
        type: 'i64',
        at: 24,
        meaning: 'Start of the earliest partial session; 0 without any.',
      },
    ],
  },
  {
    shape: 'struct',
    name: 'WireFrame',
    bytes: 5,
    meaning: 'Value of a framed record. Source: requirements of the registry, section 2.',
    fields: [
      { name: 'magic', type: 'u8', at: 0, meaning: 'FRAME.MAGIC' },
      { name: 'schemaId', type: 'u32be', at: 1, meaning: 'Schema id, big-endian.' },
      {
        name: 'rest',
        type: 'bytes',
        at: 5,
        meaning: 'Protobuf: message indexes, then the payload. Avro: the payload.',
      },
    ],
  },
  {
    shape: 'batch',
    name: 'FrameBatch',
    id: 3,
    arena: false,
    meaning: 'Result of a frame scan, one row a record.',
    columns: [
      { name: 'schemaId', type: 'u32', meaning: 'Schema id; 0 unless OK.' },
      { name: 'payloadStart', type: 'u32', meaning: 'Arena offset of the payload in the record batch.' },
      { name: 'payloadLength', type: 'i32', meaning: 'Bytes of the payload.' },
      {
        name: 'messageIndex',
        type: 'i32',
        meaning: 'Protobuf: a path of one index as itself, a deeper path -1; Avro 0.',
      },
      { name: 'indexStart', type: 'u32', meaning: 'Arena offset of the message-index array.' },
      { name: 'status', type: 'u8', meaning: 'FRAME_STATUS.*' },
    ],
  },
  {
    shape: 'struct',
    name: 'GenParams',
    bytes: 128,
    meaning: 'Parameters of the event generator, as 64-bit floats. Whole numbers unless stated otherwise.',
    fields: [
      { name: 'seedLow', type: 'f64', at: 0, meaning: 'Low 32 bits of the seed.' },
      { name: 'seedHigh', type: 'f64', at: 8, meaning: 'High 32 bits of the seed.' },
      { name: 'accountBaseLow', type: 'f64', at: 16, meaning: 'Low 32 bits of the account_id of rank 1.' },
      { name: 'accountBaseHigh', type: 'f64', at: 24, meaning: 'High 32 bits of the account_id of rank 1.' },
      { name: 'powerWhole', type: 'f64', at: 32, meaning: 'Whole part of the Zipf exponent.' },
      {
        name: 'powerFraction',
        type: 'f64',
        at: 40,
        meaning: 'Fraction of the Zipf exponent in units of 2^-30.',
      },
      { name: 'valueMin', type: 'f64', at: 48, meaning: 'Least value.' },
      { name: 'valueSpan', type: 'f64', at: 56, meaning: 'Number of different values.' },
      { name: 'baseTs', type: 'f64', at: 64, meaning: 'event_ts of event 0, ms since the epoch.' },
      {
        name: 'perMs',
        type: 'f64',
        at: 72,
        meaning: 'Events in a millisecond of event time; may be a fraction.',
      },
      { name: 'typicalBelow', type: 'f64', at: 80, meaning: 'A 32-bit word below this is a typical delay.' },
      {
        name: 'tailBelow',
        type: 'f64',
        at: 88,
        meaning: 'Any other word below this is a delay of the tail; the rest are stragglers.',
      },
      { name: 'typicalMaxMs', type: 'f64', at: 96, meaning: 'Largest typical delay, ms.' },
      { name: 'tailMaxMs', type: 'f64', at: 104, meaning: 'Largest delay of the tail, ms.' },
      { name: 'stragglerMaxMs', type: 'f64', at: 112, meaning: 'Largest delay of a straggler, ms.' },
      { name: 'count', type: 'f64', at: 120, meaning: 'Events in the whole stream.' },
    ],
  },
  {
    shape: 'batch',
    name: 'ZipfTable',
    id: 4,
    arena: false,
    meaning:
      'Ranks in runs, one row a run, with an alias table over the runs. Source: Walker 1977, Vose 1991.',
    columns: [
      {
        name: 'cut',
        type: 'f64',
        meaning: 'A fraction below this stays in the run, above goes to the alias.',
      },
      { name: 'top', type: 'f64', meaning: 'First rank of the run to the power s.' },
      { name: 'sure', type: 'f64', meaning: 'A fraction below this accepts any rank of the run.' },
      { name: 'first', type: 'u32', meaning: 'First rank of the run, from 1.' },
      { name: 'size', type: 'u32', meaning: 'Ranks in the run.' },
      { name: 'alias', type: 'i32', meaning: 'The other run of this cell.' },
    ],
  },
  {
    shape: 'struct',
    name: 'ArrivalState',
    bytes: 64,
    meaning: 'State of the delayed order, as 64-bit floats. Times are ms after the first event.',
    fields: [
      { name: 'clock', type: 'f64', at: 0, meaning: 'Millisecond whose arrivals are emitted.' },
      { name: 'nextSeq', type: 'f64', at: 8, meaning: 'First event not yet delayed.' },
      { name: 'pending', type: 'f64', at: 16, meaning: 'Events delayed and not yet emitted.' },
      { name: 'freeHead', type: 'f64', at: 24, meaning: 'First free row of the pool; -1 none.' },
      { name: 'emitted', type: 'f64', at: 32, meaning: 'Events emitted.' },
      { name: 'poolFull', type: 'f64', at: 40, meaning: '1: the last call stopped for want of pool rows.' },
      { name: 'reserved', type: 'f64', at: 48, meaning: '0.' },
    ],
  },
  {
    shape: 'batch',
    name: 'ArrivalWheel',
    id: 5,
    arena: false,
    meaning:
      'Hierarchical timing wheel: ARRIVAL_WHEEL.LEVELS times ARRIVAL_WHEEL.SLOTS lists of pool rows. Source: Varghese, Lauck 1987.',
    columns: [
      { name: 'head', type: 'i32', meaning: 'First pool row of the list; -1 empty.' },
      { name: 'tail', type: 'i32', meaning: 'Last pool row of the list.' },
    ],
  },
  {
    shape: 'batch',
    name: 'ArrivalPool',
    id: 6,
    arena: false,
    meaning: 'Events that wait for their arrival, one row each; free rows form a list.',
    columns: [
      { name: 'seq', type: 'f64', meaning: 'Number of the event.' },
      { name: 'arrival', type: 'f64', meaning: 'Arrival time, ms after the first event.' },
      { name: 'next', type: 'i32', meaning: 'Next row of its list; -1 last.' },
    ],
  },
];

export const CONSTANTS: readonly ConstantGroup[] = [
  { name: 'BATCH', meaning: 'Identity of a batch buffer.', values: { MAGIC: 0x3142524d } },
  { name: 'SPAN', meaning: 'Sentinels of record columns.', values: { NULL: -1, NO_OFFSET: -1001 } },
  { name: 'TIMESTAMP_TYPE', meaning: 'Origin of the timestamp.', values: { NONE: 0, CREATE: 1, APPEND: 2 } },
  {
    name: 'RECORD_FLAG',
    meaning: 'Properties of a record, as bits.',
    values: { KEY_NULL: 1, VALUE_NULL: 2, HAS_HEADERS: 4 },
  },
  {
    name: 'WINDOW_DELTAS_FORM',
    meaning: 'Identity, version and bound of the deltas of a batch.',
    values: { MAGIC: 0x3144574d, VERSION: 1, DELTAS_MAX: 1 << 24 },
  },
  {
    name: 'SESSION_DELTAS_FORM',
    meaning: 'Identity, version and bound of the partial sessions of a batch.',
    values: { MAGIC: 0x3144534d, VERSION: 2, DELTAS_MAX: 1 << 24 },
  },
  {
    name: 'AGGREGATE',
    meaning:
      "Aggregates of a row's cells; null counts in none. COUNT, MIN, MAX: one cell. SUM: two cells, 128 bits. MIN_DOUBLE, MAX_DOUBLE: one cell, a number with the order of the doubles. FIRST, LAST: event time, partition, offset, value. SUM_DOUBLE: head and digits, native/kernel/rows/double_sum.h. BUCKETS, BUCKETS_DOUBLE, DISTINCT, DISTINCT_DOUBLE: sketches, native/kernel/rows/sketch.h; TOP: native/kernel/rows/top.h.",
    values: {
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
    },
  },
  {
    name: 'DELTA_STATUS',
    meaning: 'Verdict of the delta decode; unless OK nothing was folded in.',
    values: { OK: 0, BAD_HEAD: 1, BAD_SLICE: 2, BAD_COLUMN: 3, BAD_DELTA: 4 },
  },
  {
    name: 'EVENT_STATUS',
    meaning:
      'Verdict of the event decode. FILTERED: a valid event that advances watermarks and is in no window. NO_EVENT: a row that only moves the position, such as that of a record whose list is empty. The others: no event.',
    values: {
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
    },
  },
  {
    name: 'REFUSAL',
    meaning: 'Reason that a row was not admitted.',
    values: { LATE: 1, LATE_AFTER_IDLE: 2, INVALID: 3 },
  },
  {
    name: 'FRAME',
    meaning: 'Numbers of the wire frame. MESSAGE_DEPTH_MAX bounds hostile index arrays.',
    values: { MAGIC: 0, HEADER_BYTES: 5, MESSAGE_DEPTH_MAX: 16 },
  },
  {
    name: 'FRAME_STATUS',
    meaning: 'Verdict of the frame scan.',
    values: { OK: 0, BAD_MAGIC: 1, TRUNCATED: 2, BAD_MESSAGE_INDEX: 3, NULL_VALUE: 4 },
  },
  {
    name: 'ARRIVAL_WHEEL',
    meaning: 'Shape of the timing wheel: a slot of a level spans all slots of the level below.',
    values: { LEVELS: 3, SLOTS: 1024, SLOT_BITS: 10 },
  },
  {
    name: 'GEN_STREAM',
    meaning:
      'Random streams of the generators: third key word of the counter-based generator. Numbers never change.',
    values: { ACCOUNT: 1, EVENT: 2, DELAY: 3, NOISE: 4, ORDER: 5, VERSION: 6, LOAD: 7 },
  },
  {
    name: 'GEN',
    meaning:
      'Fourth key word of every stream (changes when the meaning of a stream does), filler bytes per seed.',
    values: { KEY: 0x4d524731, NOISE_BYTES: 65792 },
  },
  { name: 'XXH32', meaning: 'State of the streaming digest, in 32-bit words.', values: { WORDS: 12 } },
  {
    name: 'COLUMN_KIND',
    meaning: 'Memory layout of a column, as in the Arrow columnar format.',
    values: {
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
    },
  },
  {
    name: 'COLUMN_CELL',
    meaning:
      'Words of one column in the table of a column schema: kind, 1 if nullable, bytes of a cell, index behind its subtree.',
    values: { KIND: 0, NULLABLE: 1, SIZE: 2, NEXT: 3, COUNT: 4 },
  },
  {
    name: 'COLUMN_SLOT',
    meaning: 'Buffers of one column, in this order; a buffer that a column lacks has capacity 0.',
    values: { VALIDITY: 0, OFFSETS: 1, VALUES: 2, COUNT: 3 },
  },
  {
    name: 'COLUMN_STATE',
    meaning:
      'Words of the state of a column batch. Behind HEAD: the length of each column, then offset and capacity of each buffer.',
    values: { ROW_COUNT: 0, ROW_CAPACITY: 1, NEED_SLOT: 2, NEED_BYTES: 3, HEAD: 4 },
  },
  {
    name: 'COLUMN_STATUS',
    meaning: 'Verdict of one row. TOO_LARGE: its columns exceed the byte limit of a batch.',
    values: { OK: 0, MALFORMED: 1, INCOMPATIBLE: 2, TOO_LARGE: 3, NULL_VALUE: 4 },
  },
  {
    name: 'COLUMN_LIMIT',
    meaning:
      'Greatest number of columns of a schema, nesting of columns, elements of a column, and words of a program.',
    values: { COLUMNS: 32_768, DEPTH: 64, ELEMENTS: 0x7fff_ffff, PROGRAM_WORDS: 1 << 22 },
  },
  {
    name: 'AVRO_LIMIT',
    meaning: 'Bounds of an Avro payload: nesting of records, arrays and maps, and values without bytes.',
    values: { DEPTH: 256, EMPTY_VALUES: 65_536 },
  },
  {
    name: 'AVRO_OP',
    meaning:
      'Instructions of a program for Avro payloads. Operands are words; `to` is the position of an instruction, `column` an index in preorder.',
    values: {
      /** Ends a block. */
      END: 0,
      /** Checks of values that no column receives. */
      SKIP_INT: 1,
      SKIP_LONG: 2,
      SKIP_BOOL: 3,
      /** bytes */
      SKIP_FIXED: 4,
      SKIP_BYTES: 5,
      SKIP_TEXT: 6,
      /** count */
      SKIP_INDEX: 7,
      /** count, then one word a symbol: -1 if the reader lacks it */
      CHECK_ENUM: 8,
      REFUSE: 9,
      /** to: RECORD, ARRAY, MAP or REFUSE */
      CALL: 10,
      /** to, forward */
      JUMP: 11,
      /** count, then `to` of each branch, forward */
      UNION: 12,
      /** index of null among two branches, column, to behind the other branch */
      OPTIONAL: 13,
      /** fields that never have bytes, struct column or -1; a block follows */
      RECORD: 14,
      /** 1 if items never have bytes, list column or -1; a block follows */
      ARRAY: 15,
      /** map column or -1; a block for the value follows */
      MAP: 16,
      /** column, tag byte or -1, to behind the block that follows */
      LAZY: 17,
      /** union column, index of the branch */
      PICK: 18,
      /** Values that are read into a column: column */
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
      /** column, bytes of the written number, big-endian */
      DECIMAL: 34,
      /** column, count, then the reader's index of each symbol, or -1 */
      ENUM: 35,
      /** Constants: column, then the value */
      NULL: 40,
      CONST_BOOL: 41,
      CONST_INT: 42,
      /** column, position in the pool, bytes */
      CONST_BYTES: 43,
      /** Appends an element of a list, map or struct over the elements that its children have. */
      CLOSE: 44,
    },
  },
  {
    name: 'PROTO_LIMIT',
    meaning:
      'Bounds of a Protobuf payload: nesting of messages, map entries and groups; fields of all messages, at least FIELDS and FIELDS_PER_BYTE for each byte.',
    values: { DEPTH: 100, FIELDS: 1 << 20, FIELDS_PER_BYTE: 32 },
  },
  {
    name: 'PROTO_KIND',
    meaning: 'Encoding of a field of a program for Protobuf payloads.',
    values: {
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
      /** Number of an open enum. */
      ENUM: 10,
      /** Index of a closed enum's symbol, by its table of numbers. */
      CLOSED_ENUM: 11,
      MESSAGE: 12,
    },
  },
  {
    name: 'PROTO_FLAG',
    meaning: 'Properties of a field of a program for Protobuf payloads.',
    values: {
      REPEATED: 1,
      /** Null when absent; without it the zero. */
      PRESENCE: 2,
      REQUIRED: 4,
      /** A message between group tags. */
      GROUP: 8,
      MAP: 16,
      /** The column has the bytes of the message. */
      RAW: 32,
      /** Encoding only: the values of a list are one run. */
      PACKED: 64,
      /** Encoding only: a zero is not written. */
      HIDES_ZERO: 128,
    },
  },
  {
    name: 'PROTO_WORD',
    meaning:
      'Words of a program for Protobuf payloads. Head: nodes, enum tables, oneofs. A node is a message at one column (or -1): struct column, fields, counted fields, tags; FIELD words a field: kind, flags, column or -1, node or enum table or -1, oneof or -1, kind of the map key, zero; TAG words a tag, ascending: tag, field, 1 for a packed run. An enum table: count, then number and index, ascending. A oneof: count, then its fields.',
    values: { HEAD: 3, NODE: 4, FIELD: 7, TAG: 3 },
  },
  {
    name: 'FRAMES_STATE',
    meaning:
      'Words of the state of encoded frames: rows, and bytes that the buffer must hold for the next row.',
    values: { ROW_COUNT: 0, NEED_BYTES: 1, COUNT: 2 },
  },
  {
    name: 'ENCODE_STATUS',
    meaning:
      'Verdict of one encoded row. REFUSED: the schema refuses a value. BROKEN: an offset or a type id leaves its column. TOO_LARGE: the frame exceeds its limit. NULL_VALUE, NO_VALUE: the row has no value, or could not be decoded.',
    values: { OK: 0, REFUSED: 1, BROKEN: 2, TOO_LARGE: 3, NULL_VALUE: 4, NO_VALUE: 5 },
  },
  {
    name: 'ENCODE_LIMIT',
    meaning:
      'Greatest number of bytes of an encoded payload and of the prefix of a frame; free bytes that a kernel demands for each column; messages around a checked value.',
    values: { PAYLOAD_BYTES: 64 << 20, PREFIX_BYTES: 1024, SPARE_BYTES: 64, WRAPS: 128 },
  },
  {
    name: 'AVRO_PUT',
    meaning:
      "Words of one column in a program that encodes Avro: branch of a value and of null in the column's union (or -1), and the operand: symbols of an enum, bytes of a decimal, check of a binary column with encoded values (or -1).",
    values: { VALUE_BRANCH: 0, NULL_BRANCH: 1, OPERAND: 2, COUNT: 3 },
  },
  {
    name: 'PROTO_PUT',
    meaning:
      'Words of one column in a program that encodes Protobuf, zero except at the column of a field: PROTO_KIND, PROTO_FLAG, field number, oneof or -1, table of an enum or check of a binary message or -1, PROTO_KIND of the map key or -1.',
    values: { KIND: 0, FLAGS: 1, NUMBER: 2, ONEOF: 3, OPERAND: 4, KEY: 5, COUNT: 6 },
  },
];
