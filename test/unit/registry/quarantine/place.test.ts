/** Place where a quarantined record breaks: the byte of its frame, header or payload. */
import { describe, expect, it } from 'vitest';
import type { RecordHeader } from '../../../../src/core/layout/record-batch.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import { breakPlace } from '../../../../src/registry/quarantine/place.ts';
import { idHeaderOf, VALUE_ID_HEADER } from '../../../../src/serde/frame.ts';

const AVRO = parseSchema(
  'AVRO',
  '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}',
);
const PROTO = parseSchema('PROTOBUF', 'syntax = "proto3"; message M { int32 a = 1; }');
const GUID = '00112233-4455-6677-8899-aabbccddeeff';

const frame = (...rest: readonly number[]): Buffer => Buffer.from([0, 0, 0, 0, 7, ...rest]);
const header = (value: Uint8Array): readonly RecordHeader[] => [[VALUE_ID_HEADER, value]];
const place = (
  bytes: Buffer,
  code: Parameters<typeof registryError>[0],
  {
    schema = AVRO,
    headers = [],
    details = {},
  }: {
    readonly schema?: Schema | undefined;
    readonly headers?: readonly RecordHeader[];
    readonly details?: Readonly<Record<string, unknown>>;
  } = {},
) =>
  breakPlace(bytes, headers, registryError(code, 'it breaks', { details }), (id) =>
    id === 7 || id === GUID ? schema : undefined,
  );

describe('frame', () => {
  it('a value without a frame breaks at its first byte, and a short frame at its end', () => {
    expect(place(Buffer.from('x'), 'bad_magic')).toMatchObject({ byte: 0, decoded: [] });
    expect(place(Buffer.from([0, 0]), 'truncated_frame')).toMatchObject({ byte: 2, decoded: [] });
  });

  it('an unknown id breaks at the id, in the prefix or in the header', () => {
    expect(place(Buffer.from([0, 0, 0, 0, 9, 2]), 'unknown_schema_id')).toMatchObject({ byte: 1 });
    const unknown = header(idHeaderOf(GUID.replace('00', '99'), null));
    expect(place(Buffer.from([2]), 'unknown_schema_id', { headers: unknown })).toMatchObject({
      headerByte: 1,
    });
  });

  it('a header of another version breaks at its first byte', () => {
    const wrong = header(Buffer.from([9, 1, 2]));
    expect(place(Buffer.from([2]), 'bad_magic', { headers: wrong }).byte).toBe(0);
    expect(
      place(Buffer.from([2]), 'truncated_frame', { headers: header(Buffer.from([1, 2])) }),
    ).toMatchObject({
      headerByte: 2,
    });
  });

  it('message indexes that do not exist break behind the id', () => {
    expect(place(frame(0x01, 0x01), 'bad_message_index', { schema: PROTO })).toMatchObject({ byte: 5 });
    expect(place(frame(0x02, 0x08), 'bad_message_index', { schema: PROTO })).toMatchObject({ byte: 5 });
  });
});

describe('payload', () => {
  it('a malformed payload breaks at its byte behind the frame, or from the start with a header', () => {
    const details = { at: 1, path: 'R.b' };
    expect(place(frame(2), 'malformed_payload', { details })).toEqual({
      byte: 6,
      path: 'R.b',
      decoded: ['a=1'],
      isCut: false,
    });
    const headers = header(idHeaderOf(GUID, null));
    expect(place(Buffer.from([2]), 'malformed_payload', { details, headers })).toMatchObject({
      byte: 1,
      decoded: ['a=1'],
    });
  });

  it('a record that only its writer can read shows all its fields, and no byte', () => {
    const found = place(frame(2, 4), 'incompatible_schema', { details: { at: 0, path: 'R.c' } });
    expect(found).toEqual({ path: 'R.c', decoded: ['a=1', 'b=2'], isCut: false });
  });
});
