/** Parquet sink: a folder with one file for each closed window, for analysis.
 *
 *  A file appears whole or not at all: it is written under another name, synced and renamed. Its
 *  name is a function of its windows, so a window that fires again after a crash replaces its own
 *  file and adds no row. Sessions have no common window: those that end in the same minute share a
 *  file, which each of their firings replaces by the union of its rows and the new ones.
 *
 *  Invariants: (1) rows are durable when `finish` of their firing settles; until then the engine
 *  does not record them as fired; (2) rows of a firing that has not ended are held as at most one
 *  row group and bytes that wait for the disk, the rest is in an unfinished file; (3) a repeated
 *  `write` or `finish` adds nothing twice; (4) under a lease, the unfinished files of an owner have
 *  its epoch in their names, no other owner opens them, and only later owners remove them. A name
 *  that owners share is replaced by a rename alone, right after the lease was found to be held. */
import { findMillraceError } from '../../../core/errors.ts';
import { floorTo } from '../../../core/time.ts';
import type { Disk, RandomFile } from '../../../io/disk/port.ts';
import { engineError } from '../../errors.ts';
import { isKeyType, type KeyType, typeText } from '../../keys/type.ts';
import { turn } from '../../turn.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredBounds, FiredPage } from '../../window/firing.ts';
import { type ResultShape, shapeOfKeys } from '../columns.ts';
import { type FiredShape, mayBecome, shapeText } from '../fired/mark.ts';
import type { SinkLease, WindowSink } from '../sink/port.ts';
import { ResultRows } from '../sink/rows.ts';
import { ParquetEncoder, ROW_GROUP_ROWS, readParquet } from './file.ts';

const WRITE_ROWS_MAX = 65_536;
/** Rows that are taken in one turn of the event loop. */
const SLICE_ROWS = 2_048;
/** Encoded bytes of a window that stay in memory; more go to its unfinished file. */
const HELD_BYTES_MAX = 4 * 1024 * 1024;
/** Interval of event time whose sessions share a file. */
const SESSION_FILE_MS = 60_000;
/** Description of the folder. Its name does not match *.parquet. */
const MARK = '_millrace.json';
const FORM = 1;
const UNFINISHED = '.unfinished';
/** Epoch in the name of an unfinished file. */
const OWNER = /\.e(\d{1,15})\.unfinished(?:\.tmp)?$/;
const FILE_NAME = /^(windows|sessions)_-?\d{1,16}_-?\d{1,16}\.parquet$/;

export interface ParquetSinkParts {
  /** Opens the folder: `make` creates it, `refuse` throws not_writable if it is missing. */
  readonly open: (missing: 'make' | 'refuse') => Promise<Disk>;
  /** Folder, for messages. */
  readonly folder: string;
  /** Topic and windows of the job; absent: for reading only. */
  readonly job?: { readonly topic: string; readonly windows: FiredShape };
  /** Absent: no other engine writes the folder. */
  readonly lease?: SinkLease | undefined;
}

interface Mark {
  readonly form: number;
  readonly topic: string;
  readonly windows: string;
  readonly key: KeyType;
  readonly isFixed: boolean;
  /** Absent: count, sum, min and max. */
  readonly aggregates?: string;
}

/** Window whose firing has not ended. */
interface OpenWindow {
  readonly name: string;
  readonly encoder: ParquetEncoder;
  rows: WindowResult[];
  /** Encoded bytes that are not in the unfinished file. */
  unsaved: Uint8Array[];
  unsavedBytes: number;
  file: RandomFile | undefined;
  /** Bytes in the unfinished file. */
  saved: number;
  isEncoded: boolean;
  /** True once the unfinished file is whole, durable and closed. */
  isWhole: boolean;
}

/** Sink of results in Parquet files, one for each closed window. */
export class ParquetSink implements WindowSink {
  readonly name = 'parquet';
  readonly writeRowsMax = WRITE_ROWS_MAX;
  private readonly parts: ParquetSinkParts;
  private shape: ResultShape | undefined;
  private disk: Disk | undefined;
  /** Pages of the last write, whose rows are taken. */
  private taken: readonly FiredPage[] | undefined;
  private readonly windows = new Map<string, OpenWindow>();
  /** Sessions by the start of their file's interval. */
  private readonly sessions = new Map<number, WindowResult[]>();

