/** Calls the window functions of the addon with wrong arguments and at wrong times. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { AdmittedBatch } from '../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { turns } from '../wait.ts';
import { addonPath, type RawFunction, raw, thrownBy } from './kit.ts';

const f = (name: string): RawFunction => raw[name] as RawFunction;
const WRONG_TYPE = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
const CLOSED = { name: 'Error', code: 'closed' };
const NOT_READY = { name: 'Error', code: 'out_of_range' };
setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
/** Enough rows that their sort takes longer than a collection. */
const ROWS = 400_000;
const page = (): ArrayBuffer => new ArrayBuffer(128);

/** Valid arguments after the handle. */
const STATE: Readonly<Record<string, readonly unknown[]>> = {
  windowAccumulate: [
    EventBatch.create(1).buffer,
    AdmittedBatch.create(1).buffer,
    new BigInt64Array(2),
    new Uint8Array(2),
    1,
    new BigInt64Array(0),
  ],
  windowDeltaBytesMax: [],
  windowEncodeDeltas: [new Uint8Array(100)],
  windowApplyDeltas: [new Uint8Array(0), 0, new Float64Array(1024)],
  windowReserve: [0, 0],
  windowLoad: [0, page(), 0],
  windowCopy: [0, new Float64Array(1), page()],
  windowCopyRange: [0, 0, new Float64Array(1), page()],
  windowFind: [0, 0n, page()],
  windowSlices: [new Float64Array(0)],
  windowKeys: [],
  windowBytes: [],
  windowDrop: [0],
  windowTrim: [],
  windowSeal: [0],
};
const RUN: Readonly<Record<string, readonly unknown[]>> = {
  windowRunSort: [],
  windowRunRows: [],
  windowRunBytes: [],
  windowRunRead: [0, page()],
  windowRunReadAside: [0, page()],
  windowRunFind: [0n, page()],
};
const SESSIONS: Readonly<Record<string, readonly unknown[]>> = {
  sessionAccumulate: [
    EventBatch.create(1).buffer,
    AdmittedBatch.create(1).buffer,
    new BigInt64Array(2),
    new Uint8Array(2),
    1,
    new BigInt64Array(0),
  ],
  sessionDeltaBytesMax: [],
  sessionEncodeDeltas: [new Uint8Array(64)],
  sessionApplyDeltas: [new Uint8Array(0), 0, new Float64Array(1024)],
  sessionReserve: [0],
  sessionLoad: [page(), 0],
  sessionCopy: [new Float64Array(1), page()],
  sessionCopyRange: [0, new Float64Array(1), page()],
  sessionFind: [0n, page()],
  sessionFire: [0],
  sessionDetach: [],
  sessionTrim: [],
  sessionLeastEnd: [],
  sessionCount: [],
  sessionMerged: [],
  sessionBytes: [],
};

