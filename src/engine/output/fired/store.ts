/** The engine's own store of fired windows. GET /windows reads from it, and it is the default sink.
 *
 *  Invariants: (1) a write is durable when it settles, and writing the same rows again changes
 *  nothing that a reader sees; (2) with `retainMs`, windows that end more than `retainMs` of event
 *  time before the newest end of a final result expire; without it none do; (3) a store that
 *  expired rows as a secondary store never becomes a sink, and a store that has been a sink expires
 *  nothing as a secondary store. */

import { portionRows, RowForm } from '../../../core/layout/row-form.ts';
import type { Rows } from '../../../core/rows.ts';
import { floorTo } from '../../../core/time.ts';
import type { KvFamilyUse, KvStore } from '../../../io/rocksdb/port.ts';
import { isExtension, plainAggregates } from '../../aggregate/definition.ts';
import { RowEras } from '../../aggregate/eras.ts';
import { engineError } from '../../errors.ts';
import { isSameType, type KeyType, typeText } from '../../keys/type.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import type { ResultShape } from '../columns.ts';
import type { WindowSink } from '../sink/port.ts';
import { ResultRows } from '../sink/rows.ts';
import { pagesOfEras } from './era-pages.ts';
import { keyedRows, windowRows } from './keyed-rows.ts';
import { keyedSessions, keyedWindows, sortedSessions, timeKey, windowPrefix } from './keys.ts';
import { findSessions, findWindows, type WindowPage, type WindowQuery } from './lookup.ts';
import { type FiredShape, type Mark, mayBecome, readMark, shapeText, writeMark } from './mark.ts';
import {
  findRange,
  findTop,
  type RangePage,
  type RangeQuery,
  type RangeSource,
  type TopQuery,
} from './range.ts';
import { openFiredScan } from './scan.ts';
import { findTimeRange, type TimeRange, union } from './time-range.ts';

export const FIRED_FAMILIES: Readonly<Record<string, KvFamilyUse>> = {
  windows: 'rows',
  sessions: 'rows',
  mark: 'rows',
  late: 'rows',
};
/** Rows of one firing from which on they are ingested as a sorted run, a portion of them if they
 *  are wide. Fewer rows cost less than a file of their own. */
export const RUN_ROWS_MIN = 32_768;
/** 8 MiB. */
const WRITE_ROWS_MAX = 131_072;
/** Most rows of one put, which are encoded in one turn of the event loop. */
const PUT_ROWS_MAX = 4_096;
const READ_ROWS = 8_192;
const READ_KEYED_ROWS = 4_096;
/** Session buckets for each retention; `BUCKET_MS_MIN` is the least length of a bucket. */
const BUCKETS_PER_RETENTION = 32;
const BUCKET_MS_MIN = 60_000;
/** Bucket length in a store that keeps every row. */
const BUCKET_MS_UNLIMITED = 120_000;
/** Rows expire in steps of this fraction of the retention. */
const EXPIRY_STEPS = 64;

interface FiredOptions {
  readonly shape: FiredShape;
  /** `sink`: the only place of the results. `beside`: a secondary store; another sink has them too.
   */
  readonly role: 'sink' | 'beside';
  /** Largest distance of a window's end from the newest end; absent: rows never expire. */
  readonly retainMs?: number | undefined;
  /** The store may have early results, whose windows may end far ahead of the final ones. */
  readonly hasEarly?: boolean;
}

/** Sink of fired windows in a key-value store, for look-ups by key and time. A write is durable
 *  when it settles; the same rows again change nothing that a reader sees.
 */
export class FiredStore implements WindowSink {
  readonly name = 'rocksdb';
  readonly writeRowsMax = WRITE_ROWS_MAX;
  private readonly store: KvStore;
  private readonly retainMs: number;
  private readonly family: 'windows' | 'sessions';
  private eras: RowEras;
  private mark: Mark;
  private held: TimeRange;
  private newestEnd: number;

