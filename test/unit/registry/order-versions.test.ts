/** Verdicts of the registry's rules on the versions of Order and on the candidates, cell by cell,
 *  against live decode. */
import { describe, expect, test } from 'vitest';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../../src/formats/schema.ts';
import {
  logicalOrder,
  type OrderCandidate,
  type OrderShape,
  type OrderVersion,
} from '../../../src/gen/order.ts';
import {
  candidatesOf,
  canReadOrder,
  ORDER_VERSIONS,
  type OrderFormat,
  orderAsWritten,
  orderCandidate,
  orderSchema,
} from '../../../src/gen/order-versions.ts';
import { isCompatible } from '../../../src/registry/compatibility/finding.ts';
import { checkPair, judge, type Level } from '../../../src/registry/compatibility/modes.ts';
import { tryAll } from '../../../src/registry/proof/live.ts';
import { readerCodec } from '../../../src/registry/proof/reader.ts';
import { readerUnjudged, writerCodec } from '../../../src/serde/codec.ts';

const FORMATS = ['avro', 'protobuf'] as const;
const MODES = ['BACKWARD', 'FORWARD', 'FULL'] as const;
const EVENTS = 500;

const schemaOf = (shape: OrderShape, format: OrderFormat): Schema =>
  parseSchema(format === 'avro' ? 'AVRO' : 'PROTOBUF', orderSchema(shape, format));
const reads = (format: OrderFormat, reader: OrderShape, writer: OrderShape): boolean =>
  tryAll(schemaOf(reader, format), schemaOf(writer, format), { limit: EVENTS }).outcome !== 'FAIL';
const isAccepted = (
  format: OrderFormat,
  mode: Level,
  shape: OrderShape,
  versions: readonly OrderVersion[],
): boolean =>
  judge(
    schemaOf(shape, format),
    mode,
    versions.map((version) => ({ version, schema: schemaOf(version, format) })),
  ).compatible;
const modesOf = (
  format: OrderFormat,
  shape: OrderShape,
  earlier: readonly OrderVersion[],
): readonly string[] => MODES.filter((mode) => isAccepted(format, mode, shape, earlier));

describe('versions of Order', () => {
  test.each(FORMATS)('the stated readability of %s equals the verdict and live decode', (format) => {
    for (const reader of ORDER_VERSIONS)
      for (const writer of ORDER_VERSIONS) {
        const stated = canReadOrder(format, reader, writer);
        const findings = checkPair(schemaOf(reader, format), schemaOf(writer, format));
        expect([reader, writer, isCompatible(findings)]).toEqual([reader, writer, stated]);
        expect([reader, writer, reads(format, reader, writer)]).toEqual([reader, writer, stated]);
      }
  });

  test.each<[OrderVersion, readonly string[], readonly string[]]>([
    [2, ['BACKWARD', 'FORWARD', 'FULL'], ['BACKWARD', 'FORWARD', 'FULL']],
    [3, ['BACKWARD', 'FORWARD', 'FULL'], ['BACKWARD', 'FORWARD', 'FULL']],
    [4, ['BACKWARD'], ['BACKWARD', 'FORWARD', 'FULL']],
    [5, ['BACKWARD'], ['BACKWARD', 'FORWARD', 'FULL']],
    [6, ['FORWARD'], ['BACKWARD', 'FORWARD', 'FULL']],
  ])(
    'version %i follows its predecessor under the modes %j in Avro and %j in Protobuf',
    (to, avro, protobuf) => {
      const earlier = ORDER_VERSIONS.filter((version) => version < to);
      expect(modesOf('avro', to, earlier)).toEqual(avro);
      expect(modesOf('protobuf', to, earlier)).toEqual(protobuf);
    },
  );

  test('versions 1 to 5 are one legal chain under BACKWARD_TRANSITIVE in both formats, and 1 to 6 in Protobuf', () => {
    const isChain = (format: OrderFormat, last: number): boolean =>
      ORDER_VERSIONS.filter((version) => version <= last).every((to) =>
        isAccepted(
          format,
          'BACKWARD_TRANSITIVE',
          to,
          ORDER_VERSIONS.filter((version) => version < to),
        ),
      );
    expect([isChain('avro', 5), isChain('avro', 6)]).toEqual([true, false]);
    expect(isChain('protobuf', 6)).toBe(true);
  });
});