describe('window state, session state and sorted run', () => {
  const state = f('windowOpen')(10, 2, null);
  const sessions = f('sessionOpen')(10, 2, null);
  const run = f('windowSeal')(state, 0);

  it.each([
    ...Object.entries(STATE).map(([name, rest]) => [name, state, run, rest] as const),
    ...Object.entries(RUN).map(([name, rest]) => [name, run, sessions, rest] as const),
    ...Object.entries(SESSIONS).map(([name, rest]) => [name, sessions, state, rest] as const),
  ])(
    'the function %s refuses another handle, another number of arguments and foreign values',
    (name, mine, other, rest) => {
      for (const foreign of [other, {}, null, undefined, 1, 'handle', [], Object.create(mine as object)])
        expect(thrownBy(() => f(name)(foreign, ...rest))).toEqual(WRONG_TYPE);
      expect(thrownBy(() => f(name)())).toEqual(WRONG_TYPE);
      expect(thrownBy(() => f(name)(mine, ...rest, 1))).toEqual(WRONG_TYPE);
      rest.forEach((valid, place) => {
        // The cover and the texts of values are optional: they may be null.
        const isOptional =
          (place === 2 && name.endsWith('ApplyDeltas')) || (place === 5 && name.endsWith('Accumulate'));
        for (const foreign of [
          undefined,
          isOptional ? 'text' : null,
          typeof valid === 'bigint' ? 7 : 7n,
          'text',
          {},
          Symbol('x'),
          new Proxy(new Uint8Array(4), {}),
        ]) {
          const args = [...rest];
          args[place] = foreign;
          expect(
            thrownBy(() => f(name)(mine, ...args)),
            `${place}`,
          ).toEqual(WRONG_TYPE);
        }
      });
    },
  );

  it.each([...Object.entries(STATE), ...Object.entries(SESSIONS)])(
    'the function %s refuses a state that is closed',
    (name, rest) => {
      const kind = name.startsWith('session') ? 'session' : 'window';
      const closed = f(`${kind}Open`)(10, 2, null);
      f(`${kind}Close`)(closed);
      f(`${kind}Close`)(closed);
      expect(thrownBy(() => f(name)(closed, ...rest))).toEqual(CLOSED);
    },
  );

  it.each([
    ['sessionLoad', 0],
    ['sessionCopy', 1],
    ['sessionCopyRange', 2],
    ['sessionFind', 1],
    ['windowFind', 2],
    ['windowCopyRange', 3],
  ] as const)('the function %s refuses memory that is shifted', (name, place) => {
    const args = [...((name.startsWith('s') ? SESSIONS[name] : STATE[name]) as unknown[])];
    args[place] = new Uint8Array(new ArrayBuffer(200), 4, 128);
    const mine = name.startsWith('s') ? sessions : state;
    expect(thrownBy(() => f(name)(mine, ...args))?.code).toBe('layout_mismatch');
  });

  it('only a sorted run of a slice can be searched for keys', async () => {
    const fired = f('sessionFire')(sessions, Number.POSITIVE_INFINITY);
    expect(thrownBy(() => f('windowRunFind')(fired, 0n, page()))).toEqual(NOT_READY);
    await f('windowRunSort')(fired);
    expect(thrownBy(() => f('windowRunFind')(fired, 0n, page()))).toEqual(NOT_READY);
    f('windowRunClose')(fired);
  });

  it('a run is sorted once, can be read only then, and can be closed while it sorts', async () => {
    const one = f('windowSeal')(state, 0);
    expect(thrownBy(() => f('windowRunRead')(one, 0, page()))).toEqual(NOT_READY);
    expect(thrownBy(() => f('windowRunBytes')(one))).toEqual(NOT_READY);
    const sorted = f('windowRunSort')(one);
    expect(thrownBy(() => f('windowRunSort')(one))).toEqual(NOT_READY);
    expect(thrownBy(() => f('windowRunRead')(one, 0, page()))).toEqual(NOT_READY);
    await sorted;
    expect(f('windowRunRead')(one, 0, page())).toBe(0);
    f('windowRunClose')(one);
    expect(thrownBy(() => f('windowRunRead')(one, 0, page()))).toEqual(CLOSED);

    const two = f('windowSeal')(state, 0);
    const inFlight = f('windowRunSort')(two) as Promise<void>;
    f('windowRunClose')(two);
    await expect(inFlight).rejects.toMatchObject({ code: 'closed' });
  });

  it('a sort in flight keeps its run alive when all other references are gone', async () => {
    const rows = new BigInt64Array(8 * ROWS);
    for (let i = 0; i < ROWS; i++) rows.set([BigInt((i * 7_919) % ROWS), 1n], 8 * i); // a key and a count
    const full = f('windowOpen')(10, 1, null);
    f('windowLoad')(full, 0, rows.buffer, ROWS);
    const sorted = f('windowRunSort')(f('windowSeal')(full, 0)) as Promise<void>;
    for (let i = 0; i < 3; i++) {
      collect();
      await turns(1);
    }
    await expect(sorted).resolves.toBeUndefined();
    f('windowClose')(full);
  });

  it('a sort in flight keeps its run of sessions alive when all other references are gone', async () => {
    const rows = new BigInt64Array(8 * ROWS);
    for (let i = 0; i < ROWS; i++) rows.set([BigInt((i * 7_919) % ROWS), 1n], 8 * i);
    const full = f('sessionOpen')(10, 1, null);
    f('sessionLoad')(full, rows.buffer, ROWS);
    const sorted = f('windowRunSort')(f('sessionFire')(full, Number.POSITIVE_INFINITY)) as Promise<void>;
    for (let i = 0; i < 3; i++) {
      collect();
      await turns(1);
    }
    await expect(sorted).resolves.toBeUndefined();
    f('sessionClose')(full);
  });

  it('a sort in flight outlives the thread that started it', async () => {
    const source = `
      const { createRequire } = require('node:module');
      const addon = createRequire(process.cwd() + '/x.js')(${JSON.stringify(addonPath)});
      const state = addon.windowOpen(10, 4, null);
      addon.windowRunSort(addon.windowSeal(state, 0));
      addon.windowRunSort(addon.sessionFire(addon.sessionOpen(10, 4, null), 0));
      require('node:worker_threads').parentPort.postMessage(addon.windowBytes(state));
    `;
    for (let i = 0; i < 5; i++) {
      const worker = new Worker(source, { eval: true });
      const ended = new Promise((resolve) => worker.once('exit', resolve));
      expect(await new Promise((resolve) => worker.once('message', resolve))).toBe(0);
      await worker.terminate();
      await ended;
    }
  });
});