  private constructor(store: KvStore, retainMs: number, mark: Mark, held: TimeRange, hasEarly: boolean) {
    this.store = store;
    this.mark = mark;
    this.eras = new RowEras(mark.shape.aggregates);
    this.retainMs = retainMs;
    this.family = mark.shape.kind;
    this.held = held;
    // A lower bound: the greatest end in the newest bucket, and with early results that of a final
    // one, is unknown until the next write.
    this.newestEnd = hasEarly
      ? Number.NEGATIVE_INFINITY
      : held.newest + (mark.shape.kind === 'windows' ? mark.shape.sizeMs : 0);
  }

  /** Takes ownership of the store, which has FIRED_FAMILIES.
   *  @throws job_changed, bad_setting, state_corrupt */
  static async open(
    store: KvStore,
    { shape, role, retainMs, hasEarly = false }: FiredOptions,
  ): Promise<FiredStore> {
    const found = await readMark(store);
    const bucketMs =
      retainMs === undefined
        ? BUCKET_MS_UNLIMITED
        : Math.max(BUCKET_MS_MIN, Math.ceil(retainMs / BUCKETS_PER_RETENTION));
    let mark = found ?? { shape, bucketMs, role, trimmed: false };
    if (!mayBecome(mark.shape, shape)) {
      throw engineError(
        'job_changed',
        `${store.folder} holds ${plainText(mark.shape)}, not ${plainText(shape)}`,
        { next: 'start with the same windows and at least these aggregates, or give another folder' },
      );
    }
    if (role === 'sink' && mark.role === 'beside' && mark.trimmed) {
      throw engineError(
        'bad_setting',
        `${store.folder} cannot be the sink: it was a secondary store and has expired windows older than its -retain`,
        { next: 'give -sink=rocksdb:FOLDER with another folder, or an empty -state-dir' },
      );
    }
    if (role === 'sink') mark = { ...mark, role };
    if (found === undefined || found.role !== mark.role) await writeMark(store, mark);
    const keepsAll = retainMs === undefined || mark.role !== role;
    const retentionMs = keepsAll ? Number.POSITIVE_INFINITY : retainMs;
    const held = await findTimeRange(store, mark.shape.kind);
    return new FiredStore(store, retentionMs, mark, held, hasEarly);
  }

  /** Type of the keys; undefined: they are integers. */
  get keyType(): KeyType | undefined {
    return this.mark.key;
  }

  /** A store without results adopts the type and the aggregates; a store with results adopts
   *  further aggregates. @throws job_changed if it has results by other keys or of other aggregates
   */
  async bind(type: KeyType | undefined, shape?: Pick<ResultShape, 'aggregate'>): Promise<void> {
    await this.bindKey(type);
    if (shape !== undefined) await this.bindAggregates(shape.aggregate);
  }

  private async bindAggregates(aggregates: string | undefined): Promise<void> {
    const { shape } = this.mark;
    const was = shape.aggregates;
    if (was === aggregates || was === undefined || aggregates === undefined) return;
    const isEmpty = !(this.held.oldest <= this.held.newest);
    if (!isEmpty && !isExtension(was, aggregates))
      throw engineError(
        'job_changed',
        `${this.store.folder} holds results of other aggregates: they were ${was}, are ${aggregates}`,
        { next: 'give the -aggregate of these results again, or another folder or -state-dir' },
      );
    this.mark = { ...this.mark, shape: { ...shape, aggregates } };
    this.eras = new RowEras(aggregates);
    await writeMark(this.store, this.mark);
  }

  private async bindKey(type: KeyType | undefined): Promise<void> {
    const { key } = this.mark;
    if (type === undefined ? key === undefined : key !== undefined && isSameType(type, key)) return;
    if (this.held.oldest <= this.held.newest) {
      const text = (one: KeyType | undefined): string => (one === undefined ? 'integers' : typeText(one));
      throw engineError(
        'job_changed',
        `${this.store.folder} holds results by other keys: they were ${text(key)}, are ${text(type)}`,
        { next: 'give the -key of these results again, or another folder or -state-dir' },
      );
    }
    // Late events by keys of another type could not be shown.
    await this.store.deleteRange('late', { from: null, to: null }, 'on');
    this.mark = { ...this.mark, key: type };
    await writeMark(this.store, this.mark);
  }

