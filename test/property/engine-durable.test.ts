/** Durability of the state: a run has the same result wherever it is killed and at any number of
 *  shards of the next life. A damaged file is reported and never makes a result wrong. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { segmentSeq } from '../../src/engine/durability/changelog/log.ts';
import { type BaseEntry, ownFile } from '../../src/engine/durability/checkpoint/state-manifest.ts';
import { CHECKPOINT_ACTIONS, type CheckpointStep } from '../../src/engine/durability/checkpoint/steps.ts';
import type { FileEntry } from '../../src/engine/durability/checkpoint/whole-file.ts';
import { openDisk } from '../../src/io/disk/node.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SIDES } from '../differential/window-kit.ts';
import { isFull, runs } from '../tier.ts';
import { type Stream, streams } from '../windows/streams.ts';
import { type Course, Killed, type Life, Loop, type Outcome, Results } from './durable-kit.ts';
import { type Draw, drawFrom } from './engine-kit.ts';

type Kernels = (typeof SIDES)[number];

const SMALL = { segmentBytes: 3000, baseBytesMin: 600, baseFactor: 0.2 };

const courses: fc.Arbitrary<Course> = fc.record({
  batchRows: fc.integer({ min: 1, max: 6 }),
  checkpointEvery: fc.integer({ min: 1, max: 5 }),
  deliverEvery: fc.constantFrom(1, 2, 5, 12, 30),
  shards: fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 }),
  sizes: fc.constantFrom(6_000, 20_000, 1_000_000).map((stepBytes) => ({ ...SMALL, stepBytes })),
});

const anyStream = (entriesMax: number) =>
  streams({
    windows: ['tumbling', 'sliding', 'session'],
    watermarks: ['partition', 'global'],
    decisions: true,
    maxFuture: true,
    entriesMax,
  });

interface RunResult {
  readonly outcome: Outcome;
  /** Checkpoint steps of all lives, in order. */
  readonly steps: readonly CheckpointStep[];
  readonly deaths: number;
}

/** Runs lives one after the other; the last life runs to the end. */
async function runLives(
  kernels: Kernels,
  stream: Stream,
  course: Course,
  disk: SimDisk,
  results: Results,
  lives: readonly Life[] = [],
  draw: Draw = () => 0,
): Promise<RunResult> {
  const steps: CheckpointStep[] = [];
  let deaths = 0;
  for (let life = 0; ; life++) {
    const { atStep, beforeRow } = lives[life] ?? {};
    const shards = course.shards[life % course.shards.length] as number;
    let isDead = false;
    let count = 0;
    const die = (): never => {
      if (!isDead) disk.crash(draw);
      isDead = true;
      throw new Killed();
    };
    const onStep = (step: CheckpointStep): void => {
      if (!isDead) steps.push(step);
      if (isDead || count++ === atStep) die();
    };
    const loop = new Loop({ kernels, stream, course, disk: disk.view(), results, shards, onStep });
    try {
      await loop.start();
      const outcome = await loop.run(beforeRow);
      await loop.close();
      return { outcome, steps, deaths };
    } catch (thrown) {
      if (!isDead && !(thrown instanceof Killed)) throw thrown;
      deaths++;
      if (!isDead) disk.crash(draw);
      isDead = true;
      await loop.releaseState();
    }
  }
}

const runWithoutDeath = (kernels: Kernels, stream: Stream, course: Course): Promise<RunResult> =>
  runLives(kernels, stream, course, new SimDisk(), new Results());

const EVENTS = 150;

