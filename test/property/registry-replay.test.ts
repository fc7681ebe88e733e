/** The decoder of a replay decides about every record as the consumer's decoder does: on whole and
 *  altered records of several writer versions, in both formats, with either kernels. */
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { loadColumnKernels } from '../../src/addon/codec.ts';
import { loadKernels } from '../../src/addon/load.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { guidOf } from '../../src/formats/guid.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import { logicalOrder, type OrderVersion } from '../../src/gen/order.ts';
import { orderAsWritten, orderSchema } from '../../src/gen/order-versions.ts';
import { BatchDecoder } from '../../src/registry/consumer/decoder.ts';
import { WriterSchemas } from '../../src/registry/consumer/writers.ts';
import { ReplayDecoder } from '../../src/registry/replay/decoder.ts';
import { RegistryClient } from '../../src/serde/client.ts';
import { COMPILED_CODECS, writerCodec } from '../../src/serde/codec.ts';
import { idHeaderOf } from '../../src/serde/frame.ts';
import { REFERENCE_CODECS } from '../../src/serde/reference-codec.ts';
import { runs } from '../tier.ts';
import { realClock } from '../wait.ts';

const MODE = process.env['MILLRACE_NATIVE'] === 'off' ? 'reference' : 'native';
const ROWS = 64;
const BYTES = 1 << 20;
const VERSIONS = [1, 2, 3, 4, 5, 6] as const;
const UNREADABLE_ID = 900;
const UNKNOWN_ID = 901;

type Format = 'AVRO' | 'PROTOBUF';
const schemaOf = (format: Format, version: OrderVersion): Schema =>
  parseSchema(format, orderSchema(version, format === 'AVRO' ? 'avro' : 'protobuf'));

/** Registry whose ids are the versions of Order; one id has a text that is no schema. */
function clientOf(format: Format): RegistryClient {
  const byPath = new Map<string, unknown>();
  for (const version of VERSIONS) {
    const { text } = schemaOf(format, version);
    const document = { schema: text, schemaType: format };
    byPath.set(`/schemas/ids/${version}`, document);
    const guid = guidOf({ format, text, references: [] });
    byPath.set(`/schemas/guids/${guid}?referenceFormat=qualified`, document);
  }
  byPath.set(`/schemas/ids/${UNREADABLE_ID}`, { schema: 'no schema', schemaType: format });
  return new RegistryClient({
    transport: {
      request: async (_method: string, path: string) =>
        byPath.has(path)
          ? { status: 200, body: JSON.stringify(byPath.get(path)) }
          : { status: 404, body: '{"error_code":40403,"message":"Schema not found"}' },
    },
    clock: realClock,
    random: { fraction: () => 0 },
    metrics: new Metrics(),
    unknownForMs: 1000,
    retries: 0,
    retryDelayMs: 1,
  });
}

/** Payload of an order, with its message indexes. */
function payloadOf(format: Format, version: OrderVersion, index: number): Buffer {
  const { encode, messageIndexes } = writerCodec(schemaOf(format, version));
  const payloads = new Payloads(1, 4096);
  encode(orderAsWritten(logicalOrder(1, index), version), payloads);
  const payload = Buffer.from(payloads.bytes.subarray(0, payloads.used));
  return messageIndexes === null ? payload : Buffer.concat([Buffer.from([0]), payload]);
}

const prefix = (id: number): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(id, 1);
  return head;
};

interface Planted {
  readonly version: OrderVersion;
  readonly index: number;
  /** Undefined: the id of the version. */
  readonly id: number | undefined;
  readonly cut: number | undefined;
  readonly flips: ReadonlyArray<readonly [place: number, bits: number]>;
}

const planted = fc.record<Planted>({
  version: fc.constantFrom(...VERSIONS),
  index: fc.nat(200),
  id: fc.option(fc.constantFrom(UNREADABLE_ID, UNKNOWN_ID, 1, 6), { nil: undefined, freq: 5 }),
  cut: fc.option(fc.nat(600), { nil: undefined, freq: 4 }),
  flips: fc.oneof(
    { weight: 3, arbitrary: fc.constant([]) },
    {
      weight: 2,
      arbitrary: fc.array(fc.tuple(fc.nat(600), fc.integer({ min: 1, max: 255 })), { maxLength: 3 }),
    },
  ),
});

function bytesOf(format: Format, one: Planted): Buffer {
  const bytes = Buffer.concat([prefix(one.id ?? one.version), payloadOf(format, one.version, one.index)]);
  for (const [place, bits] of one.flips)
    bytes[place % bytes.length] = (bytes[place % bytes.length] as number) ^ bits;
  return one.cut === undefined ? bytes : bytes.subarray(0, one.cut);
}