/** Arguments before and after those that both functions share. */
const MERGES = [
  ['windowMerge', [], []],
  ['windowMergeAhead', [], []],
  ['sessionMerge', [10], [page()]],
] as const;

describe.each(MERGES)('%s', (name, before, after) => {
  const call = (pages: unknown, cursors: unknown, into: unknown): unknown =>
    f(name)(...before, pages, cursors, ...after, into, null);

  it('a merge refuses anything but a list of pages, and misaligned memory', () => {
    const cursors = Uint32Array.of(0, 1, 1);
    for (const pages of [undefined, null, {}, 'pages', new Uint8Array(64), [1], [null], [[]]])
      expect(thrownBy(() => call(pages, cursors, page()))).toEqual(WRONG_TYPE);
    const shifted = new Uint8Array(new ArrayBuffer(200), 4, 128);
    for (const args of [
      [[shifted], cursors, page()],
      [[page()], cursors, shifted],
    ])
      expect(thrownBy(() => call(args[0], args[1], args[2]))?.code).toBe('layout_mismatch');
    expect(thrownBy(() => call(new Array(2049).fill(page()), new Uint32Array(8000), page()))?.code).toBe(
      'out_of_range',
    );
    expect(thrownBy(() => f(name)(...before, [], cursors, ...after, null))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => call([], 'cursors', page()))).toEqual(WRONG_TYPE);
  });
});

describe('sessionMerge', () => {
  it('sessionMerge refuses an invalid gap and a page without room for a row', () => {
    const merge = (gapMs: unknown, open: unknown): unknown =>
      f('sessionMerge')(gapMs, [], new Uint32Array(0), open, page(), null);
    expect(merge(1, page())).toBe(0);
    expect(thrownBy(() => merge('1', page()))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => merge(1, null))).toEqual(WRONG_TYPE);
    expect(thrownBy(() => merge(0, page()))?.code).toBe('out_of_range');
    expect(thrownBy(() => merge(1, new ArrayBuffer(63)))?.code).toBe('out_of_range');
    const shifted = new Uint8Array(new ArrayBuffer(200), 4, 128);
    expect(thrownBy(() => merge(1, shifted))?.code).toBe('layout_mismatch');
  });
});