  async migrate(): Promise<void> {}
  async check(): Promise<void> {}

  async write(pages: readonly FiredPage[]): Promise<void> {
    const windows: FiredPage[] = [];
    const sessions: FiredPage[] = [];
    const isKeyed = this.mark.key !== undefined;
    for (const page of pages.flatMap((one) => pagesOfEras(one, this.eras))) {
      const { bytes } = page.form ?? RowForm.HEADS;
      if (page.rowCount >= portionRows(RUN_ROWS_MIN, bytes)) await this.writeRun(page);
      else (page.bounds.kind === 'window' ? windows : sessions).push(...partsOf(page));
    }
    const { bucketMs } = this.mark;
    await this.put('windows', windows, isKeyed ? keyedRows : keyedWindows);
    await this.put('sessions', sessions, (batch) =>
      isKeyed ? keyedRows(batch, bucketMs) : keyedSessions(batch, bucketMs),
    );
    for (const page of pages) this.extendRange(page);
    await this.expire();
  }

  /** Finds fired windows of one account. */
  find(query: WindowQuery): Promise<WindowPage> {
    const { store, held, mark, eras } = this;
    const expiredTo = this.newestEnd - this.retainMs;
    return mark.shape.kind === 'windows'
      ? findWindows(store, mark.shape, held, expiredTo, query, eras)
      : findSessions(store, mark.bucketMs, held, expiredTo, query, eras);
  }

  /** Finds a page of the fired windows of all keys. @throws range_too_wide */
  range(query: RangeQuery): Promise<RangePage> {
    return findRange(this.visible, query);
  }

  /** Finds the fired windows with the greatest values of a column. @throws range_too_wide */
  top(query: TopQuery): Promise<readonly WindowResult[]> {
    return findTop(this.visible, query);
  }

  private get visible(): RangeSource {
    const { store, mark, eras } = this;
    return { store, mark, eras, expiredTo: this.newestEnd - this.retainMs };
  }

  /** Bytes on disk; includes expired rows until compaction removes their files. */
  async bytes(): Promise<number> {
    return (await this.store.stats()).diskBytes;
  }

  read(): AsyncIterable<readonly WindowResult[]> {
    return readFired(this.store);
  }

  private async writeRun(page: FiredPage): Promise<void> {
    const { bounds } = page;
    const run = this.store.openRun(bounds.kind === 'window' ? 'windows' : 'sessions');
    try {
      // Rows of a window ascend by account_id, and so do their keys unless these are bytes.
      if (this.mark.key !== undefined)
        await run.appendUnsorted(
          bounds.kind === 'window' ? windowRows(page) : keyedRows([page], this.mark.bucketMs),
        );
      else if (bounds.kind === 'window')
        await run.append({
          shape: 'records',
          count: page.rowCount,
          bytes: page.rows,
          recordBytes: (page.form ?? RowForm.HEADS).bytes,
          prefix: windowPrefix(bounds.start, bounds.end),
          wordAt: 0,
        });
      else for (const rows of sortedSessions(page, this.mark.bucketMs)) await run.append(rows);
      await run.finish();
    } finally {
      run.close();
    }
  }

  /** Writes puts of bounded size; the last put syncs the log, which makes all of them durable. */
  private async put(
    family: string,
    pages: readonly FiredPage[],
    keyed: (pages: readonly FiredPage[]) => Rows,
  ): Promise<void> {
    let batch: FiredPage[] = [];
    let rows = 0;
    for (const page of pages) {
      const isOther = batch.length > 0 && batch[0]?.form !== page.form;
      if (rows + page.rowCount > PUT_ROWS_MAX || isOther) {
        await this.store.put(family, keyed(batch), 'on');
        batch = [];
        rows = 0;
      }
      batch.push(page);
      rows += page.rowCount;
    }
    if (rows > 0) await this.store.put(family, keyed(batch), 'sync');
  }

