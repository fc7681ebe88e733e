/** Round: one pass over the pending rows of one snapshot. It reads pages bounded in rows and bytes,
 *  delivers them in order, and waits for their marks. */
import type { Covered, Delivered, Pipeline } from '../pipeline/contract.ts';
import type { OutboxRow } from '../store.ts';
import type { KeyFilter, OutboxRows } from './rows.ts';
import { ID_MIN } from './slot.ts';

export interface RoundLimits {
  /** Limit of the ids of one round; the next round reads the others. */
  readonly idsMax: number;
  /** Limits of one page: rows, and payload bytes. */
  readonly pageRows: number;
  readonly pageBytes: number;
}

export const ROUND_IDS_MAX = 2_000_000;
export const PAGE_ROWS = 1000;

export interface RoundOptions {
  readonly pipeline: Pipeline;
  readonly table: OutboxRows;
  /** Highest id of the round. */
  readonly to: bigint;
  readonly filter?: KeyFilter;
  readonly limits: RoundLimits;
  readonly mayContinue: () => boolean;
}

/** Lowest and highest id of the rows of a key that were left. */
export interface IdRange {
  readonly from: bigint;
  readonly to: bigint;
}

export interface Round {
  readonly published: number;
  /** Refused ids of each key. */
  readonly refused: ReadonlyMap<string, IdRange>;
  /** True when the round read all pending ids. */
  readonly whole: boolean;
}

export const widened = (range: IdRange | undefined, id: bigint): IdRange =>
  range === undefined
    ? { from: id, to: id }
    : { from: id < range.from ? id : range.from, to: id > range.to ? id : range.to };

/** Delivers the pending rows of one snapshot, so that every key stays in order. With a snapshot for
 *  each page, a later page could overtake a row: its transaction may have waited for one that drew
 *  a lower id of the key, and that committed after the lower page was read. */
export async function deliverPending(options: RoundOptions): Promise<Round> {
  const { pipeline, table, to, filter = {}, limits, mayContinue } = options;
  const { idsMax, pageRows, pageBytes } = limits;
  const calls: Array<Promise<Delivered>> = [];
  const refused = new Map<string, IdRange>();
  const ids = await table.pendingIds(to, idsMax, filter);
  const whole = ids.length < idsMax;
  let after = ID_MIN;
  for (let at = 0; at < ids.length && mayContinue(); ) {
    await pipeline.room();
    const asked = [...ids.subarray(at, at + pageRows)];
    const { states, through } = await table.byId(asked, pageBytes);
    const rows = states.filter(({ pending }) => pending).map(({ row }) => row);
    const rest = asked.findIndex((id) => id > through);
    at += rest < 0 ? asked.length : rest;
    const end = whole && at >= ids.length ? to : through;
    if (rows.length > 0)
      calls.push(deliverPage(pipeline, rows, { from: after + 1n, to: end, ...coveredBy(filter) }, refused));
    after = end;
  }
  const outcomes = await Promise.all(calls);
  await Promise.all(outcomes.map(({ marked }) => marked));
  return { published: outcomes.reduce((sum, { published }) => sum + published, 0), refused, whole };
}

function coveredBy({ only, except }: KeyFilter): Pick<Covered, 'keys' | 'except'> {
  return {
    ...(only === undefined ? {} : { keys: only }),
    ...(except === undefined ? {} : { except }),
  };
}

/** Delivers a page and collects the ids that were left, by key. */
async function deliverPage(
  pipeline: Pipeline,
  rows: readonly OutboxRow[],
  covered: Covered,
  refused: Map<string, IdRange>,
): Promise<Delivered> {
  const outcome = await pipeline.deliver(rows, covered);
  if (outcome.left.length > 0) {
    const left = new Set(outcome.left);
    for (const { id, aggregateId } of rows)
      if (left.has(id)) refused.set(aggregateId, widened(refused.get(aggregateId), id));
  }
  return outcome;
}