  constructor(parts: ParquetSinkParts) {
    this.parts = parts;
  }

  get keyType(): KeyType | undefined {
    return this.shape?.isFixed === true ? undefined : this.shape?.parts;
  }

  async bind(_type: KeyType | undefined, shape: ResultShape): Promise<void> {
    this.shape = shape;
    const { disk } = this;
    const found = disk && (await readMark(disk));
    const now = this.markNow();
    if (disk === undefined || found === undefined || now === undefined) return;
    this.demandSame(found, now);
    // Aggregates were added, or it is known now since when they exist.
    if (found.aggregates !== now.aggregates) await saved(() => this.replace(disk, MARK, markBytes(now)));
  }

  /** Creates the folder with its description. */
  async migrate(): Promise<void> {
    const disk = await this.opened('make');
    const mark = this.markNow();
    if (mark === undefined || (await readMark(disk)) !== undefined) return;
    await saved(() => this.replace(disk, MARK, markBytes(mark)));
  }

  async check(): Promise<void> {
    const disk = await this.opened('refuse');
    const found = await readMark(disk);
    if (found === undefined) {
      if (this.shape === undefined && this.parts.job !== undefined) return;
      throw engineError('sink_missing', `${this.parts.folder} is no folder of results: it has no ${MARK}`, {
        next: 'run the engine with -migrate once',
      });
    }
    const now = this.markNow();
    if (now !== undefined) this.demandSame(found, now);
    if (this.parts.job === undefined)
      this.shape = { ...shapeOfKeys(found.key, found.aggregates), isFixed: found.isFixed };
    else await this.removeUnfinished(disk);
  }

  /** Removes the unfinished files that ended runs left. */
  private async removeUnfinished(disk: Disk): Promise<void> {
    const { lease } = this.parts;
    await lease?.held();
    for (const name of await disk.list()) {
      // A pause may end here: files of the next owner must stay.
      const isLater = lease !== undefined && Number(OWNER.exec(name)?.[1] ?? 0) >= lease.epoch;
      if (isUnfinished(name) && !isLater) await disk.remove(name);
    }
  }

  private demandSame(found: Mark, now: Mark): void {
    const changes = [
      ['topic', found.topic, now.topic],
      ['windows', found.windows, this.mayAdd(found) ? found.windows : now.windows],
      ['key', typeText(found.key), typeText(now.key)],
    ].filter(([, was, is]) => was !== is);
    if (changes.length === 0) return;
    const text = changes.map(([what, was, is]) => `the ${what} was ${was}, is ${is}`).join('; ');
    throw engineError('job_changed', `${this.parts.folder} holds the results of another job: ${text}`, {
      next: 'give -sink=parquet:DIR with another folder',
    });
  }

  /** True if the results of the folder lack at most aggregates that were added since. */
  private mayAdd({ windows, aggregates }: Mark): boolean {
    const wanted = this.parts.job?.windows;
    if (wanted === undefined) return false;
    const { aggregates: _, ...grid } = wanted;
    const shape = aggregates === undefined ? grid : { ...grid, aggregates };
    return windows === shapeText(shape) && mayBecome(shape, wanted);
  }

  private markNow(): Mark | undefined {
    const { job } = this.parts;
    if (job === undefined || this.shape === undefined) return undefined;
    const { parts: key, isFixed, aggregate: aggregates } = this.shape;
    const { aggregates: _, ...grid } = job.windows;
    return {
      form: FORM,
      topic: job.topic,
      windows: shapeText(aggregates === undefined ? grid : { ...grid, aggregates }),
      key,
      isFixed,
      ...(aggregates === undefined ? {} : { aggregates }),
    };
  }

  private async opened(missing: 'make' | 'refuse'): Promise<Disk> {
    try {
      this.disk ??= await this.parts.open(missing);
      return this.disk;
    } catch (thrown) {
      const known = findMillraceError(thrown);
      if (known?.code !== 'not_writable') throw thrown;
      throw engineError('sink_missing', `the sink has no folder ${this.parts.folder}: ${known.message}`, {
        next: 'run the engine with -migrate once, and check the owner of the folder',
        cause: thrown,
      });
    }
  }

