/** The engine's own store of fired windows: GET /windows reads it, and it is the sink where no
 *  other is configured.
 *
 *  Invariants: (1) a write is durable when it settles, and the same rows again change nothing that
 *  a reader sees; (2) windows expire when they end `retainMs` of event time before the newest one,
 *  and never without that setting; (3) a store that expired rows beside another sink never becomes
 *  a sink, and a former sink expires no rows beside another sink. */
import { floorTo } from '../../../core/time.ts';
import type { KvFamilyUse, KvStore } from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import type { WindowSink } from '../sink/port.ts';
import { ResultRows } from '../sink/rows.ts';
import {
  keyedSessions,
  keyedWindows,
  placeKey,
  resultsOf,
  SESSION_KEY_BYTES,
  sortedSessions,
  VALUE_BYTES,
  WINDOW_KEY_BYTES,
  windowPrefix,
} from './keys.ts';
import { findSessions, findWindows, type WindowPage, type WindowQuery } from './lookup.ts';
import { type FiredShape, type Mark, readMark, shapeText, writeMark } from './mark.ts';
import { findPlaces, type Places, widened } from './places.ts';

export const FIRED_FAMILIES: Readonly<Record<string, KvFamilyUse>> = {
  windows: 'rows',
  sessions: 'rows',
  mark: 'rows',
};
/** Rows from which a firing is ingested as a run: below, a file would cost more than its rows. */
export const RUN_ROWS_MIN = 32_768;
/** 8 MiB. */
const WRITE_ROWS_MAX = 131_072;
/** Rows of one put. */
const PUT_ROWS_MAX = 16_384;
const READ_ROWS = 8_192;
/** Number of session buckets of a retention, and the shortest bucket. */
const BUCKETS = 32;
const BUCKET_MS_MIN = 60_000;
/** Bucket of a store that keeps every row. */
const BUCKET_MS_KEPT = 120_000;
/** Rows expire in steps of this fraction of the retention. */
const FORGET_STEPS = 64;

interface FiredOptions {
  readonly shape: FiredShape;
  /** `sink`: no other sink has the results. `beside`: another sink has them. */
  readonly role: 'sink' | 'beside';
  /** Greatest distance of a window's end before the newest one; absent: every row is kept. */
  readonly retainMs?: number | undefined;
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
  private mark: Mark;
  private held: Places;
  private newestEnd: number;

  private constructor(store: KvStore, retainMs: number, mark: Mark, held: Places) {
    this.store = store;
    this.mark = mark;
    this.retainMs = retainMs;
    this.family = mark.shape.kind;
    this.held = held;
    // The greatest end in the newest bucket is unknown until the next write.
    this.newestEnd = held.newest + (mark.shape.kind === 'windows' ? mark.shape.sizeMs : 0);
  }

  /** Opens the store, which has FIRED_FAMILIES, and owns it. @throws job_changed, bad_setting,
   *  state_corrupt */
  static async open(store: KvStore, { shape, role, retainMs }: FiredOptions): Promise<FiredStore> {
    const found = await readMark(store);
    const bucketMs =
      retainMs === undefined ? BUCKET_MS_KEPT : Math.max(BUCKET_MS_MIN, Math.ceil(retainMs / BUCKETS));
    let mark = found ?? { shape, bucketMs, role, trimmed: false };
    if (shapeText(mark.shape) !== shapeText(shape)) {
      throw engineError(
        'job_changed',
        `${store.folder} holds ${shapeText(mark.shape)}, not ${shapeText(shape)}`,
        { next: 'start with the same windows, or give another folder' },
      );
    }
    if (role === 'sink' && mark.role === 'beside' && mark.trimmed) {
      throw engineError(
        'bad_setting',
        `${store.folder} cannot be the sink: it stood beside another one and has forgotten windows older than its -retain`,
        { next: 'give -sink=rocksdb:FOLDER with another folder, or an empty -state-dir' },
      );
    }
    if (role === 'sink') mark = { ...mark, role };
    if (found === undefined || found.role !== mark.role) await writeMark(store, mark);
    const isKept = retainMs === undefined || mark.role !== role;
    const keptMs = isKept ? Number.POSITIVE_INFINITY : retainMs;
    return new FiredStore(store, keptMs, mark, await findPlaces(store, mark.shape.kind));
  }

  async migrate(): Promise<void> {}
  async check(): Promise<void> {}

  async write(pages: readonly FiredPage[]): Promise<void> {
    const windows: FiredPage[] = [];
    const sessions: FiredPage[] = [];
    for (const page of pages) {
      if (page.rowCount >= RUN_ROWS_MIN) await this.writeRun(page);
      else (page.bounds.kind === 'window' ? windows : sessions).push(...piecesOf(page));
    }
    await this.put('windows', windows, keyedWindows);
    await this.put('sessions', sessions, (some) => keyedSessions(some, this.mark.bucketMs));
    for (const page of pages) this.note(page);
    await this.forget();
  }

