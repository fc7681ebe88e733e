/** Late events in the engine's own store, for GET /late.
 *
 *  Rows are keyed by the place of the event, so writing an event again changes nothing. Each
 *  partition keeps its newest events: `keep` of them, and up to a quarter more between two trims.
 *
 *      key    partition u32 | offset u64, and for an element of a list its number u32, big-endian
 *      value  as in the changelog (events.ts) */
import type { SpanRows } from '../../../core/rows.ts';
import type { KvPage, KvRange, KvStore } from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import { viewOf } from '../side/sections.ts';
import type { SideTopic } from '../side/sender.ts';
import {
  decodeLateEvents,
  isSameKey,
  LATE_EVENT_BYTES_MAX,
  type LateEvent,
  type LateKey,
  lateEventBytes,
  putLateEvent,
} from './events.ts';

const LATE_FAMILY = 'late';
const KEY_BYTES = 12;
const ELEMENT_KEY_BYTES = KEY_BYTES + 4;
/** Rows and bytes of one page of a scan, at most. */
const SCAN_ROWS = 1024;
const SCAN_BYTES = 128 * (ELEMENT_KEY_BYTES + LATE_EVENT_BYTES_MAX);
/** Most rows that one query visits. */
const LATE_VISITS_MAX = 20_000;
/** A partition is trimmed after this fraction of `keep` was added to it. */
const TRIM_FRACTION = 1 / 4;

type Page = Required<KvPage>;

export interface LatePlace {
  readonly partition: number;
  readonly offset: bigint;
  /** Element of the record's list; absent: the event is the record. */
  readonly element?: number | undefined;
}

export interface LateQuery {
  /** Bounds of event_ts: [from, to). */
  readonly from: number;
  readonly to: number;
  /** Undefined: any. */
  readonly key: LateKey | undefined;
  readonly limit: number;
  /** Only events after this one. */
  readonly after: LatePlace | undefined;
}

/** Ascending by place. */
export interface LatePage {
  readonly rows: readonly LateEvent[];
  /** Position at which the next page continues; undefined at the end. */
  readonly next: LatePlace | undefined;
}

function keyOf({ partition, offset, element }: LatePlace): Uint8Array {
  const key = new Uint8Array(element === undefined ? KEY_BYTES : ELEMENT_KEY_BYTES);
  const view = new DataView(key.buffer);
  view.setUint32(0, partition);
  view.setBigUint64(4, offset);
  if (element !== undefined) view.setUint32(KEY_BYTES, element);
  return key;
}

/** First key of a partition. */
const firstOf = (partition: number): Uint8Array => keyOf({ partition, offset: 0n });

/** First key behind that of a place. */
const behind = ({ partition, offset, element }: LatePlace): Uint8Array =>
  element === undefined
    ? keyOf({ partition, offset: offset + 1n })
    : keyOf({ partition, offset, element: element + 1 });

/** First key after those of a partition; null for the last partition that a key can have. */
const endOf = (partition: number): Uint8Array | null =>
  partition >= 0xffff_ffff ? null : firstOf(partition + 1);

/** The newest events of each partition, at most `keep`, ascending by place and each once: older
 *  ones would be trimmed immediately. */
export function newestOf(
  events: readonly LateEvent[],
  keep: number,
): ReadonlyMap<number, readonly LateEvent[]> {
  const byPartition = new Map<number, LateEvent[]>();
  for (const event of events) {
    const own = byPartition.get(event.partition);
    if (own === undefined) byPartition.set(event.partition, [event]);
    else own.push(event);
  }
  const newest = (own: LateEvent[]): readonly LateEvent[] => {
    own.sort(byPlace);
    const once = own.filter(
      (event, i) => i + 1 === own.length || byPlace(event, own[i + 1] as LateEvent) !== 0,
    );
    return once.slice(-keep);
  };
  return new Map([...byPartition].map(([partition, own]) => [partition, newest(own)]));
}

const byPlace = (a: LateEvent, b: LateEvent): number =>
  a.offset === b.offset ? (a.element ?? 0) - (b.element ?? 0) : a.offset < b.offset ? -1 : 1;

/** Counts what was added to each partition, and says when to trim it. */
export class TrimPlan {
  private readonly added = new Map<number, number>();
  private readonly step: number;

  constructor(keep: number) {
    this.step = Math.max(1, Math.ceil(keep * TRIM_FRACTION));
  }

  /** True if the partition must be trimmed now: also at its first event, because an earlier process
   *  may have left more. */
  isDue(partition: number, count: number): boolean {
    const added = (this.added.get(partition) ?? this.step) + count;
    const isDue = added >= this.step;
    this.added.set(partition, isDue ? 0 : added);
    return isDue;
  }
}