  /** Extends the held range by a page, whose rows ascend by end. */
  private extendRange(page: FiredPage): void {
    if (page.rowCount === 0) return;
    const rows = new ResultRows(page);
    const first = rows.windowEnd(0);
    const last = rows.windowEnd(page.rowCount - 1);
    const timeOf = (end: number): number =>
      page.bounds.kind === 'window' ? page.bounds.start : floorTo(end, this.mark.bucketMs);
    this.held = union(this.held, { oldest: timeOf(first), newest: timeOf(last) });
    // An early result expires no other: its event may be from the future. Pages have one kind.
    if (rows.result(0).isEarly !== true) this.newestEnd = Math.max(this.newestEnd, last);
  }

  private async expire(): Promise<void> {
    const { shape, bucketMs } = this.mark;
    const expiredTo = this.newestEnd - this.retainMs;
    if (!Number.isFinite(expiredTo)) return;
    // The first leading time of rows that are kept.
    const keptFrom = shape.kind === 'windows' ? expiredTo - shape.sizeMs + 1 : floorTo(expiredTo, bucketMs);
    const { oldest, newest } = this.held;
    if (!(keptFrom - oldest >= Math.max(1, this.retainMs / EXPIRY_STEPS))) return;
    if (!this.mark.trimmed) {
      this.mark = { ...this.mark, trimmed: true };
      await writeMark(this.store, this.mark);
    }
    await this.store.deleteRange(this.family, { from: null, to: timeKey(keptFrom) }, 'on');
    this.held = { oldest: keptFrom, newest: Math.max(newest, keptFrom) };
  }
}

/** Text of a shape with the aggregates as flags have them. */
const plainText = ({ aggregates, ...grid }: FiredShape): string =>
  shapeText(aggregates === undefined ? grid : { ...grid, aggregates: plainAggregates(aggregates) });

/** Splits a page into parts of at most PUT_ROWS_MAX rows; no part if there are no rows. */
function partsOf(page: FiredPage): readonly FiredPage[] {
  if (page.rowCount <= PUT_ROWS_MAX) return page.rowCount === 0 ? [] : [page];
  const parts: FiredPage[] = [];
  for (let from = 0; from < page.rowCount; from += PUT_ROWS_MAX) {
    const rowCount = Math.min(PUT_ROWS_MAX, page.rowCount - from);
    const keys = page.keys?.from(from);
    const { bounds, form } = page;
    const rows = page.rows.subarray(from * (form ?? RowForm.HEADS).bytes);
    parts.push({ bounds, form, rowCount, rows, keys });
  }
  return parts;
}

/** Types of the rows of a store of fired windows. */
export interface FiredRows {
  /** Undefined: the keys are integers. */
  readonly keyType: KeyType | undefined;
  /** Undefined: count, sum, min and max. */
  readonly aggregates: string | undefined;
}

export async function firedRows(store: KvStore): Promise<FiredRows> {
  const mark = await readMark(store);
  return { keyType: mark?.key, aggregates: mark?.shape.aggregates };
}

/** Reads every row of a store of fired windows, whatever its windows are.
 *  @example
 *  for await (const rows of readFired(store)) console.log(rows.length);
 */
export async function* readFired(store: KvStore): AsyncIterable<readonly WindowResult[]> {
  const { keyType, aggregates } = await firedRows(store);
  const eras = new RowEras(aggregates);
  const isKeyed = keyType !== undefined;
  const rows = isKeyed ? READ_KEYED_ROWS : portionRows(READ_ROWS, eras.current.bytes);
  for (const family of ['windows', 'sessions'] as const) {
    const scan = await openFiredScan(store, family, { from: null, to: null }, { eras, isKeyed, rows });
    try {
      for (let page = await scan.next(); page.length > 0; page = await scan.next()) yield page;
    } finally {
      scan.close();
    }
  }
}
