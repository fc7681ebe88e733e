/** Plans a rolling upgrade: which order is safe for a pair of schemas, and why.
 *
 *  Consumers first makes new consumers read old records, so it needs BACKWARD. Producers first
 *  makes old consumers read new records, so it needs FORWARD; before the first consumer is
 *  upgraded, the groups read all old records, because a new consumer may be unable to. */
import type { Schema } from '../../formats/schema.ts';
import { type Finding, findingLine, isCompatible } from '../compatibility/finding.ts';
import { checkPair, judge, type Level, type VerdictPolicy } from '../compatibility/modes.ts';
import type { UpgradeOrder } from './model.ts';

export interface RolloutPlan {
  readonly mode: Level;
  /** The registry accepts the new schema after the old one under this mode. */
  readonly accepted: boolean;
  /** The new schema reads records of the old one. */
  readonly backward: boolean;
  /** The old schema reads records of the new one. */
  readonly forward: boolean;
  /** Orders that break no consumer. */
  readonly safe: readonly UpgradeOrder[];
  /** Order to take; undefined: none is safe. */
  readonly order: UpgradeOrder | undefined;
  /** Sentences that explain the order. */
  readonly why: readonly string[];
  /** Steps of the upgrade, in order. */
  readonly steps: readonly string[];
}

const NEEDS: Readonly<Record<UpgradeOrder, string>> = {
  'consumers-first': 'consumers first needs new consumers to read old records',
  'producers-first': 'producers first needs old consumers to read new records',
};

/** Finds the safe orders of an upgrade from one schema to another.
 *  @param mode compatibility mode of the subject: the registry accepts or refuses by it
 *  @returns a plan without an order if no order is safe
 *  @example
 *  const { order, why } = planRollout(oldSchema, newSchema, 'BACKWARD');
 *  console.log(order ?? 'no order is safe', why);
 */
export function planRollout(
  from: Schema,
  to: Schema,
  mode: Level,
  policy: VerdictPolicy = 'PROVEN',
): RolloutPlan {
  // Safety is a matter of the decoders, so the policy never changes these two comparisons.
  const newReadsOld = checkPair(to, from);
  const oldReadsNew = checkPair(from, to);
  const backward = isCompatible(newReadsOld);
  const forward = isCompatible(oldReadsNew);
  const accepted = judge(to, mode, [{ version: 1, schema: from }], policy).compatible;
  const safe: UpgradeOrder[] = [
    ...(backward ? (['consumers-first'] as const) : []),
    ...(forward ? (['producers-first'] as const) : []),
  ];
  const order = preferred(mode, safe);
  const why = [
    modeSentence(mode, accepted),
    sentence(NEEDS['consumers-first'], backward, newReadsOld),
    sentence(NEEDS['producers-first'], forward, oldReadsNew),
    ...(safe.length === 0 ? [NO_ORDER] : []),
  ];
  return { mode, accepted, backward, forward, safe, order, why, steps: stepsOf(order, backward) };
}

const NO_ORDER =
  'no order is safe: go through a version that both can read, or use another topic for the new records';

/** The order that the mode guarantees, where it is safe; otherwise a safe order. */
function preferred(mode: Level, safe: readonly UpgradeOrder[]): UpgradeOrder | undefined {
  const own: UpgradeOrder = mode.startsWith('FORWARD') ? 'producers-first' : 'consumers-first';
  return safe.includes(own) ? own : safe[0];
}

function modeSentence(mode: Level, accepted: boolean): string {
  const guarantee = mode.startsWith('FULL')
    ? 'any order'
    : mode.startsWith('BACKWARD')
      ? 'consumers first'
      : mode.startsWith('FORWARD')
        ? 'producers first'
        : 'no order';
  return accepted
    ? `${mode} guarantees ${guarantee}, and the new schema is accepted under it`
    : `${mode} guarantees ${guarantee}, and the new schema is refused under it`;
}

function sentence(needs: string, holds: boolean, findings: readonly Finding[]): string {
  if (holds) {
    const lossy = findings.find(({ severity }) => severity === 'lossy');
    return lossy === undefined
      ? `${needs}: they do`
      : `${needs}: they do, with a loss: ${findingLine(lossy)}`;
  }
  const worst = findings.find(({ severity }) => severity === 'fail' || severity === 'unjudged');
  return `${needs}: they do not${worst === undefined ? '' : `: ${findingLine(worst)}`}`;
}

function stepsOf(order: UpgradeOrder | undefined, backward: boolean): readonly string[] {
  if (order === undefined) return [];
  const register = 'register the new schema';
  if (order === 'consumers-first')
    return [
      register,
      'upgrade every consumer of every group, one after the other',
      'upgrade the producers, one after the other',
    ];
  return [
    register,
    'upgrade the producers, one after the other',
    backward
      ? 'wait until the groups have read the old records (optional: new consumers read them too)'
      : 'wait until every group has read and committed all old records',
    'upgrade the consumers, one after the other',
  ];
}