export class LateEventStore implements SideTopic<LateEvent> {
  private readonly store: KvStore;
  private readonly keep: number;
  private readonly trims: TrimPlan;

  /** @param store has LATE_FAMILY; the caller keeps its ownership
   *  @param keep events of each partition that are kept, at least 1 */
  constructor(store: KvStore, keep: number) {
    this.store = store;
    this.keep = keep;
    this.trims = new TrimPlan(keep);
  }

  async send(copies: readonly LateEvent[]): Promise<void> {
    const newest = newestOf(copies, this.keep);
    await this.store.put(LATE_FAMILY, rowsOf([...newest.values()].flat()), 'sync');
    for (const [partition, events] of newest)
      if (this.trims.isDue(partition, events.length)) await this.trim(partition);
  }

  /** Finds late events. A page may have fewer rows than the limit and still continue.
   *  @throws state_corrupt */
  async find({ from, to, key, limit, after }: LateQuery): Promise<LatePage> {
    const rows: LateEvent[] = [];
    let place: LatePlace | undefined;
    let visits = 0;
    const first = after === undefined ? null : behind(after);
    for await (const event of this.scan(first, null)) {
      if (rows.length === limit || visits++ >= LATE_VISITS_MAX) return { rows, next: place };
      place = event;
      const isKey = key === undefined || isSameKey(event, key);
      if (isKey && event.eventTs >= from && event.eventTs < to) rows.push(event);
    }
    return { rows, next: undefined };
  }

  private async trim(partition: number): Promise<void> {
    const range = { from: firstOf(partition), to: endOf(partition) };
    let count = 0;
    for await (const { rows } of this.pages(range)) count += rows;
    let older = count - this.keep;
    if (older <= 0) return;
    for await (const { page, rows } of this.pages(range)) {
      if (older < rows) {
        const to = keyIn(page, older).slice();
        await this.store.deleteRange(LATE_FAMILY, { from: range.from, to }, 'on');
        return;
      }
      older -= rows;
    }
  }

  private async *scan(from: Uint8Array | null, to: Uint8Array | null): AsyncIterable<LateEvent> {
    for await (const { page, rows } of this.pages({ from, to })) yield* eventsOf(page, rows);
  }

  /** Pages of a range; each is overwritten by the next one. */
  private async *pages(range: KvRange): AsyncIterable<{ readonly page: Page; readonly rows: number }> {
    const scan = await this.store.scan(LATE_FAMILY, range, { shape: 'spans' });
    try {
      const page = { bytes: new Uint8Array(SCAN_BYTES), ends: new Uint32Array(2 * SCAN_ROWS) };
      for (let rows = await scan.next(page); rows > 0; rows = await scan.next(page)) yield { page, rows };
    } finally {
      scan.close();
    }
  }
}

/** Borrows the key of a row. */
const keyIn = ({ bytes, ends }: Page, row: number): Uint8Array =>
  bytes.subarray(row === 0 ? 0 : ends[row * 2 - 1], ends[row * 2]);

/** Decodes the rows of a page, which they do not borrow. @throws state_corrupt */
function eventsOf({ bytes, ends }: Page, count: number): readonly LateEvent[] {
  return Array.from({ length: count }, (_, row) => {
    const value = bytes.slice(ends[row * 2], ends[row * 2 + 1]);
    const decoded = decodeLateEvents({ count: 1, bytes: value });
    if ('copies' in decoded) return decoded.copies[0] as LateEvent;
    throw engineError('state_corrupt', `the store of late events: ${decoded.fault}`, {
      next: 'move its folder away; a new store fills as events are refused',
    });
  });
}

function rowsOf(events: readonly LateEvent[]): SpanRows {
  const ends = new Uint32Array(2 * events.length);
  let end = 0;
  events.forEach((event, i) => {
    const keyBytes = event.element === undefined ? KEY_BYTES : ELEMENT_KEY_BYTES;
    ends[i * 2] = end + keyBytes;
    end += keyBytes + lateEventBytes(event);
    ends[i * 2 + 1] = end;
  });
  const bytes = new Uint8Array(end);
  const view = viewOf(bytes);
  events.forEach((event, i) => {
    const valueAt = ends[i * 2] as number;
    const key = keyOf(event);
    bytes.set(key, valueAt - key.length);
    putLateEvent(view, bytes, valueAt, event);
  });
  return { shape: 'spans', count: events.length, bytes, ends };
}
