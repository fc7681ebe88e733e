/** Cells of the rollout bench: their number, live decode beside the plan, and the page. */
import { describe, expect, it } from 'vitest';
import { machine } from '../../../bench/harness.ts';
import {
  CELL_FORMATS,
  type Cell,
  cellName,
  cellsOf,
  changesOf,
  directionOf,
} from '../../../bench/rollout/cells.ts';
import { decodeOrders, schemaOf } from '../../../bench/rollout/decode.ts';
import { agrees, breaks, type CellResult } from '../../../bench/rollout/fleet.ts';
import { type RolloutReport, rolloutPage } from '../../../bench/rollout/page.ts';
import { UPGRADE_ORDERS } from '../../../src/registry/rollout/model.ts';
import { planRollout } from '../../../src/registry/rollout/plan.ts';

const ORDERS = 40;

const ran = (cell: Cell, more: Partial<CellResult> = {}): CellResult => ({
  ...cell,
  accepted: true,
  registered: 'mode',
  safe: true,
  live: { orders: ORDERS, unreadable: 0, misread: 0 },
  events: 'OK',
  verdict: 'upgraded',
  reason: null,
  produced: 10,
  consumed: 10,
  errors: 0,
  ...more,
});
const report = (cells: readonly CellResult[]): RolloutReport => ({
  bench: 'rollout',
  build: 'digest',
  machine: machine(),
  results: [],
  cells,
  damages: [],
});
const FIRST = cellsOf('avro')[0] as Cell;

describe('cells of a rollout', () => {
  it('each format has every step and candidate in three modes and two orders, each once', () => {
    const names = CELL_FORMATS.flatMap((format) => cellsOf(format).map(cellName));
    expect(names).toHaveLength(144);
    expect(new Set(names).size).toBe(144);
    for (const format of CELL_FORMATS)
      expect(
        changesOf(format)
          .map(({ from, to }) => `${from} ${to}`)
          .slice(0, 5),
      ).toEqual(['1 2', '2 3', '3 4', '4 5', '5 6']);
  });

  it('the plan calls an order safe exactly when every order of the fleet is decoded with its values', () => {
    let broken = 0;
    for (const change of CELL_FORMATS.flatMap(changesOf)) {
      const { format, from, to } = change;
      const { safe } = planRollout(schemaOf(from, format), schemaOf(to, format), 'FULL');
      for (const order of UPGRADE_ORDERS) {
        const { writer, reader } = directionOf({ ...change, order });
        const live = decodeOrders(format, writer, reader, ORDERS);
        expect(safe.includes(order), `${format} ${from} to ${to} ${order}: ${live.shown}`).toBe(
          !breaks({ live }),
        );
        if (breaks({ live })) broken++;
      }
    }
    expect(broken).toBeGreaterThan(10);
  });

  it('live decode shows what a reused Protobuf number does to the readers of its first meaning', () => {
    expect(decodeOrders('protobuf', 'reuse-number', 2, ORDERS)).toMatchObject({
      unreadable: 0,
      misread: ORDERS,
      shown: expect.stringMatching(/^note is "\w+" instead of ""$/),
    });
  });

  it('a counter without an error where decode fails disagrees, and so does a cell that did not finish', () => {
    const fails = { live: { orders: ORDERS, unreadable: 1, misread: 0 } };
    expect(agrees(ran(FIRST))).toBe(true);
    expect(agrees(ran(FIRST, fails))).toBe(false);
    expect(agrees(ran(FIRST, { ...fails, errors: 3, verdict: 'errors' }))).toBe(true);
    expect(agrees(ran(FIRST, { errors: 3, verdict: 'errors' }))).toBe(false);
    expect(agrees(ran(FIRST, { verdict: 'failed' }))).toBe(false);
  });
});

describe('the page of the cells', () => {
  it('the page has a row for each change and mode, and names cells that did not run', () => {
    const text = rolloutPage(report([ran(FIRST, { consumed: 7 })]));
    expect(text.split('\n').filter((line) => /\| (BACKWARD|FORWARD|FULL) \|/.test(line))).toHaveLength(72);
    expect(text).toContain('| BACKWARD | accepted | safe: 0 | unsafe: not run |');
    expect(text).toContain('build digest');
  });

  it('a cell that disagrees with live decode is bold', () => {
    const wrong = ran(FIRST, { errors: 3, consumed: 9, verdict: 'errors' });
    expect(rolloutPage(report([wrong]))).toContain('**3 of 9, live decode: reads all**');
    expect(rolloutPage(report([ran(FIRST, { verdict: 'failed', reason: 'x | y' })]))).toContain(
      '**failed**: x \\| y',
    );
  });
});
