/** Cells of the rollout bench: each step and candidate of Order, in each mode, order and format. */
import { ORDER_CANDIDATES, type OrderShape } from '../../src/gen/order.ts';
import {
  candidatesOf,
  ORDER_VERSIONS,
  type OrderFormat,
  orderCandidate,
} from '../../src/gen/order-versions.ts';
import { UPGRADE_ORDERS, type UpgradeOrder } from '../../src/registry/rollout/model.ts';

export const CELL_FORMATS = ['avro', 'protobuf'] as const satisfies readonly OrderFormat[];
export const CELL_MODES = ['BACKWARD', 'FORWARD', 'FULL'] as const;
export type CellMode = (typeof CELL_MODES)[number];

/** Upgrade of Order from one schema to another. */
export interface Change {
  readonly format: OrderFormat;
  readonly from: OrderShape;
  readonly to: OrderShape;
}

export interface Cell extends Change {
  readonly mode: CellMode;
  readonly order: UpgradeOrder;
}

const STEP_WORDS: Readonly<Record<number, string>> = {
  2: 'add optional fields',
  3: 'remove a field with a default, add optional fields',
  4: 'rename a field, in Avro with an alias',
  5: 'retype a field, int to long',
  6: 'add a field, in Avro without a default',
};

/** The change in words. */
export const wordsOf = ({ to }: Pick<Change, 'to'>): string =>
  typeof to === 'number' ? (STEP_WORDS[to] as string) : orderCandidate(to).change;

/** The steps from version to version, then the candidates. */
export function changesOf(format: OrderFormat): readonly Change[] {
  const steps = ORDER_VERSIONS.slice(1).map(
    (to): Change => ({ format, from: ORDER_VERSIONS[to - 2] as 1, to }),
  );
  const candidates = ORDER_CANDIDATES.filter((name) => candidatesOf(format).includes(name)).map(
    (to): Change => ({ format, from: orderCandidate(to).base, to }),
  );
  return [...steps, ...candidates];
}

export function cellsOf(format: OrderFormat): readonly Cell[] {
  return changesOf(format).flatMap((change) =>
    CELL_MODES.flatMap((mode) => UPGRADE_ORDERS.map((order): Cell => ({ ...change, mode, order }))),
  );
}

/** Unique name of a cell: `avro 3 to 4 BACKWARD consumers-first`. */
export const cellName = ({ format, from, to, mode, order }: Cell): string =>
  `${format} ${from} to ${to} ${mode} ${order}`;

/** Writer and reader of the direction that an order exercises. */
export const directionOf = ({
  from,
  to,
  order,
}: Pick<Cell, 'from' | 'to' | 'order'>): { readonly writer: OrderShape; readonly reader: OrderShape } =>
  order === 'consumers-first' ? { writer: from, reader: to } : { writer: to, reader: from };
