/** Contract of every sink: it stores each bit of a result and every key exactly once, through
 *  repeated, interrupted and refused writes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import type { WindowSink } from '../../src/engine/output/sink/port.ts';
import { SinkWriter } from '../../src/engine/output/sink/writer.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { pause, realClock, until } from '../wait.ts';
import {
  manyRows,
  pageOf,
  resultText,
  sessionBounds,
  TestFiring,
  textsOf,
  windowBounds,
} from './fired-kit.ts';

/** Sink with its own target, ready for writes. */
export interface OpenSink {
  readonly sink: WindowSink;
  /** Makes writes fail as with an unreachable target. */
  away(): Promise<void>;
  back(): Promise<void>;
  close(): Promise<void>;
  /** The sink itself, where every write of `sink` is also the end of its firings. */
  readonly whole?: WindowSink;
}

export interface SinkWorld {
  readonly name: string;
  /** Opens a target by name; the same name is the same target. */
  open(place: string): Promise<OpenSink>;
  /** Parameters with which sink.child.mjs opens the target. */
  child(place: string): Readonly<Record<string, string>>;
  /** Rows that a write replaces: those with its keys, or all rows of its windows. Default rows. */
  readonly replaces?: 'rows' | 'windows';
}

const U64_MAX = (1n << 64n) - 1n;
const I64_MIN = -(1n << 63n);
const LARGE = 120_000;
const CHILD = fileURLToPath(new URL('./sink.child.mjs', import.meta.url));
/** Rows of the windows with even and with odd numbers. */
const CHILD_ROWS = [40_000, 5_000] as const;
const CHILD_WINDOWS = 6;

/** Keys and values at their limits, in windows and sessions on both sides of zero. */
const EDGES: readonly FiredPage[] = [
  pageOf(windowBounds(-20, -10), [
    { accountId: 0n, sum: 5n, last: -11n },
    { accountId: 7n, count: 2n, sum: -1n, min: I64_MIN, max: 3n, last: -12n },
    { accountId: 1n << 63n, count: 3n, sum: 1n << 63n, min: 0n, max: (1n << 63n) - 1n, last: -20n },
    { accountId: U64_MAX, count: U64_MAX, sum: I64_MIN * 3n, min: I64_MIN, max: -1n, last: -13n },
  ]),
  pageOf(windowBounds(-10, 0), [{ accountId: 7n, last: -1n }]),
  pageOf(windowBounds(0, 10), [{ accountId: 7n, sum: -(1n << 64n), last: 4n }]),
  pageOf(windowBounds(2 ** 41, 2 ** 41 + 60_000), [{ accountId: 1n, last: BigInt(2 ** 41) }]),
  pageOf(sessionBounds(30), [
    { accountId: 7n, start: -100n, last: -95n },
    { accountId: U64_MAX, start: -99n, last: -95n, sum: -(1n << 70n) },
    { accountId: 7n, start: -40n, last: -20n },
    { accountId: 9n, start: BigInt(2 ** 41 - 5), last: BigInt(2 ** 41) },
  ]),
];

const sorted = (texts: readonly string[]): string[] => [...texts].sort();

async function read(sink: WindowSink): Promise<string[]> {
  const texts: string[] = [];
  for await (const page of sink.read()) texts.push(...page.map(resultText));
  return texts;
}

let places = 0;

