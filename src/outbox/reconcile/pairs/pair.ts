/** Pair of tables that a comparison holds against each other: the intents on the left, their
 *  effects on the right, and the classes of differences between them. */
import type { SqlPool } from '../../../io/postgres/sql/port.ts';
import { outboxError } from '../../errors.ts';
import { type PairSide, readSide, requireEqualHashes, type SideConfig } from './side.ts';

/** Kind of a difference between two rows, or of a row without its counterpart. */
export type Difference =
  /** Left row without a right row. */
  | 'missing'
  /** The same, and the right side has set its message aside. */
  | 'setAside'
  /** Right row without a left row. */
  | 'extra'
  /** Both rows, with other values. */
  | 'differs'
  /** Several left rows with one id. */
  | 'leftTwice'
  /** Several right rows with one id. */
  | 'rightTwice'
  /** Left row that is not published. */
  | 'pending';

export interface PairClass {
  readonly name: string;
  /** Meaning of the class, in one sentence. */
  readonly meaning: string;
}

export type PairClasses = Readonly<Partial<Record<Difference, PairClass>>>;

/** Right row that came later than the bound. */
export const LATE: PairClass = {
  name: 'late',
  meaning: 'an effect that exists, but came later after its intent than the bound',
};

/** Pair as it is configured. */
export interface PairConfig {
  readonly name: string;
  readonly left: SideConfig;
  readonly right: SideConfig;
  /** Age up to which rows of both sides are kept, ms. Absent: rows older than the oldest row of the
   *  side that begins later have expired. */
  readonly keepMs?: number;
  readonly classes: PairClasses;
  /** True if the time between the two rows of an id is judged. */
  readonly judgesLate: boolean;
}

/** Pair with checked tables. */
export interface Pair extends Omit<PairConfig, 'left' | 'right'> {
  readonly left: PairSide;
  readonly right: PairSide;
}

/** True if equal digests leave open whether an id occurs twice on both sides. */
export const mayRepeat = ({ left, right }: Pair): boolean => !left.isUnique && !right.isUnique;

/** Pools of the two sides; they may be the same. */
export interface PairPools {
  readonly left: SqlPool;
  readonly right: SqlPool;
}

/** Classes of an outbox and an inbox. */
export const MESSAGE_CLASSES = {
  missing: {
    name: 'outbox_without_inbox',
    meaning: 'a message of the outbox that was not processed, though it is not old enough to have expired',
  },
  extra: { name: 'inbox_without_outbox', meaning: 'a processed message without an outbox row' },
  differs: { name: 'value_differs', meaning: 'a message that was processed with another value' },
  leftTwice: { name: 'double_outbox', meaning: 'one message id in several outbox rows' },
  rightTwice: { name: 'double_inbox', meaning: 'a message that was processed more than once' },
  pending: { name: 'pending_outbox', meaning: 'an outbox row that is not marked as published' },
} as const satisfies PairClasses;

/** Checks the tables of a pair.
 *  @throws bad_value, tables_missing, table_unusable, unreachable */
export async function readPair(config: PairConfig, pools: PairPools): Promise<Pair> {
  const left = await readSide(pools.left, config.left, `the outbox of pair ${config.name}`);
  const right = await readSide(pools.right, config.right, `the inbox of pair ${config.name}`);
  if (left.idKind !== right.idKind)
    throw outboxError(
      'table_unusable',
      `the ids of pair ${config.name} are ${left.idKind} in ${left.table.given} and ${right.idKind} in ${right.table.given}`,
      { next: 'compare columns of the same type' },
    );
  if ((left.value === undefined) !== (right.value === undefined))
    throw outboxError('table_unusable', `only one side of pair ${config.name} has a value`, {
      next: 'give the value column of both sides, or of neither',
    });
  if (pools.left !== pools.right) await requireEqualHashes(pools.left, pools.right);
  return { ...config, left, right };
}