  async write(pages: readonly FiredPage[]): Promise<void> {
    if (this.taken !== pages) {
      for (const page of pages) await this.take(page);
      this.taken = pages;
    }
    for (const window of this.windows.values())
      if (window.unsavedBytes > HELD_BYTES_MAX) await saved(() => this.save(window));
  }

  private async take(page: FiredPage): Promise<void> {
    const rows = new ResultRows(page);
    const { bounds } = page;
    for (let from = 0; from < rows.rowCount; from += SLICE_ROWS) {
      const to = Math.min(rows.rowCount, from + SLICE_ROWS);
      for (let row = from; row < to; row++) {
        const result = rows.result(row);
        if (bounds.kind === 'window') this.windowOf(bounds).rows.push(result);
        else this.sessionsAt(result).push(result);
      }
      if (bounds.kind === 'window') encodeFull(this.windowOf(bounds), ROW_GROUP_ROWS);
      if (to < rows.rowCount) await turn();
    }
  }

  private windowOf({ start, end }: Extract<FiredBounds, { kind: 'window' }>): OpenWindow {
    const name = `windows_${start}_${end}.parquet`;
    let window = this.windows.get(name);
    if (window === undefined) {
      const encoder = new ParquetEncoder((this.shape as ResultShape).columns);
      const empty = { rows: [], unsaved: [], unsavedBytes: 0, file: undefined, saved: 0 };
      window = { name, encoder, ...empty, isEncoded: false, isWhole: false };
      this.windows.set(name, window);
    }
    return window;
  }

  private sessionsAt({ windowEnd }: WindowResult): WindowResult[] {
    const at = floorTo(windowEnd, SESSION_FILE_MS);
    let rows = this.sessions.get(at);
    if (rows === undefined) {
      rows = [];
      this.sessions.set(at, rows);
    }
    return rows;
  }

  /** Moves encoded bytes into the unfinished file. */
  private async save(window: OpenWindow): Promise<void> {
    const disk = await this.opened('refuse');
    window.file ??= await disk.edit(this.unfinished(window.name));
    const bytes = Buffer.concat(window.unsaved);
    await window.file.write(bytes, window.saved);
    window.saved += bytes.length;
    window.unsaved = [];
    window.unsavedBytes = 0;
  }

  async finish(ended: readonly FiredBounds[]): Promise<void> {
    this.taken = undefined;
    for (const bounds of ended) {
      if (bounds.kind === 'sessions') continue;
      const window = this.windows.get(this.windowName(bounds));
      if (window !== undefined) await saved(() => this.complete(window));
    }
    if (!ended.some(({ kind }) => kind === 'sessions')) return;
    for (const [at, rows] of [...this.sessions]) {
      await saved(() => this.replaceSessions(at, rows));
      this.sessions.delete(at);
    }
  }

  private windowName({ start, end }: Extract<FiredBounds, { kind: 'window' }>): string {
    return `windows_${start}_${end}.parquet`;
  }

  private async complete(window: OpenWindow): Promise<void> {
    const disk = await this.opened('refuse');
    if (!window.isEncoded) {
      encodeFull(window, 1);
      add(window, window.encoder.end());
      window.isEncoded = true;
    }
    if (!window.isWhole) {
      await this.save(window);
      const file = window.file as RandomFile;
      await file.truncate(window.saved);
      await file.sync({ offThread: true });
      window.isWhole = true;
      window.file = undefined;
      await file.close();
    }
    await this.publish(disk, window.name);
    this.windows.delete(window.name);
  }

  private async replaceSessions(at: number, added: readonly WindowResult[]): Promise<void> {
    const disk = await this.opened('refuse');
    const shape = this.shape as ResultShape;
    const name = `sessions_${at}_${at + SESSION_FILE_MS}.parquet`;
    const rows = new Map<string, WindowResult>();
    for await (const page of readParquet(disk, name, shape))
      for (const row of page) rows.set(identityOf(row, shape), row);
    for (const row of added) rows.set(identityOf(row, shape), row);
    const encoder = new ParquetEncoder(shape.columns);
    const sorted = [...rows.values()].sort((a, b) => a.windowEnd - b.windowEnd);
    const chunks: Uint8Array[] = [];
    for (let from = 0; from < sorted.length; from += ROW_GROUP_ROWS) {
      chunks.push(encoder.rowGroup(sorted.slice(from, from + ROW_GROUP_ROWS)));
      await turn();
    }
    await this.replace(disk, name, [...chunks, encoder.end()]);
  }

