/** Runs `millrace rollout` for one cell, on a real fleet, and judges its counters. */
import { invariant } from '../../src/core/errors.ts';
import { tryAll } from '../../src/registry/proof/live.ts';
import type { Outcome } from '../../src/registry/proof/trial.ts';
import type { RolloutVerdict } from '../../src/registry/rollout/model.ts';
import type { Processes } from '../../src/shell/children/processes.ts';
import { type Cell, cellName, directionOf } from './cells.ts';
import { decodeOrders, type LiveDecode, schemaOf } from './decode.ts';

/** Orders of a live decode; the fleet of a cell writes about as many. */
const ORDERS = 200;
/** Generated events of a live decode over the whole schema. */
const EVENTS_MAX = 1000;

/** Small fleet, whose upgrade waits for states: each step ends when the new instance has worked and
 *  the group has read what was written. */
const FLEET = [
  '-refused=run',
  '-rollback=off',
  '-rate=50',
  '-producers=1',
  '-consumers=1',
  '-groups=1',
  '-partitions=1',
  '-duration=1s',
  '-sample-every=250ms',
  '-settle-timeout=3m',
  '-log-level=warn',
  '-json',
];

export interface CellResult extends Cell {
  /** The registry accepts the new schema under the mode. */
  readonly accepted: boolean;
  /** mode: on the subject of the old schema. none: on a subject set to NONE. apart: on a subject of
   *  its own, because NONE refuses the schema too. */
  readonly registered: 'mode' | 'none' | 'apart';
  /** The plan calls this order safe. */
  readonly safe: boolean;
  /** Decode of the fleet's orders in the direction that the order exercises. */
  readonly live: LiveDecode;
  /** Decode of generated events over the whole schema, in the same direction. */
  readonly events: Outcome;
  readonly verdict: RolloutVerdict;
  /** Why the rollout stopped or what it saw first; null: nothing. */
  readonly reason: string | null;
  readonly produced: number;
  readonly consumed: number;
  /** Records that the consumers could not read. */
  readonly errors: number;
}

/** Expected result of a cell, from live decode alone. */
export const breaks = ({ live }: Pick<CellResult, 'live'>): boolean => live.unreadable + live.misread > 0;

/** True if every instance was upgraded, whatever could be read. */
export const isFinished = ({ verdict }: Pick<CellResult, 'verdict'>): boolean =>
  verdict === 'upgraded' || verdict === 'errors';

/** True if the counter rose exactly when live decode fails. */
export const agrees = (cell: CellResult): boolean => isFinished(cell) && cell.errors > 0 === breaks(cell);

interface RolloutDocument
  extends Pick<
    CellResult,
    'accepted' | 'registered' | 'verdict' | 'reason' | 'produced' | 'consumed' | 'errors'
  > {
  readonly plan: { readonly safe: readonly string[] };
}

/** Flags that repeat a cell. */
const cellFlags = ({ format, from, to, mode, order }: Cell): readonly string[] => [
  `-format=${format}`,
  `-from-version=${from}`,
  `-to-version=${to}`,
  `-mode=${mode}`,
  `-order=${order}`,
];

export interface CellWorld {
  readonly processes: Processes;
  readonly brokers: string;
  readonly registry: string;
}

/** Runs a cell. @throws Error when the command ends without a document */
export async function runCell(world: CellWorld, cell: Cell): Promise<CellResult> {
  const { writer, reader } = directionOf(cell);
  const live = decodeOrders(cell.format, writer, reader, ORDERS);
  const { outcome } = tryAll(schemaOf(reader, cell.format), schemaOf(writer, cell.format), {
    limit: EVENTS_MAX,
  });
  const name = cellName(cell);
  const child = world.processes.spawn(name.replaceAll(' ', '-'), [
    'rollout',
    `-brokers=${world.brokers}`,
    `-registry=${world.registry}`,
    ...cellFlags(cell),
    ...FLEET,
  ]);
  const { code, signal } = await child.ended;
  const seen = documentOf(child.stdout());
  if (seen === undefined)
    throw new Error(`the rollout of ${name} ended with ${code ?? signal}; see ${child.logPath}`);
  const { accepted, registered, verdict, reason, produced, consumed, errors, plan } = seen;
  invariant(Number.isInteger(errors) && Number.isInteger(produced), 'a rollout reports its counters');
  return {
    ...cell,
    accepted,
    registered,
    safe: plan.safe.includes(cell.order),
    live,
    events: outcome,
    verdict,
    reason,
    produced,
    consumed,
    errors,
  };
}

function documentOf(stdout: string): RolloutDocument | undefined {
  try {
    const document = JSON.parse(stdout) as Partial<RolloutDocument>;
    return document.verdict === undefined || document.plan === undefined
      ? undefined
      : (document as RolloutDocument);
  } catch {
    return undefined;
  }
}