/** Fixed streams in which every checkpoint step occurs. */
const CASES: ReadonlyArray<{ readonly stream: Stream; readonly course: Course }> = (
  ['tumbling', 'sliding', 'session'] as const
).map((window, i) => {
  const rules = { skewMs: 4n, latenessMs: 6n };
  const log = Array.from({ length: EVENTS }, (_, n) => {
    const draw = drawFrom(n * 7 + i);
    return {
      kind: 'event' as const,
      partition: draw(2),
      accountId: BigInt(draw(9)),
      value: BigInt(draw(100)) - 50n,
      eventTs: BigInt(n * 2 - draw(9)),
    };
  });
  const course = {
    batchRows: 4,
    checkpointEvery: 2,
    // The sink is slower than a snapshot.
    deliverEvery: window === 'sliding' ? 4 : 11,
    shards: [2, 3, 1],
    sizes: { ...SMALL, stepBytes: window === 'sliding' ? 12_000 : 20_000 },
  };
  const shape =
    window === 'session'
      ? ({ window, gapMs: 5n } as const)
      : window === 'sliding'
        ? ({ window, sizeMs: 160n, slideMs: 20n } as const)
        : ({ window, sizeMs: 20n } as const);
  return { stream: { rules: { ...rules, ...shape }, partitions: 2, log }, course };
});

/** First, middle and last index of each kind of step; in the fast tier, the middle one. */
function indexesOf(steps: readonly CheckpointStep[]): number[] {
  const indexes = new Map<CheckpointStep, number[]>();
  for (const [at, step] of steps.entries()) indexes.set(step, [...(indexes.get(step) ?? []), at]);
  const some = [...indexes.values()].flatMap((at) =>
    isFull ? [at[0], at[at.length >> 1], at.at(-1)] : [at[at.length >> 1]],
  ) as number[];
  return [...new Set(some)].sort((a, b) => a - b);
}

describe.each(SIDES)('run state over the $name kernels', (kernels) => {
  it('a run ends in the same state for any ends of its lives and any numbers of shards', async () => {
    const lives = fc.array(
      fc.oneof(fc.record({ beforeRow: fc.nat({ max: 90 }) }), fc.record({ atStep: fc.nat({ max: 120 }) })),
      { maxLength: 4 },
    );
    await fc.assert(
      fc.asyncProperty(anyStream(90), courses, lives, fc.nat(), async (stream, course, ends, seed) => {
        const expected = await runWithoutDeath(kernels, stream, course);
        const disk = new SimDisk();
        const found = await runLives(kernels, stream, course, disk, new Results(), ends, drawFrom(seed));
        expect(found.outcome).toEqual(expected.outcome);
      }),
      { numRuns: runs(80) },
    );
  });

  it('a run survives a crash at every step of a checkpoint and all along the log', async () => {
    const seen = new Set<string>();
    for (const { stream, course } of CASES) {
      const expected = await runWithoutDeath(kernels, stream, course);
      for (const step of expected.steps) seen.add(step);
      const ends: Life[] = indexesOf(expected.steps).map((atStep) => ({ atStep }));
      for (let beforeRow = 3; beforeRow < EVENTS; beforeRow += isFull ? 5 : 40) ends.push({ beforeRow });
      for (const [i, life] of ends.entries()) {
        const disk = new SimDisk();
        const found = await runLives(kernels, stream, course, disk, new Results(), [life], drawFrom(i));
        expect(found.deaths, JSON.stringify(life)).toBe(1);
        expect(found.outcome, JSON.stringify(life)).toEqual(expected.outcome);
      }
    }
    expect([...seen].sort()).toEqual(
      CHECKPOINT_ACTIONS.flatMap((action) => [`before ${action}`, `after ${action}`]).sort(),
    );
  });
});

const refusalOf = (thrown: unknown): string => {
  expect((thrown as { code?: string }).code).toBe('state_corrupt');
  return (thrown as Error).message;
};

