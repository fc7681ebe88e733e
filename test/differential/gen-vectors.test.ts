/** Compares both generators with vectors of an independent program that follows
 *  docs/reference/generator.md. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { xxh32Create, xxh32Digest } from '../../src/addon/reference/xxh32.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { packageRoot } from '../../src/shell/package.ts';

interface Vector {
  readonly seed: string;
  readonly count: number;
  readonly accounts: number;
  readonly zipf: number;
  readonly account_base: string;
  readonly value_min: number;
  readonly value_max: number;
  readonly base: number;
  readonly per_ms: number;
  readonly order: EventOptions['order'];
  readonly tail: number;
  readonly stragglers: number;
  readonly typical_max_ms: number;
  readonly tail_max_ms: number;
  readonly straggler_max_ms: number;
  readonly xxh32: string;
  /** account_id, value, event_ts and seq of the first events. */
  readonly first: ReadonlyArray<readonly [string, string, string, string]>;
}

const path = join(packageRoot(), 'test', 'vectors', 'gen-events.json');
const vectors = JSON.parse(readFileSync(path, 'utf8')) as readonly Vector[];

const optionsOf = (vector: Vector): EventOptions => ({
  seed: BigInt(vector.seed),
  count: vector.count,
  accounts: vector.accounts,
  zipf: vector.zipf,
  accountBase: BigInt(vector.account_base),
  valueMin: vector.value_min,
  valueMax: vector.value_max,
  baseMs: vector.base,
  perMs: vector.per_ms,
  order: vector.order,
  delays: {
    tail: vector.tail,
    stragglers: vector.stragglers,
    typicalMaxMs: vector.typical_max_ms,
    tailMaxMs: vector.tail_max_ms,
    stragglerMaxMs: vector.straggler_max_ms,
  },
});

describe.each(['native', 'reference'] as const)('generator vectors of %s kernels', (mode) => {
  const kernels = loadGenKernels(mode);
  test.each(vectors.map((vector) => [vector.xxh32, vector] as const))(
    'the generator gives the published stream %s',
    (digest, vector) => {
      const generator = new EventGenerator(optionsOf(vector), kernels);
      const batch = RecordBatch.create(777, 777 * EVENT.BYTES);
      const state = xxh32Create();
      while (generator.fillRecords(batch) > 0) kernels.genDigest(state, batch);
      expect(xxh32Digest(state).toString(16).padStart(8, '0')).toBe(digest);
      const events = EventBatch.create(3);
      new EventGenerator(optionsOf(vector), kernels).fillEvents(events);
      const { accountId, value, eventTs, seq } = events.columns;
      const first = [0, 1, 2].map((i) => [accountId, value, eventTs, seq].map((column) => String(column[i])));
      expect(first).toEqual(vector.first);
    },
  );
});
