/** Ids of text keys: hash and search in the cache, the addon's kernel beside the TypeScript
 *  reference implementation. */
import { REST_CELLS } from '../src/addon/key-surface.ts';
import { loadKeyKernels } from '../src/addon/keys.ts';
import { invariant } from '../src/core/errors.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { HalfSipHash } from '../src/core/random/half-sip-hash.ts';
import { KeyCache } from '../src/engine/keys/cache.ts';
import { KeySpans } from '../src/engine/keys/spans.ts';
import { type Bench, type BenchContext, type BenchResult, microTurns, result } from './harness.ts';
import { BATCH_ROWS, KERNEL_GAIN_GOAL, ring } from './kernels.ts';

const SECRET = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
const CACHE_BYTES = 64 * 1024 * 1024;
const GENERATION = 1;
/** Cached keys: few, whose entries stay in the processor's cache, and many. */
const KEYS = [1000, 500_000] as const;

/** Text of 16 hexadecimal digits. */
const textOf = (key: number): Uint8Array => Buffer.from(key.toString(16).padStart(16, '0'));

function cacheOf(keys: number): KeyCache {
  const cache = new KeyCache(CACHE_BYTES);
  const hash = new HalfSipHash(SECRET);
  const spans = new KeySpans();
  spans.reset(1);
  for (let key = 0; key < keys; key++) {
    spans.reset(1);
    spans.begin();
    spans.put(textOf(key), 0, 16);
    spans.end(0);
    hash.hash(spans.words, 0, 16);
    cache.insert(hash.low, hash.high, GENERATION, 0, spans.words, 0, 16);
  }
  return cache;
}

/** Batches of keys without an order. */
const batchesOf = (keys: number) =>
  ring((turn) => {
    const events = EventBatch.create(BATCH_ROWS);
    const spans = new KeySpans();
    spans.reset(BATCH_ROWS);
    events.rowCount = BATCH_ROWS;
    for (let row = 0; row < BATCH_ROWS; row++) {
      spans.begin();
      spans.put(textOf(((turn * BATCH_ROWS + row) * 7_368_787) % keys), 0, 16);
      spans.end(row);
    }
    return { events, spans };
  });

async function measure(context: BenchContext, keys: number): Promise<BenchResult> {
  const side = (mode: 'native' | 'reference') => {
    const kernel = loadKeyKernels(mode).open(SECRET);
    const cache = cacheOf(keys);
    const batches = batchesOf(keys);
    const into = { rest: new Int32Array(REST_CELLS * BATCH_ROWS), state: new Float64Array(4) };
    let rest = 0;
    const round = (): void => {
      for (const { events, spans } of batches) {
        kernel.probe(events, spans, 0, cache, GENERATION, CACHE_BYTES, into);
        rest = into.state[1] as number;
      }
    };
    round();
    const ids = batches.map(({ events }) => [...events.columns.accountId].join()).join();
    return { round, ids, rest, rows: batches.length * BATCH_ROWS };
  };
  const [native, reference] = [side('native'), side('reference')];
  invariant(native.ids === reference.ids && native.rest === reference.rest, 'both sides find the same keys');
  context.say(`${keys} keys: ${native.rest} of the last ${BATCH_ROWS} rows are not in their first slot`);
  const series = await microTurns(
    { native: native.round, reference: reference.round },
    { rows: native.rows, smoke: context.smoke, repeats: context.repeats },
  );
  return result({
    metric: `ids of texts of 16 B, ${keys} cached`,
    unit: 'ns/row',
    better: 'less',
    ours: series.native,
    against: { name: 'TypeScript reference implementation', series: series.reference },
    goal: { ratioAtLeast: KERNEL_GAIN_GOAL },
  });
}

export const bench: Bench = {
  name: 'keys',
  summary: 'Ids of variable-length keys: hash and search in the cache, kernel against TypeScript reference.',
  async run(context) {
    const results: BenchResult[] = [];
    for (const keys of context.smoke ? [KEYS[0]] : KEYS) results.push(await measure(context, keys));
    return results;
  },
};
