/** Decoder of records of any schema: schema ids in prefixes, and guids in headers. */
import { expect, it } from 'vitest';
import { framePrefix } from '../../../../src/addon/reference/frame.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { AnyDecoder } from '../../../../src/registry/consumer/any.ts';
import { WriterSchemas } from '../../../../src/registry/consumer/writers.ts';
import { RegistryClient } from '../../../../src/serde/client.ts';
import { COMPILED_CODECS } from '../../../../src/serde/codec.ts';
import { idHeaderOf, VALUE_ID_HEADER } from '../../../../src/serde/frame.ts';
import { UNKNOWN_IDS_BURST } from '../../../../src/serde/unknown-ids.ts';
import { SeededRandom } from '../../../../src/sim/clock.ts';
import { realClock, turn } from '../../../wait.ts';

/** Clock at which the limit of unknown ids does not refill. */
const clock = { ...realClock, monotonicMs: () => 0 };
const GARBAGE = 1024;
const SCHEMA = JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'n', type: 'int' }] });

it('a batch with unknown guids has the limits of unknown ids, and its good record is decoded', async () => {
  const metrics = new Metrics();
  let asked = 0;
  let inFlight = 0;
  let inFlightMax = 0;
  const client = new RegistryClient({
    transport: {
      async request(_method, path) {
        asked++;
        inFlightMax = Math.max(inFlightMax, ++inFlight);
        await turn();
        inFlight--;
        return path === '/schemas/ids/1?subject=%3A.c%3A'
          ? { status: 200, body: JSON.stringify({ schema: SCHEMA }) }
          : { status: 404, body: '{"error_code":40403,"message":"not found"}' };
      },
    },
    clock,
    random: new SeededRandom(1),
    metrics,
    unknownForMs: 60_000,
    retries: 0,
    retryDelayMs: 1,
  });
  const batch = RecordBatch.create(GARBAGE + 1, 1 << 20);
  for (let i = 0; i < GARBAGE; i++) {
    const guid = `00000000-0000-0000-0000-${String(i).padStart(12, '0')}`;
    batch.append({ value: Buffer.of(2), headers: [[VALUE_ID_HEADER, idHeaderOf(guid, null)]] });
  }
  batch.append({ value: Buffer.concat([framePrefix(1, null), Buffer.of(2)]) });
  const decoder = new AnyDecoder(new WriterSchemas(client, COMPILED_CODECS, {}, '.c'));
  await decoder.prepare(batch);
  const { decoded, failed } = decoder.decode(batch);
  expect(decoded.map(({ row, value }) => [row, value])).toEqual([[GARBAGE, { n: 1 }]]);
  expect(failed).toHaveLength(GARBAGE);
  expect(new Set(failed.map(({ reason }) => reason))).toEqual(new Set(['unknown_schema_id']));
  expect(inFlightMax).toBe(8);
  expect(asked).toBe(1 + UNKNOWN_IDS_BURST);
  expect(metrics.counter('schema_lookups_skipped_total', '').value()).toBe(GARBAGE - UNKNOWN_IDS_BURST);
});
