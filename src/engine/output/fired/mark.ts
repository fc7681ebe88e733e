/** Self-description of a store of fired windows; protects it from being opened with other windows.
 */
import { DURATION_MS_MAX } from '../../../core/time.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import { isKeyType, type KeyType } from '../../keys/type.ts';

/** The properties of a job's windows on which their keys depend. */
export type FiredShape =
  | { readonly kind: 'windows'; readonly sizeMs: number; readonly slideMs: number }
  | { readonly kind: 'sessions'; readonly gapMs: number };

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
const KEY = new TextEncoder().encode('fired');

export function shapeText(shape: FiredShape): string {
  if (shape.kind === 'sessions') return `sessions with a gap of ${shape.gapMs} ms`;
  const { sizeMs, slideMs } = shape;
  return sizeMs === slideMs
    ? `tumbling windows of ${sizeMs} ms`
    : `windows of ${sizeMs} ms that slide by ${slideMs} ms`;
}

export async function writeMark(store: KvStore, mark: Mark): Promise<void> {
  const value = new TextEncoder().encode(
    JSON.stringify({ form: mark.key === undefined ? FORM : KEYED_FORM, ...mark }),
  );
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
  const isKnown = mark?.form === FORM ? key === undefined : mark?.form === KEYED_FORM && isKeyType(key);
  if (!isKnown || !isMs(bucketMs) || typeof trimmed !== 'boolean') return undefined;
  if (role !== 'sink' && role !== 'beside') return undefined;
  const whole =
    shape?.kind === 'sessions'
      ? isMs(shape.gapMs)
      : shape?.kind === 'windows' && isMs(shape.sizeMs) && isMs(shape.slideMs);
  return whole && shape !== undefined ? { shape, bucketMs, role, trimmed, key } : undefined;
}
