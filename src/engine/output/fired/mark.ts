/** Self-description of a store of fired windows; protects it from being opened with other windows.
 */
import { DURATION_MS_MAX } from '../../../core/time.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { aggregateChange, formOf } from '../../aggregate/definition.ts';
import { engineError } from '../../errors.ts';
import { isKeyType, type KeyType } from '../../keys/type.ts';

/** The properties of a job on which the keys and the rows of its results depend. */
export type FiredShape = (
  | { readonly kind: 'windows'; readonly sizeMs: number; readonly slideMs: number }
  | { readonly kind: 'sessions'; readonly gapMs: number }
) & {
  /** Absent: count, sum, min and max of one value. */
  readonly aggregates?: string;
};

export interface Mark {
  readonly shape: FiredShape;
  /** Event time of a bucket of sessions; never changes. */
  readonly bucketMs: number;
  readonly role: 'sink' | 'beside';
  /** Rows have expired. */
  readonly trimmed: boolean;
  /** Type of keys that are no integers. */
  readonly key?: KeyType | undefined;
}

const FORM = 1;
/** Form of a store whose keys are no integers. */
const KEYED_FORM = 2;
/** Added to either form in a store of a job's own aggregates. */
const AGGREGATES_FORM = 2;
const KEY = new TextEncoder().encode('fired');

export function shapeText(shape: FiredShape): string {
  const { aggregates } = shape;
  return `${windowsText(shape)}${aggregates === undefined ? '' : ` with ${aggregates}`}`;
}

/** True if the results of `from` have the keys of `to`, and no aggregate that `to` lacks. */
export const mayBecome = (from: FiredShape, to: FiredShape): boolean =>
  windowsText(from) === windowsText(to) &&
  (from.aggregates === undefined || to.aggregates === undefined
    ? from.aggregates === to.aggregates
    : aggregateChange(from.aggregates, to.aggregates).isAllowed);

function windowsText(shape: FiredShape): string {
  if (shape.kind === 'sessions') return `sessions with a gap of ${shape.gapMs} ms`;
  const { sizeMs, slideMs } = shape;
  return sizeMs === slideMs
    ? `tumbling windows of ${sizeMs} ms`
    : `windows of ${sizeMs} ms that slide by ${slideMs} ms`;
}

const formNumber = ({ key, shape }: Pick<Mark, 'key' | 'shape'>): number =>
  (key === undefined ? FORM : KEYED_FORM) + (shape.aggregates === undefined ? 0 : AGGREGATES_FORM);

export async function writeMark(store: KvStore, mark: Mark): Promise<void> {
  const value = new TextEncoder().encode(JSON.stringify({ form: formNumber(mark), ...mark }));
  const bytes = new Uint8Array(KEY.length + value.length);
  bytes.set(KEY);
  bytes.set(value, KEY.length);
  const row = { shape: 'fixed', count: 1, bytes, keyBytes: KEY.length, valueBytes: value.length } as const;
  await store.put('mark', row, 'sync');
}

/** Undefined in a new store. @throws state_corrupt */
export async function readMark(store: KvStore): Promise<Mark | undefined> {
  const found = await store.get('mark', { count: 1, bytes: KEY, keyBytes: KEY.length });
  const length = found.length[0] as number;
  if (length < 0) return undefined;
  const text = new TextDecoder().decode(found.bytes.subarray(0, length));
  const mark = parsed(text);
  if (mark === undefined) {
    throw engineError('state_corrupt', `${store.folder} has no valid description of its windows`, {
      next: 'open it with the version that created it, or move the folder away',
    });
  }
  return mark;
}

function isAggregates(text: unknown): boolean {
  if (text === undefined) return true;
  if (typeof text !== 'string') return false;
  try {
    formOf(text);
    return true;
  } catch {
    return false;
  }
}

const isMs = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= DURATION_MS_MAX;

function parsed(text: string): Mark | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const mark = value as Partial<Mark> & { readonly form?: unknown };
  const { shape, bucketMs, role, trimmed, key } = mark ?? {};
  if (shape === undefined || mark.form !== formNumber({ key, shape })) return undefined;
  if ((key !== undefined && !isKeyType(key)) || !isAggregates(shape.aggregates)) return undefined;
  if (!isMs(bucketMs) || typeof trimmed !== 'boolean') return undefined;
  if (role !== 'sink' && role !== 'beside') return undefined;
  const whole =
    shape.kind === 'sessions'
      ? isMs(shape.gapMs)
      : shape.kind === 'windows' && isMs(shape.sizeMs) && isMs(shape.slideMs);
  return whole ? { shape, bucketMs, role, trimmed, key } : undefined;
}
