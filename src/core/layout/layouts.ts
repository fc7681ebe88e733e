/** Every binary layout of Millrace. Change a row here, run `npm run generate`, and both languages follow. */
import type { ConstantGroup, Layout } from './define.ts';

export const LAYOUTS: readonly Layout[] = [
  {
    shape: 'struct',
    name: 'BatchHeader',
    bytes: 64,
    meaning: 'First 64 bytes of every batch.',
    fields: [
      { name: 'magic', type: 'u32', at: 0, meaning: 'BATCH.MAGIC' },
      { name: 'layoutId', type: 'u32', at: 4, meaning: 'Which batch layout follows.' },
      { name: 'rowCount', type: 'u32', at: 8, meaning: 'Rows in use.' },
      { name: 'rowCapacity', type: 'u32', at: 12, meaning: 'Cells a column has.' },
      { name: 'arenaUsed', type: 'u32', at: 16, meaning: 'Bytes of the arena in use.' },
      { name: 'arenaCapacity', type: 'u32', at: 20, meaning: 'Bytes the arena has.' },
      { name: 'status', type: 'i32', at: 24, meaning: 'Status word of the last call that filled the batch.' },
      { name: 'detail', type: 'i32', at: 28, meaning: 'A number that goes with the status.' },
    ],
  },
  {
    shape: 'batch',
    name: 'RecordBatch',
    id: 1,
    arena: true,
    meaning: 'Records of the log broker. Spans are offsets into the arena; a length of -1 is null, 0 is empty.',
    columns: [
      { name: 'offset', type: 'i64', meaning: 'Offset in the partition; SPAN.NO_OFFSET before it is known.' },
      { name: 'timestamp', type: 'i64', meaning: 'Milliseconds since the epoch; 0 when producing: now.' },
      { name: 'topicIndex', type: 'i32', meaning: 'Index into the topic names of whoever filled the batch.' },
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
      { name: 'status', type: 'u8', meaning: 'EVENT_STATUS.*; the other columns are 0 unless OK.' },
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
      { name: 'rest', type: 'bytes', at: 5, meaning: 'Protobuf: message indexes, then the payload. Avro: the payload.' },
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
      { name: 'messageIndex', type: 'i32', meaning: 'Protobuf: a path of one index as itself, a deeper path -1; Avro 0.' },
      { name: 'indexStart', type: 'u32', meaning: 'Arena offset of the message-index array.' },
      { name: 'status', type: 'u8', meaning: 'FRAME_STATUS.*' },
    ],
  },
];

export const CONSTANTS: readonly ConstantGroup[] = [
  { name: 'BATCH', meaning: 'Identity of a batch buffer.', values: { MAGIC: 0x3142524d } },
  { name: 'SPAN', meaning: 'Sentinels of record columns.', values: { NULL: -1, NO_OFFSET: -1001 } },
  { name: 'TIMESTAMP_TYPE', meaning: 'Who set the timestamp.', values: { NONE: 0, CREATE: 1, APPEND: 2 } },
  {
    name: 'RECORD_FLAG',
    meaning: 'Facts of a record, as bits.',
    values: { KEY_NULL: 1, VALUE_NULL: 2, HAS_HEADERS: 4 },
  },
  { name: 'EVENT_STATUS', meaning: 'Verdict of the event decode.', values: { OK: 0, NULL: 1, BAD_LENGTH: 2 } },
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
];
