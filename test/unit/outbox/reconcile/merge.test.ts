/** The merge of two ordered streams, and the differences that it finds, against sets in memory. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { SqlSession } from '../../../../src/io/postgres/sql/port.ts';
import { type Judge, PairFindings } from '../../../../src/outbox/reconcile/pairs/findings.ts';
import {
  cursorRows,
  type MergedRow,
  merged,
  PAGE_ROWS,
} from '../../../../src/outbox/reconcile/pairs/merge.ts';
import { MESSAGE_CLASSES } from '../../../../src/outbox/reconcile/pairs/pair.ts';
import { retainedFromMs } from '../../../../src/outbox/reconcile/pairs/retained-from.ts';
import { compareIds, type IdKind } from '../../../../src/outbox/reconcile/pairs/side.ts';

const row = (id: string, more: Partial<MergedRow> = {}): MergedRow => ({
  id,
  ms: 0,
  value: null,
  pending: false,
  ...more,
});

async function* stream(rows: readonly MergedRow[]): AsyncGenerator<MergedRow> {
  yield* rows;
}

const ALL: Judge = { inRange: () => true, left: () => true, right: () => true, lateAfterMs: 100 };

async function judged(
  left: readonly MergedRow[],
  right: readonly MergedRow[],
  judge: Judge = ALL,
  idsMax = 100,
): Promise<PairFindings> {
  const found = new PairFindings(MESSAGE_CLASSES, idsMax);
  for await (const one of merged('int', stream(left), stream(right))) found.judge(one, judge);
  return found;
}

const found = (findings: PairFindings): Record<string, readonly string[]> =>
  Object.fromEntries(findings.list().map((one) => [one.class, one.ids]));

describe('merged', () => {
  it('a merge pairs the rows of equal ids, whatever their number on each side', async () => {
    const ids = fc.array(fc.nat(12), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(ids, ids, async (a, b) => {
        const sorted = (list: readonly number[]): MergedRow[] =>
          [...list].sort((x, y) => x - y).map((id) => row(String(id)));
        const met: string[] = [];
        for await (const one of merged('int', stream(sorted(a)), stream(sorted(b))))
          met.push(`${one.id} ${one.left.length} ${one.right.length}`);
        const count = (list: readonly number[], id: number): number =>
          list.filter((one) => one === id).length;
        const expected = [...new Set([...a, ...b])]
          .sort((x, y) => x - y)
          .map((id) => `${id} ${count(a, id)} ${count(b, id)}`);
        expect(met).toEqual(expected);
      }),
    );
  });

  it.each<[IdKind, readonly string[]]>([
    ['int', ['-5', '9', '10', '9007199254740993', '9007199254740994']],
    [
      'uuid',
      [
        '00000000-0000-7000-8000-000000000000',
        '0a000000-0000-7000-8000-000000000000',
        'f0000000-0000-7000-8000-000000000000',
      ],
    ],
    // A code unit of a surrogate is below U+FFFD, its bytes in UTF-8 are above.
    ['text', ['', 'A', 'Z', 'a', 'é', '\ufffd', '\u{1f600}']],
  ])('ids of kind %s ascend as the database orders them', (kind, ids) => {
    for (const [at, id] of ids.entries()) {
      expect(compareIds(kind, id, id)).toBe(0);
      for (const other of ids.slice(at + 1)) {
        expect(compareIds(kind, id, other), `${id} ${other}`).toBeLessThan(0);
        expect(compareIds(kind, other, id), `${other} ${id}`).toBeGreaterThan(0);
      }
    }
  });

  it('a cursor is read a page at a time, and closed', async () => {
    const texts: string[] = [];
    let left = 2 * PAGE_ROWS + 5;
    const session: Pick<SqlSession, 'query'> = {
      query: (text: string) => {
        texts.push(text);
        if (!text.startsWith('FETCH')) return Promise.resolve({ rows: [], rowCount: 0 });
        const count = Math.min(left, PAGE_ROWS);
        left -= count;
        const rows = Array.from({ length: count }, () => row('1'));
        return Promise.resolve({ rows: rows as never, rowCount: count });
      },
    };
    let rows = 0;
    for await (const _ of cursorRows(session as SqlSession, 'c', 'SELECT 1')) rows++;
    expect(rows).toBe(2 * PAGE_ROWS + 5);
    expect(texts.filter((text) => text.startsWith('FETCH'))).toHaveLength(3);
    expect(texts.at(-1)).toBe('CLOSE c');
  });
});

describe('Findings', () => {
  it('each difference between two sets has its class', async () => {
    const findings = await judged(
      [row('1'), row('2', { value: '5' }), row('4', { pending: true }), row('5'), row('5'), row('6')],
      [row('1'), row('2', { value: '6' }), row('3'), row('4'), row('5'), row('6'), row('6')],
    );
    expect(found(findings)).toEqual({
      value_differs: ['2'],
      inbox_without_outbox: ['3'],
      pending_outbox: ['4'],
      double_outbox: ['5'],
      double_inbox: ['6'],
    });
    expect(findings.matched).toBe(5);
    expect(found(await judged([row('1'), row('2')], [row('1')]))).toEqual({ outbox_without_inbox: ['2'] });
  });

  it('an effect that came after the bound is late and no delta, and its repetition does not count', async () => {
    const findings = await judged(
      [row('1', { ms: 1000 }), row('2', { ms: 1000 }), row('3', { ms: 1000 })],
      [row('1', { ms: 1100 }), row('2', { ms: 1100.5 }), row('3', { ms: 1050 }), row('3', { ms: 9000 })],
    );
    expect(findings.late).toMatchObject({ class: 'late', count: 1, ids: ['2'] });
    expect(found(findings)).toEqual({ double_inbox: ['3'] });
    const unjudged = await judged([row('1')], [row('1', { ms: 1e9 })], { ...ALL, lateAfterMs: undefined });
    expect(unjudged.late.count).toBe(0);
  });

  it('rows out of range are counterparts, and no members', async () => {
    const judge: Judge = { ...ALL, inRange: ({ ms }) => ms <= 10, lateAfterMs: undefined };
    const findings = await judged(
      [row('1', { ms: 20 }), row('2', { ms: 5 })],
      [row('2', { ms: 20 }), row('3', { ms: 20 })],
      judge,
    );
    expect(found(findings)).toEqual({});
    expect(findings.matched).toBe(1);
  });

  it('a row whose counterpart has expired is excused, and still pending', async () => {
    const judge: Judge = { ...ALL, left: () => false, right: () => false };
    const findings = await judged([row('1', { pending: true })], [row('2')], judge);
    expect(found(findings)).toEqual({ pending_outbox: ['1'] });
  });

  it('counts are exact where the ids are cut', async () => {
    const many = Array.from({ length: 50 }, (_, n) => row(String(n)));
    const [delta] = (await judged(many, [], ALL, 3)).list();
    expect(delta).toMatchObject({ count: 50, ids: ['0', '1', '2'] });
  });

  it('a missing effect waits for its place, and is set aside or missing', () => {
    const findings = new PairFindings(
      { ...MESSAGE_CLASSES, setAside: { name: 'parked', meaning: 'm' } },
      10,
      true,
    );
    for (const id of ['1', '2']) findings.judge({ id, left: [row(id)], right: [] }, ALL);
    expect(found(findings)).toEqual({});
    findings.place(findings.unplaced(), new Set(['2']));
    expect(found(findings)).toEqual({ outbox_without_inbox: ['1'], parked: ['2'] });
    expect(findings.unplaced()).toEqual([]);
  });
});

describe('retainedFromMs', () => {
  const MINUTE = 60_000;
  it('rows before the oldest row of the side that begins later have expired', () => {
    expect(retainedFromMs(0, 60 * MINUTE)).toBe(61 * MINUTE);
    expect(retainedFromMs(60 * MINUTE, 0)).toBe(61 * MINUTE);
  });

  it('nothing has expired where both sides begin together, or one is empty', () => {
    expect(retainedFromMs(0, 30_000)).toBeUndefined();
    expect(retainedFromMs(0, undefined)).toBeUndefined();
    expect(retainedFromMs(undefined, 0)).toBeUndefined();
  });
});
