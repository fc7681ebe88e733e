/** Frame of one record: the schema id before the payload, or its guid in a header.
 *
 *  Prefix: 00, schema id u32 big-endian. Header `__value_schema_id` or `__key_schema_id`: 01, guid
 *  of 16 bytes; the payload then has no prefix. For Protobuf the message indexes follow the id or
 *  the guid: zigzag varints `count, index…`; the path [0] is written as the single byte 00. Source:
 *  wire format of the schema registries, versions 0 and 1. The batch kernels of src/addon read the
 *  same prefix (test/property/registry-client-frame).
 */
import { IndexReader, messageIndexBytes } from '../addon/reference/frame.ts';
import { FRAME, FRAME_STATUS } from '../core/layout/layouts.gen.ts';
import { serdeError } from './errors.ts';

export const VALUE_ID_HEADER = '__value_schema_id';
export const KEY_ID_HEADER = '__key_schema_id';
const HEADER_VERSION = 1;
const GUID_BYTES = 16;

/** Schema id of a record. */
export interface RecordId {
  /** Id of a prefix, guid of a header. */
  readonly id: number | string;
  /** Bytes with the message indexes behind the id: the record, or its schema id header. */
  readonly bytes: Uint8Array;
  /** Offset behind the id in `bytes`. */
  readonly end: number;
}

/** Message of a record and the start of its payload. */
export interface RecordMessage {
  /** Index of a top-level message; -1 for a nested one, whose indexes are `path`. */
  readonly index: number;
  readonly path: readonly number[];
  readonly payloadStart: number;
}

/** Value of the schema id header. @param path null for Avro */
export function idHeaderOf(guid: string, path: Int32Array | null): Buffer {
  const bytes = Buffer.from(guid.replaceAll('-', ''), 'hex');
  const indexes = path === null ? [] : [Buffer.from(messageIndexBytes(path))];
  return Buffer.concat([Buffer.from([HEADER_VERSION]), bytes, ...indexes]);
}

/** Name of an offset in the details of an error: of the record, or of its schema id header. */
type Offset = 'byte' | 'headerByte';

/** Reads the schema id of a prefix. @throws bad_magic, truncated_frame, with the detail `byte` */
export function readPrefixId(bytes: Uint8Array): RecordId {
  if (bytes.length === 0) throw tooShort(bytes);
  if (bytes[0] !== FRAME.MAGIC)
    throw serdeError('bad_magic', 'the value does not begin with the magic byte 0x00', {
      details: { byte: 0 },
    });
  if (bytes.length < FRAME.HEADER_BYTES) throw tooShort(bytes);
  const id =
    (((bytes[1] as number) << 24) |
      ((bytes[2] as number) << 16) |
      ((bytes[3] as number) << 8) |
      (bytes[4] as number)) >>>
    0;
  return { id, bytes, end: FRAME.HEADER_BYTES };
}

const tooShort = ({ length }: Uint8Array, offset: Offset = 'byte'): Error =>
  serdeError(
    'truncated_frame',
    `a ${offset === 'byte' ? 'value' : 'schema id header'} of ${length} bytes is too short for a frame`,
    { details: { [offset]: length } },
  );

/** Reads the guid of a schema id header. @throws bad_magic, truncated_frame, with the detail
 *  `headerByte` */
export function readHeaderId(header: Uint8Array): RecordId {
  if (header[0] !== HEADER_VERSION)
    throw serdeError('bad_magic', 'the schema id header does not begin with the version 0x01', {
      details: { headerByte: 0 },
    });
  if (header.length < 1 + GUID_BYTES) throw tooShort(header, 'headerByte');
  const hex = Buffer.from(header.buffer, header.byteOffset + 1, GUID_BYTES).toString('hex');
  const id = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join(
    '-',
  );
  return { id, bytes: header, end: 1 + GUID_BYTES };
}

const FIRST_MESSAGE = [0] as const;
const indexes = new IndexReader();

/** Reads the message of a record behind its id. @param hasIndexes false for a format without
 *  message indexes
 *  @throws truncated_frame, bad_message_index, with the detail `byte` or `headerByte` */
export function readMessage({ id, bytes, end }: RecordId, hasIndexes: boolean): RecordMessage {
  const isPrefix = typeof id === 'number';
  if (!hasIndexes) return { index: 0, path: FIRST_MESSAGE, payloadStart: isPrefix ? end : 0 };
  const path: number[] = [];
  const status = indexes.path(bytes, end, bytes.length, path);
  if (status !== FRAME_STATUS.OK) {
    const offset: Offset = isPrefix ? 'byte' : 'headerByte';
    if (status === FRAME_STATUS.TRUNCATED) throw tooShort(bytes, offset);
    throw badIndexes({ [offset]: indexes.begun });
  }
  return {
    index: indexes.messageIndex,
    path: path.length === 0 ? FIRST_MESSAGE : path,
    payloadStart: isPrefix ? indexes.at : 0,
  };
}

/** Message indexes in `bytes[start, end)`. @throws bad_message_index */
export function messagePath(bytes: Uint8Array, start: number, end: number): readonly number[] {
  const path: number[] = [];
  const status = indexes.path(bytes, start, end, path);
  if (status !== FRAME_STATUS.OK) throw badIndexes({ byte: indexes.begun });
  return path.length === 0 ? FIRST_MESSAGE : path;
}

const badIndexes = (details: Readonly<Record<string, number>>): Error =>
  serdeError('bad_message_index', 'the message indexes are negative, too long or too many', { details });