  /** Finds fired windows of one account. */
  find(query: WindowQuery): Promise<WindowPage> {
    const { store, held, mark } = this;
    const forgotten = this.newestEnd - this.retainMs;
    return mark.shape.kind === 'windows'
      ? findWindows(store, mark.shape, held, forgotten, query)
      : findSessions(store, mark.bucketMs, held, forgotten, query);
  }

  /** Bytes on disk, including expired rows until their files are removed. */
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
      // The rows of a window ascend by account_id, and so do their keys.
      await run.append(
        bounds.kind === 'window'
          ? {
              shape: 'records',
              count: page.rowCount,
              bytes: page.rows,
              recordBytes: VALUE_BYTES,
              prefix: windowPrefix(bounds.start, bounds.end),
              wordAt: 0,
            }
          : sortedSessions(page, this.mark.bucketMs),
      );
      await run.finish();
    } finally {
      run.close();
    }
  }

  /** Writes puts of bounded size; the last one makes all of them durable. */
  private async put(
    family: string,
    pages: readonly FiredPage[],
    keyed: (pages: readonly FiredPage[]) => ReturnType<typeof keyedWindows>,
  ): Promise<void> {
    let some: FiredPage[] = [];
    let rows = 0;
    for (const page of pages) {
      if (rows + page.rowCount > PUT_ROWS_MAX) {
        await this.store.put(family, keyed(some), 'on');
        some = [];
        rows = 0;
      }
      some.push(page);
      rows += page.rowCount;
    }
    if (rows > 0) await this.store.put(family, keyed(some), 'sync');
  }

  /** Notes the interval of a page, whose rows ascend by end. */
  private note(page: FiredPage): void {
    if (page.rowCount === 0) return;
    const rows = new ResultRows(page);
    const first = rows.windowEnd(0);
    const last = rows.windowEnd(page.rowCount - 1);
    const place = (end: number): number =>
      page.bounds.kind === 'window' ? page.bounds.start : floorTo(end, this.mark.bucketMs);
    this.held = widened(this.held, { oldest: place(first), newest: place(last) });
    this.newestEnd = Math.max(this.newestEnd, last);
  }

  private async forget(): Promise<void> {
    const { shape, bucketMs } = this.mark;
    const forgotten = this.newestEnd - this.retainMs;
    if (!Number.isFinite(forgotten)) return;
    // First number of a key that is kept.
    const kept = shape.kind === 'windows' ? forgotten - shape.sizeMs + 1 : floorTo(forgotten, bucketMs);
    const { oldest, newest } = this.held;
    if (!(kept - oldest >= Math.max(1, this.retainMs / FORGET_STEPS))) return;
    if (!this.mark.trimmed) {
      this.mark = { ...this.mark, trimmed: true };
      await writeMark(this.store, this.mark);
    }
    await this.store.deleteRange(this.family, { from: null, to: placeKey(kept) }, 'on');
    this.held = { oldest: kept, newest: Math.max(newest, kept) };
  }
}

/** Divides a page into puts; none for a page without rows. */
function piecesOf(page: FiredPage): readonly FiredPage[] {
  if (page.rowCount <= PUT_ROWS_MAX) return page.rowCount === 0 ? [] : [page];
  const pieces: FiredPage[] = [];
  for (let from = 0; from < page.rowCount; from += PUT_ROWS_MAX) {
    const rowCount = Math.min(PUT_ROWS_MAX, page.rowCount - from);
    pieces.push({ bounds: page.bounds, rowCount, rows: page.rows.subarray(from * VALUE_BYTES) });
  }
  return pieces;
}

/** Reads every row of a store of fired windows, whatever its windows are.
 *  @example
 *  for await (const rows of readFired(store)) console.log(rows.length);
 */
export async function* readFired(store: KvStore): AsyncIterable<readonly WindowResult[]> {
  for (const [family, keyBytes] of [
    ['windows', WINDOW_KEY_BYTES],
    ['sessions', SESSION_KEY_BYTES],
  ] as const) {
    const shape = { shape: 'fixed', keyBytes, valueBytes: VALUE_BYTES } as const;
    const scan = await store.scan(family, { from: null, to: null }, shape);
    try {
      const bytes = new Uint8Array(READ_ROWS * (keyBytes + VALUE_BYTES));
      for (let count = await scan.next({ bytes }); count > 0; count = await scan.next({ bytes }))
        yield resultsOf(bytes, count, keyBytes);
    } finally {
      scan.close();
    }
  }
}