export function sinkContract(world: SinkWorld): void {
  const opened: OpenSink[] = [];
  afterEach(async () => {
    for (const one of opened.splice(0)) await one.close();
  });
  const place = (): string => `p${process.pid.toString(36)}x${places++}`;
  const open = async (at = place()): Promise<OpenSink> => {
    const one = await world.open(at);
    opened.push(one);
    return one;
  };

  describe(`sink ${world.name}`, () => {
    it('a sink is created by migrate, once or again, and passes its own check', {
      timeout: 300_000,
    }, async () => {
      const { sink } = await open();
      await sink.migrate();
      await sink.migrate();
      await sink.check();
      expect(await read(sink)).toEqual([]);
    });

    it('a sink keeps every bit of keys and values, of windows and of sessions', {
      timeout: 300_000,
    }, async () => {
      const { sink } = await open();
      await sink.write(EDGES);
      const rows = await read(sink);
      expect(sorted(rows)).toEqual(sorted(textsOf(EDGES)));
      expect(await read(sink)).toEqual(rows);
    });

    it('a sink accepts no pages, and pages without rows', { timeout: 300_000 }, async () => {
      const { sink } = await open();
      await sink.write([]);
      await sink.write([pageOf(windowBounds(0, 10), []), pageOf(sessionBounds(5), [])]);
      expect(await read(sink)).toEqual([]);
      const [page] = EDGES as [FiredPage];
      await sink.write([pageOf(windowBounds(0, 10), []), page]);
      expect(sorted(await read(sink))).toEqual(sorted(textsOf([page])));
    });

    it('results that are rewritten, also in other pages, change nothing', {
      timeout: 300_000,
    }, async () => {
      const { sink } = await open();
      await sink.write(EDGES);
      const before = await read(sink);
      await sink.write(EDGES);
      for (const page of [...EDGES].reverse()) await sink.write([page]);
      expect(await read(sink)).toEqual(before);
    });

    it('the last written value replaces a result', { timeout: 300_000 }, async () => {
      const { sink } = await open();
      await sink.write([pageOf(windowBounds(0, 10), [{ accountId: 1n }, { accountId: 2n }])]);
      const later = pageOf(windowBounds(0, 10), [{ accountId: 2n, count: 7n, sum: 70n, last: 8n }]);
      await sink.write([later]);
      const kept = world.replaces === 'windows' ? [] : [pageOf(windowBounds(0, 10), [{ accountId: 1n }])];
      expect(sorted(await read(sink))).toEqual(sorted([...textsOf(kept), ...textsOf([later])]));
    });

    it(`a sink accepts ${LARGE} rows of one window, twice`, async () => {
      const { sink, whole } = await open();
      const one = whole ?? sink;
      const page = { bounds: windowBounds(0, 60_000), rows: manyRows(LARGE), rowCount: LARGE };
      const pieces: FiredPage[] = [];
      for (let from = 0; from < LARGE; from += sink.writeRowsMax) {
        const rowCount = Math.min(sink.writeRowsMax, LARGE - from);
        pieces.push({ ...page, rows: page.rows.subarray(from * 64), rowCount });
      }
      for (let turn = 0; turn < 2; turn++) {
        for (const piece of pieces) await one.write([piece]);
        await one.finish?.([page.bounds]);
      }
      const rows = await read(sink);
      expect(rows).toHaveLength(LARGE);
      expect(sorted(rows)).toEqual(sorted(textsOf([page])));
    });

    it(`a sink accepts ${LARGE} sessions that fired together, twice`, async () => {
      const { sink } = await open();
      // Sessions ascend by their ends, a hundred at each end; accounts ascend only within an end,
      // and repeat later.
      const page = pageOf(
        sessionBounds(30),
        Array.from({ length: LARGE }, (_, i) => {
          const last = BigInt(Math.floor(i / 100) * 1000);
          const accountId = BigInt.asUintN(
            64,
            BigInt(i % 100) * 0x290_0000_0000_0000n + BigInt((i * 7) % 900),
          );
          return { accountId, start: last - 5n, last, sum: BigInt(i) };
        }),
      );
      for (let turn = 0; turn < 2; turn++) await sink.write([page]);
      const rows = await read(sink);
      expect(rows).toHaveLength(LARGE);
      expect(sorted(rows)).toEqual(sorted(textsOf([page])));
    });

    it('a sink whose writer was killed in the middle of a write accepts all rows again and stores them once', async () => {
      const at = place();
      await (await world.open(at)).close();
      const dir = mkdtempSync(join(tmpdir(), 'sink-kill-'));
      const rows = manyRows(CHILD_ROWS[0], 7);
      writeFileSync(join(dir, 'rows'), rows);
      const given = { ...world.child(at), file: join(dir, 'rows'), rows: CHILD_ROWS, windows: CHILD_WINDOWS };
      const held = spawn(process.execPath, [CHILD, JSON.stringify(given)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const ended = once(held, 'exit');
      const lines: string[] = [];
      for await (const line of createInterface({ input: held.stdout })) {
        lines.push(line);
        if (line !== 'writing 3') continue;
        // Any moment is valid; a kill during the write tests most.
        await pause(5);
        held.kill('SIGKILL');
      }
      expect(await ended).toEqual([null, 'SIGKILL']);
      rmSync(dir, { recursive: true });
      expect(lines).toContain('wrote 2');
      const { sink } = await open(at);
      const pages = Array.from({ length: CHILD_WINDOWS }, (_, window) => ({
        bounds: windowBounds(window * 1000, (window + 1) * 1000),
        rows,
        rowCount: CHILD_ROWS[window % 2] as number,
      }));
      const left = new Set(await read(sink));
      // Every row that was reported durable exists, and no row that was never written.
      for (const text of textsOf(pages.slice(0, 3))) if (!left.has(text)) throw new Error(`lost: ${text}`);
      const known = new Set(textsOf(pages));
      for (const text of left) if (!known.has(text)) throw new Error(`never written: ${text}`);
      for (const page of pages) await sink.write([page]);
      expect(sorted(await read(sink))).toEqual(sorted([...known]));
    });

    it('a sink that was unreachable gets everything that fired meanwhile', async () => {
      const { sink, away, back } = await open();
      const written: number[] = [];
      const writer = new SinkWriter({
        sinks: [sink],
        clock: realClock,
        log: silentLogger,
        sleep: (ms) => pause(Math.min(ms, 20)),
        onWritten: (rows) => written.push(rows),
      });
      const firings = EDGES.map((page) => new TestFiring(page));
      writer.offer(firings.slice(0, 1));
      await writer.flushed();
      await away();
      writer.offer(firings.slice(1));
      await until('a writer that is not ready', () => !writer.ready);
      expect(firings.map((one) => one.closed)).toEqual([1, 0, 0, 0, 0]);
      await back();
      await writer.flushed();
      expect(writer.ready).toBe(true);
      expect(firings.every((one) => one.closed === 1)).toBe(true);
      expect(written.reduce((a, b) => a + b, 0)).toBe(textsOf(EDGES).length);
      expect(sorted(await read(sink))).toEqual(sorted(textsOf(EDGES)));
    });
  });
}