  /** Name of a file of this owner until it is whole. */
  private unfinished(name: string): string {
    const { lease } = this.parts;
    return `${name}${lease === undefined ? '' : `.e${lease.epoch}`}${UNFINISHED}`;
  }

  /** Replaces a file by the chunks. */
  private async replace(disk: Disk, name: string, chunks: readonly Uint8Array[]): Promise<void> {
    await disk.write(this.unfinished(name), chunks);
    await this.publish(disk, name);
  }

  /** Gives an unfinished file its name. @throws store_fenced */
  private async publish(disk: Disk, name: string): Promise<void> {
    await this.parts.lease?.held();
    await disk.rename(this.unfinished(name), name);
  }

  async *read(): AsyncIterable<readonly WindowResult[]> {
    await this.check();
    const disk = await this.opened('refuse');
    const names = (await disk.list()).filter((name) => FILE_NAME.test(name));
    const startOf = (name: string): number => Number(name.split('_')[1]);
    for (const name of names.sort((a, b) => startOf(a) - startOf(b) || (a < b ? -1 : 1)))
      yield* this.readFile(disk, name);
  }

  private async *readFile(disk: Disk, name: string): AsyncIterable<readonly WindowResult[]> {
    try {
      yield* readParquet(disk, name, this.shape as ResultShape);
    } catch (thrown) {
      throw engineError('sink_foreign', `${this.parts.folder}/${name} is not a file of results`, {
        next: 'give the sink a folder of its own',
        cause: thrown,
      });
    }
  }
}

/** True for an unfinished file of this build or of an earlier one. */
const isUnfinished = (name: string): boolean => /\.unfinished(?:\.tmp)?$|\.parquet\.tmp$/.test(name);

/** Encodes row groups while at least `least` rows wait. */
function encodeFull(window: OpenWindow, least: number): void {
  while (window.rows.length >= least) {
    add(window, window.encoder.rowGroup(window.rows.slice(0, ROW_GROUP_ROWS)));
    window.rows = window.rows.slice(ROW_GROUP_ROWS);
  }
}

function add(window: OpenWindow, bytes: Uint8Array): void {
  window.unsaved.push(bytes);
  window.unsavedBytes += bytes.length;
}

/** Identity of a session among the results. */
const identityOf = (
  { accountId, key, windowStart, windowEnd }: WindowResult,
  { keyType }: ResultShape,
): string =>
  `${keyType === undefined ? accountId : Buffer.from(key as Uint8Array).toString('latin1')} ${windowStart} ${windowEnd}`;

/** Runs a step on the disk; its errors are those of a sink that is unreachable. */
async function saved<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (thrown) {
    const known = findMillraceError(thrown);
    const code = known === undefined ? (thrown as NodeJS.ErrnoException).code : known.code;
    const isDisk = known === undefined ? typeof code === 'string' : code === 'not_writable';
    if (!isDisk) throw thrown;
    throw engineError('sink_failed', `results cannot be written: ${(thrown as Error).message}`, {
      next: 'check the folder, its owner and the free space',
      cause: thrown,
    });
  }
}

const markBytes = (mark: Mark): readonly Uint8Array[] => [Buffer.from(`${JSON.stringify(mark)}\n`)];

/** Undefined: the folder has no description. @throws sink_foreign */
async function readMark(disk: Disk): Promise<Mark | undefined> {
  const bytes = await disk.read(MARK);
  if (bytes === undefined) return undefined;
  try {
    const mark = JSON.parse(Buffer.from(bytes).toString('utf8')) as Partial<Mark> | null;
    const isText = typeof mark?.topic === 'string' && typeof mark.windows === 'string';
    if (mark?.form === FORM && isText && isKeyType(mark.key) && typeof mark.isFixed === 'boolean')
      return mark as Mark;
  } catch {
    // Reported below.
  }
  throw engineError('sink_foreign', `${disk.where}/${MARK} is no description of results`, {
    next: 'use the version that created the folder, or give another one',
  });
}
