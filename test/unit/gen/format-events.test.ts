/** Events of the generator as Avro: the direct encoder writes the bytes of the codec. */
import { describe, expect, it } from 'vitest';
import { loadGenKernels } from '../../../src/addon/gen.ts';
import { type AccountType, formatEvents, framedEvents } from '../../../src/bin/gen/format-events.ts';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema } from '../../../src/formats/schema.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../../src/gen/event-options.ts';
import { EventGenerator, noiseOf } from '../../../src/gen/events.ts';
import { EVENT_AVRO, TEXT_EVENT_AVRO } from '../../../src/gen/schemas/events.ts';
import type { RegistryClient } from '../../../src/serde/client.ts';
import { writerCodec } from '../../../src/serde/codec.ts';

const ROWS = 300;
const PREFIX = [0, 0, 0, 0, 7];
const PAD_CHARS = 96;
const kernels = loadGenKernels('reference');
const registry = { register: async () => 7 } as unknown as RegistryClient;

/** Key and value of each record that the source writes. */
async function records(options: EventOptions, type: AccountType): Promise<ReadonlyArray<readonly Buffer[]>> {
  const append = await framedEvents(registry, 's', 'avro', type);
  const source = formatEvents(new EventGenerator(options, kernels), append);
  const batch = RecordBatch.create(ROWS, ROWS * 1024);
  const found: Buffer[][] = [];
  while (source.fill(batch, ROWS) > 0)
    for (let row = 0; row < batch.rowCount; row++)
      found.push([Buffer.from(batch.key(row) as Uint8Array), Buffer.from(batch.value(row) as Uint8Array)]);
  return found;
}

/** The same records by the codec, from events of the fixed layout. */
function expected(options: EventOptions, type: AccountType): ReadonlyArray<readonly Buffer[]> {
  const codec = writerCodec(parseSchema('AVRO', type === 'string' ? TEXT_EVENT_AVRO : EVENT_AVRO));
  const noise = Buffer.from(noiseOf(options.seed)).toString('base64');
  const generator = new EventGenerator(options, kernels);
  const events = EventBatch.create(ROWS);
  const { accountId, value, eventTs, seq } = events.columns;
  const found: Buffer[][] = [];
  for (let count = generator.fillEvents(events); count > 0; count = generator.fillEvents(events))
    for (let row = 0; row < count; row++) {
      const account = accountId[row] as bigint;
      const text = account.toString(16).padStart(16, '0');
      const at = Number(((seq[row] as bigint) * 61n) % BigInt(noise.length - PAD_CHARS));
      const payloads = new Payloads(1, 1024);
      codec.encode(
        {
          account_id: type === 'string' ? text : BigInt.asIntN(64, account),
          ...{ value: value[row], event_ts: eventTs[row], seq: seq[row] },
          pad: noise.slice(at, at + PAD_CHARS),
        },
        payloads,
      );
      const key = type === 'string' ? Buffer.from(text) : Buffer.from(text, 'hex');
      found.push([key, Buffer.from([...PREFIX, ...payloads.bytes.subarray(0, payloads.used)])]);
    }
  return found;
}

const OPTIONS: EventOptions = { ...DEFAULT_EVENTS, count: 700, perMs: 0.01, order: 'delayed' };

describe('events of the generator as Avro', () => {
  it.each<[string, EventOptions, AccountType]>([
    ['small accounts as numbers', OPTIONS, 'u64'],
    ['small accounts as texts', OPTIONS, 'string'],
    ['accounts above 2^63 as numbers', { ...OPTIONS, accountBase: 2n ** 64n - 500_000n }, 'u64'],
    ['accounts above 2^63 as texts', { ...OPTIONS, accountBase: 2n ** 64n - 500_000n }, 'string'],
    ['values of 45 bits', { ...OPTIONS, valueMin: -(2 ** 45), valueMax: 2 ** 45, baseMs: 0 }, 'string'],
  ])('the encoder writes the bytes of the codec for %s', async (_, options, type) => {
    const found = await records(options, type);
    expect(found).toHaveLength(700);
    expect(found).toEqual(expected(options, type));
  });
});