describe('candidates of each class of change', () => {
  test.each<[OrderCandidate, readonly string[] | undefined, readonly string[] | undefined]>([
    ['add-optional', ['BACKWARD', 'FORWARD', 'FULL'], ['BACKWARD', 'FORWARD', 'FULL']],
    ['add-optional-no-default', ['FORWARD'], undefined],
    ['add-required', ['FORWARD'], ['FORWARD']],
    ['remove', ['BACKWARD'], ['BACKWARD', 'FORWARD', 'FULL']],
    ['rename', [], ['BACKWARD', 'FORWARD', 'FULL']],
    ['retype-int-long', ['BACKWARD'], ['BACKWARD', 'FORWARD', 'FULL']],
    ['retype-int-string', [], []],
    ['reuse-number', undefined, []],
  ])('the candidate %s is accepted under %j in Avro and under %j in Protobuf', (name, avro, protobuf) => {
    const { base } = orderCandidate(name);
    const earlier = ORDER_VERSIONS.filter((version) => version <= base);
    for (const [format, expected] of [
      ['avro', avro],
      ['protobuf', protobuf],
    ] as const) {
      expect(candidatesOf(format).includes(name)).toBe(expected !== undefined);
      if (expected !== undefined)
        expect([format, modesOf(format, name, earlier)]).toEqual([format, expected]);
    }
  });

  test.each(FORMATS)('every verdict on a candidate in %s agrees with live decode', (format) => {
    for (const name of candidatesOf(format)) {
      const { base } = orderCandidate(name);
      for (const [reader, writer] of [
        [name, base],
        [base, name],
      ] as const) {
        const verdict = isCompatible(checkPair(schemaOf(reader, format), schemaOf(writer, format)));
        expect([reader, writer, reads(format, reader, writer)]).toEqual([reader, writer, verdict]);
      }
    }
  });

  test('NONE refuses a reused or retyped Protobuf number, and accepts every Avro candidate', () => {
    const refused = (format: OrderFormat): readonly string[] =>
      candidatesOf(format).filter((name) => {
        const earlier = ORDER_VERSIONS.filter((version) => version <= orderCandidate(name).base);
        return !isAccepted(format, 'NONE', name, earlier);
      });
    expect(refused('protobuf')).toEqual(['retype-int-string', 'reuse-number']);
    expect(refused('avro')).toEqual([]);
  });

  test('a reader of version 2 takes the text of a reused number for its note, without an error', () => {
    const order = logicalOrder(1n, 0);
    const read = readAcross(orderAsWritten(order, 'reuse-number'), 'reuse-number', 2);
    expect(read['note']).toBe(order.sales_channel);
  });

  test('an unjudged reader loses a retyped number without an error, and the reader of consumers refuses the record', () => {
    const order = logicalOrder(1n, 0);
    const written = orderAsWritten(order, 'retype-int-string');
    const read = readAcross(written, 'retype-int-string', 4);
    const quantities = (read['items'] as ReadonlyArray<{ readonly qty: number }>).map(({ qty }) => qty);
    expect(quantities).toEqual(order.items.map(() => 0));
    const decode = readerCodec(schemaOf(4, 'protobuf'), schemaOf('retype-int-string', 'protobuf'), [0]);
    const bytes = payloadOf(written, 'retype-int-string');
    expect(() => decode(bytes, 0, bytes.length)).toThrow('cannot read this record');
  });
});

function payloadOf(value: unknown, shape: OrderShape): Buffer {
  const payloads = new Payloads(1, 4096);
  writerCodec(schemaOf(shape, 'protobuf')).encode(value, payloads);
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}

/** Decodes a Protobuf order with the schema of another subject, without a check of the schemas. */
function readAcross(value: unknown, writer: OrderShape, reader: OrderVersion): Record<string, unknown> {
  const bytes = payloadOf(value, writer);
  const decode = readerUnjudged(schemaOf(reader, 'protobuf'), schemaOf(writer, 'protobuf'), [0]);
  return decode(bytes, 0, bytes.length) as Record<string, unknown>;
}
