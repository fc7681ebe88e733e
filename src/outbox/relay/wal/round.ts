/** One pass over pending rows, as one snapshot shows them: read in pages bounded in rows and bytes, brought in order, waited for. */
import type { Covered, Delivered, Pipeline } from '../pipeline/contract.ts';
import type { OutboxRow } from '../store.ts';
import type { KeyFilter, OutboxRows } from './rows.ts';
import { ID_MIN } from './slot.ts';

export interface RoundLimits {
  /** Ids of one pass; the next one takes the rest. */
  readonly idsMax: number;
  /** Rows and payload bytes read and brought at once. */
  readonly pageRows: number;
  readonly pageBytes: number;
}

export const ROUND_IDS_MAX = 2_000_000;
export const PAGE_ROWS = 1000;

export interface RoundOptions {
  readonly pipeline: Pipeline;
  readonly table: OutboxRows;
  /** Ids up to this one. */
  readonly to: bigint;
  readonly filter?: KeyFilter;
  readonly limits: RoundLimits;
  readonly goesOn: () => boolean;
}

/** Of the rows of a key that were left: the lowest id and the highest. */
export interface IdRange {
  readonly from: bigint;
  readonly to: bigint;
}

export interface Round {
  readonly published: number;
  /** By key. */
  readonly refused: ReadonlyMap<string, IdRange>;
  /** Whether it had all that was pending. */
  readonly whole: boolean;
}

export const widened = (range: IdRange | undefined, id: bigint): IdRange =>
  range === undefined
    ? { from: id, to: id }
    : { from: id < range.from ? id : range.from, to: id > range.to ? id : range.to };

/** A page with a snapshot of its own could show a row whose transaction waited for one that had drawn a lower id of the key, and which
 *  committed after the lower page was read; so the ids are those of one snapshot. */
export async function bringPending(options: RoundOptions): Promise<Round> {
  const { pipeline, table, to, filter = {}, limits, goesOn } = options;
  const { idsMax, pageRows, pageBytes } = limits;
  const calls: Array<Promise<Delivered>> = [];
  const refused = new Map<string, IdRange>();
  const ids = await table.pendingIds(to, idsMax, filter);
  const whole = ids.length < idsMax;
  let after = ID_MIN;
  for (let at = 0; at < ids.length && goesOn(); ) {
    await pipeline.room();
    const asked = [...ids.subarray(at, at + pageRows)];
    const { states, through } = await table.byId(asked, pageBytes);
    const rows = states.filter(({ pending }) => pending).map(({ row }) => row);
    const rest = asked.findIndex((id) => id > through);
    at += rest < 0 ? asked.length : rest;
    const end = whole && at >= ids.length ? to : through;
    if (rows.length > 0)
      calls.push(bring(pipeline, rows, { from: after + 1n, to: end, ...coveredBy(filter) }, refused));
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

/** Notes the keys of what is left. */
async function bring(
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