const replayDecoder = (client: RegistryClient, reader: Schema, codecs = COMPILED_CODECS): ReplayDecoder =>
  new ReplayDecoder({
    kernels: loadKernels(MODE),
    columns: loadColumnKernels(MODE),
    codecs,
    reader,
    writers: new WriterSchemas(client, codecs, {}),
    rowCapacity: ROWS,
  });

const opened: ReplayDecoder[] = [];
afterAll(() => {
  for (const decoder of opened) decoder.close();
});

describe.each(['AVRO', 'PROTOBUF'] as const)('%s', (format) => {
  it.each([1, 3, 5, 6] as const)(
    'a replay with version %s fails the records that the consumer fails, for the same reasons',
    async (version) => {
      const client = clientOf(format);
      const reader = schemaOf(format, version);
      const consumer = new BatchDecoder(client, loadKernels(MODE), reader, ROWS);
      const replay = replayDecoder(client, reader);
      opened.push(replay);
      const batch = RecordBatch.create(ROWS, BYTES);
      await fc.assert(
        fc.asyncProperty(fc.array(planted, { minLength: 1, maxLength: ROWS }), async (records) => {
          batch.clear();
          for (const one of records) batch.append({ value: bytesOf(format, one) });
          batch.append({ value: null });
          await consumer.prepare(batch);
          await replay.prepare(batch);
          const wanted = consumer.decode(batch);
          const found = replay.decode(batch);
          const shown = (failed: typeof wanted.failed) =>
            failed.map(({ row, reason, schemaId, error }) => [row, reason, schemaId, error.message]);
          expect(shown(found.failed)).toEqual(shown(wanted.failed));
          const decoded = new Map<number | string, number>();
          for (const { schemaId, value } of wanted.decoded)
            if (value !== null) decoded.set(schemaId, (decoded.get(schemaId) ?? 0) + 1);
          expect(new Map([...found.decoded].filter(([, count]) => count > 0))).toEqual(decoded);
          expect(found.tombstones).toBe(1);
        }),
        { numRuns: runs(60) },
      );
    },
  );

  it('single values by the reference codecs and columns count the same whole records', async () => {
    const client = clientOf(format);
    const reader = schemaOf(format, 5);
    const batch = RecordBatch.create(ROWS, BYTES);
    for (let index = 0; index < 50; index++) {
      const version = ((index % 5) + 1) as OrderVersion;
      batch.append({ value: Buffer.concat([prefix(version), payloadOf(format, version, index)]) });
    }
    for (const codecs of [COMPILED_CODECS, REFERENCE_CODECS]) {
      const replay = replayDecoder(client, reader, codecs);
      opened.push(replay);
      await replay.prepare(batch);
      const { decoded, failed } = replay.decode(batch);
      expect(failed).toEqual([]);
      expect([...decoded].sort()).toEqual([1, 2, 3, 4, 5].map((id) => [id, 10]));
    }
  });

  it('records with their schema id in a header are decoded, and rows that do not count are left out', async () => {
    const client = clientOf(format);
    const guid = guidOf({ format, text: schemaOf(format, 2).text, references: [] });
    const { messageIndexes } = writerCodec(schemaOf(format, 2));
    const header = idHeaderOf(guid, messageIndexes);
    const whole = payloadOf(format, 2, 1);
    const payload = messageIndexes === null ? whole : whole.subarray(1);
    const batch = RecordBatch.create(ROWS, BYTES);
    batch.append({ value: payload, headers: [['__value_schema_id', header]] });
    batch.append({ value: payload.subarray(0, 9), headers: [['__value_schema_id', header]] });
    batch.append({ value: payload, headers: [['__value_schema_id', Buffer.from([1, 2])]] });
    batch.append({ value: Buffer.concat([prefix(2), whole]), headers: [['other', null]] });
    batch.append({ value: Buffer.from('left out') });
    const replay = replayDecoder(client, schemaOf(format, 3));
    opened.push(replay);
    await replay.prepare(batch);
    const { decoded, failed } = replay.decode(batch, Uint8Array.from([1, 1, 1, 1, 0]));
    expect(decoded).toEqual(
      new Map<number | string, number>([
        [guid, 1],
        [2, 1],
      ]),
    );
    expect(failed.map(({ row, reason }) => [row, reason])).toEqual([
      [1, 'malformed_payload'],
      [2, 'truncated_frame'],
    ]);
  });
});