/** Damaged forms of a file; undefined means that the file is deleted. */
function damages(bytes: Uint8Array, draw: Draw): Array<Uint8Array | undefined> {
  const flipped = (at: number): Uint8Array => {
    const other = bytes.slice();
    other[at] = (other[at] as number) ^ (1 << draw(8));
    return other;
  };
  const cuts = [0, 1, bytes.length >> 1, bytes.length - 1].map((end) => bytes.slice(0, end));
  const indexes = [0, 5, 13, 21, bytes.length >> 1, bytes.length - 1, draw(bytes.length), draw(bytes.length)];
  return [undefined, ...cuts, ...indexes.filter((at) => at < bytes.length).map(flipped)];
}

describe('run state on this machine', () => {
  const root = mkdtempSync(join(tmpdir(), 'millrace-durable-'));
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  it.each(CASES)('a run resumes from a folder: $stream.rules.window', async ({ stream, course }) => {
    const [, kernels] = SIDES as readonly [Kernels, Kernels];
    const expected = await runWithoutDeath(kernels, stream, course);
    // Steps after the first checkpoint and in the first half. On a slow disk, a run begins
    // snapshots less often and has fewer steps than this one.
    const indexes = indexesOf(expected.steps).filter((at) => at > 9 && at < expected.steps.length / 2);
    const some = indexes.filter((_, i) => i % 5 === 2);
    for (const atStep of some) {
      const disk = await openDisk(mkdtempSync(join(root, 'run-')));
      const results = new Results();
      let count = 0;
      const onStep = (): void => {
        if (count++ >= atStep) throw new Killed();
      };
      const parts = { kernels, stream, course, disk, results };
      const first = new Loop({ ...parts, shards: 2, onStep });
      await expect(first.start().then(() => first.run())).rejects.toBeInstanceOf(Killed);
      // Completed writes survive, as they do when a process is killed.
      await first.close();
      const second = new Loop({ ...parts, shards: 3, onStep: () => {} });
      await second.start();
      expect(second.restored).toBeDefined();
      expect(await second.run()).toEqual(expected.outcome);
      await second.close();
    }
    expect(some.length).toBeGreaterThan(isFull ? 1 : 0);
  });
});

