/** Frame of one record: the schema id before the payload, or its guid in a header.
 *
 *  Prefix: 00, schema id u32 big-endian. Header `__value_schema_id` or `__key_schema_id`: 01, guid
 *  of 16 bytes; the payload then has no prefix. For Protobuf the message indexes follow the id or
 *  the guid: zigzag varints `count, index…`; the path [0] is written as the single byte 00. Source:
 *  wire format of the schema registries, versions 0 and 1. The batch kernels of src/addon read the
 *  same prefix (test/property/registry-client-frame).
 */
import { messageIndexBytes } from '../addon/reference/frame.ts';
import { FRAME } from '../core/layout/layouts.gen.ts';
import { serdeError } from './errors.ts';

export const VALUE_ID_HEADER = '__value_schema_id';
export const KEY_ID_HEADER = '__key_schema_id';
const HEADER_VERSION = 1;
const GUID_BYTES = 16;
const VARINT_BYTES_MAX = 5;

/** Schema of a record: its id or its guid, its message indexes, and the start of its payload. */
export interface RecordFrame {
  readonly id: number | string;
  /** Undefined for formats without message indexes. */
  readonly path: readonly number[] | undefined;
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

/** Reads the prefix of a record.
 *  @throws bad_magic, truncated_frame, bad_message_index, with the detail `byte` */
export function readPrefix(bytes: Uint8Array, hasIndexes: boolean): RecordFrame {
  if (bytes.length === 0) throw tooShort(bytes);
  if (bytes[0] !== FRAME.MAGIC)
    throw serdeError('bad_magic', 'the value does not begin with the magic byte 0x00', {
      details: { byte: 0 },
    });
  if (bytes.length < FRAME.HEADER_BYTES) throw tooShort(bytes);
  const id = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1, false);
  if (!hasIndexes) return { id, path: undefined, payloadStart: FRAME.HEADER_BYTES };
  const { path, end } = readIndexes(bytes, FRAME.HEADER_BYTES, 'byte');
  return { id, path, payloadStart: end };
}

const tooShort = ({ length }: Uint8Array, offset: Offset = 'byte'): Error =>
  serdeError(
    'truncated_frame',
    `a ${offset === 'byte' ? 'value' : 'schema id header'} of ${length} bytes is too short for a frame`,
    { details: { [offset]: length } },
  );

/** Reads a schema id header.
 *  @throws bad_magic, truncated_frame, bad_message_index, with the detail `headerByte` */
export function readIdHeader(header: Uint8Array, hasIndexes: boolean): RecordFrame {
  if (header[0] !== HEADER_VERSION)
    throw serdeError('bad_magic', 'the schema id header does not begin with the version 0x01', {
      details: { headerByte: 0 },
    });
  if (header.length < 1 + GUID_BYTES) throw tooShort(header, 'headerByte');
  const hex = Buffer.from(header.buffer, header.byteOffset + 1, GUID_BYTES).toString('hex');
  const id = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join(
    '-',
  );
  const path = hasIndexes ? readIndexes(header, 1 + GUID_BYTES, 'headerByte').path : undefined;
  return { id, path, payloadStart: 0 };
}

function readIndexes(
  bytes: Uint8Array,
  start: number,
  offset: Offset,
): { readonly path: readonly number[]; readonly end: number } {
  let at = start;
  let begun = start;
  const next = (): number => {
    let bits = 0;
    begun = at;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (at >= bytes.length) throw tooShort(bytes, offset);
      const byte = bytes[at++] as number;
      bits |= (byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      const past32Bits = i === VARINT_BYTES_MAX - 1 && byte > 0x0f;
      if (past32Bits || (i > 0 && byte === 0)) break;
      return (bits >>> 1) ^ -(bits & 1);
    }
    throw badIndexes({ [offset]: begun });
  };
  const count = next();
  if (count < 0 || count > FRAME.MESSAGE_DEPTH_MAX) throw badIndexes({ [offset]: begun });
  if (count === 0) return { path: [0], end: at };
  const path: number[] = [];
  for (let i = 0; i < count; i++) {
    const index = next();
    if (index < 0) throw badIndexes({ [offset]: begun });
    path.push(index);
  }
  return { path, end: at };
}

const badIndexes = (details: Readonly<Record<string, number>>): Error =>
  serdeError('bad_message_index', 'the message indexes are negative, too long or too many', { details });