describe('damaged state file', () => {
  it.each(CASES)(
    'a damaged state file is reported, and the resumed run has the same result: $stream.rules.window',
    async ({ stream, course }) => {
      const [kernels] = SIDES as readonly [Kernels, ...Kernels[]];
      const expected = await runWithoutDeath(kernels, stream, course);
      const whole = new SimDisk();
      const results = new Results();
      const first = new Loop({
        ...{ kernels, stream, course, results, shards: 2 },
        disk: whole.view(),
        onStep: () => {},
      });
      await first.start();
      await expect(first.run(EVENTS - 30)).rejects.toBeInstanceOf(Killed);
      whole.crash((below) => below - 1);
      await first.releaseState();

      const names = whole.names();
      const manifests = names.filter((name) => ownFile(name)?.role === 'manifest');
      expect(manifests.length).toBe(3);
      const draw = drawFrom(names.length);
      let refusals = 0;
      let fallbacks = 0;
      for (const name of names) {
        for (const left of damages(whole.bytesOf(name) as Uint8Array, draw)) {
          const disk = whole.copy();
          disk.drop(name);
          if (left !== undefined) disk.put(name, left);
          const own = new Results();
          for (const [key, row] of results.rows) own.put(key, row);
          const loop = new Loop({
            ...{ kernels, stream, course, results: own, shards: 3 },
            disk: disk.view(),
            onStep: () => {},
          });
          try {
            await loop.start();
          } catch (thrown) {
            expect(refusalOf(thrown)).toContain(segmentSeq(name) === undefined ? name : 'changelog');
            refusals++;
            continue;
          }
          const { refused, manifest } = loop.restored as NonNullable<typeof loop.restored>;
          if (refused.length > 0) expect(refused.join()).toContain(name);
          if (manifest.id !== ownFile(manifests.at(-1) as string)?.id) fallbacks++;
          const outcome = await loop.run();
          await loop.close();
          expect(outcome, name).toEqual(expected.outcome);
        }
      }
      expect(refusals).toBeGreaterThan(0);
      expect(fallbacks).toBeGreaterThan(0);
    },
  );

  it('damage is detected wherever the newest checkpoint needs the file', async () => {
    const [kernels] = SIDES as readonly [Kernels, ...Kernels[]];
    const { stream, course } = CASES[1] as (typeof CASES)[number];
    const parts = { kernels, stream, course, results: new Results(), shards: 1, onStep: () => {} };
    // Find a moment at which the newest checkpoint has a snapshot and sealed slices.
    let whole = new SimDisk();
    let base: BaseEntry | undefined;
    for (let row = 60; row < EVENTS && (base?.runs.length ?? 0) === 0; row += 4) {
      whole = new SimDisk();
      const first = new Loop({ ...parts, disk: whole.view() });
      await first.start();
      await expect(first.run(row)).rejects.toBeInstanceOf(Killed);
      whole.crash((below) => below - 1);
      await first.releaseState();
      const good = new Loop({ ...parts, disk: whole.copy().view() });
      await good.start();
      base = good.restored?.manifest.base;
      await good.close();
    }
    expect(base?.runs.length).toBeGreaterThan(0);
    for (const { name } of [base, ...(base?.runs ?? [])] as FileEntry[]) {
      const bytes = whole.bytesOf(name) as Uint8Array;
      for (let bit = 0; bit < bytes.length * 8; bit += 2003) {
        const disk = whole.copy();
        const flipped = bytes.slice();
        flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7));
        disk.put(name, flipped);
        const loop = new Loop({ ...parts, disk: disk.view() });
        await loop.start().catch(refusalOf);
        if (loop.restored !== undefined) expect(loop.restored.refused.join()).toContain(name);
        await loop.releaseState();
      }
    }
  });

  it('a run with state files and no manifest is refused and does not start empty', async () => {
    const [kernels] = SIDES as readonly [Kernels, ...Kernels[]];
    const { stream, course } = CASES[0] as (typeof CASES)[number];
    const disk = new SimDisk();
    const parts = { kernels, stream, course, results: new Results(), shards: 1, onStep: () => {} };
    const first = new Loop({ ...parts, disk: disk.view() });
    await first.start();
    await first.run();
    await first.close();
    for (const name of disk.names()) if (ownFile(name)?.role === 'manifest') disk.drop(name);
    const second = new Loop({ ...parts, disk: disk.view() });
    const thrown = await second.start().catch((error: unknown) => error);
    expect(refusalOf(thrown)).toMatch(
      /^no checkpoint in memory can be restored: there is no manifest, but the folder has base-/,
    );
  });

  it('a full disk leaves no incomplete checkpoint that looks complete', async () => {
    const [kernels] = SIDES as readonly [Kernels, ...Kernels[]];
    const { stream, course } = CASES[1] as (typeof CASES)[number];
    const wide = new SimDisk();
    wide.bytesLeft = 2 ** 40;
    const expected = await runLives(kernels, stream, course, wide, new Results());
    const needed = 2 ** 40 - wide.bytesLeft;
    for (let part = 0; part < 20; part++) {
      const bytesLeft = Math.floor((part * needed) / 20);
      const disk = new SimDisk();
      const results = new Results();
      disk.bytesLeft = bytesLeft;
      const loop = new Loop({
        kernels,
        stream,
        course,
        disk: disk.view(),
        results,
        shards: 1,
        onStep: () => {},
      });
      const thrown = await loop
        .start()
        .then(() => loop.run())
        .catch((error: unknown) => error);
      expect((thrown as { code?: string }).code).toBe('not_writable');
      disk.crash(() => 0);
      await loop.releaseState();
      disk.bytesLeft = Number.POSITIVE_INFINITY;
      const found = await runLives(kernels, stream, course, disk, results);
      expect(found.outcome).toEqual(expected.outcome);
    }
  });
});
