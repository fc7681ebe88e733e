/** Fired windows for clients that follow them: a log of the newest durable rows in memory, with a
 *  reader for each client.
 *
 *  The log is bounded, and so is what a reader may still have to read: rows that leave the log
 *  before a reader has read them are lost to it, and the reader says so. Nothing is kept before
 *  the first reader. Positions count rows that became durable while the log was followed. */
import { RowForm } from '../../core/layout/row-form.ts';
import { engineError } from '../errors.ts';
import type { WindowResult } from '../window/accumulator.ts';
import type { FiredPage } from '../window/firing.ts';
import { ResultRows } from './sink/rows.ts';

/** Most bytes of rows in the log, besides their keys: 131,072 rows without cells. */
export const FEED_BYTES_MAX = 8 * 1024 * 1024;
/** Most readers at a time. */
export const FEED_READERS_MAX = 64;

interface LoggedPage {
  /** Position of the first row. */
  readonly first: number;
  readonly rows: ResultRows;
}

export class FiredFeed {
  private pages: LoggedPage[] = [];
  private bytes = 0;
  /** Position of the next row. */
  private end = 0;
  private isFollowed = false;
  private readonly readers = new Set<FeedReader>();

  /** Adds rows that are durable in every sink. Borrows the page. */
  publish({ bounds, form, rows, rowCount, keys }: FiredPage): void {
    if (!this.isFollowed || rowCount === 0) return;
    const copy = rows.slice(0, rowCount * (form ?? RowForm.HEADS).bytes);
    this.pages.push({ first: this.end, rows: new ResultRows({ bounds, form, rows: copy, rowCount, keys }) });
    this.end += rowCount;
    this.bytes += copy.length;
    while (this.bytes > FEED_BYTES_MAX && this.pages.length > 1) {
      const [oldest] = this.pages.splice(0, 1);
      this.bytes -= oldest === undefined ? 0 : oldest.rows.rowCount * oldest.rows.rowWords * 4;
    }
    for (const reader of this.readers) reader.wake();
  }

  /** True if the log has every row from a position on. */
  has(position: number): boolean {
    return this.read(position, 0) !== undefined;
  }

  /** @throws too_many_streams if the feed has all the readers that it may have */
  demandRoom(): void {
    if (this.readers.size >= FEED_READERS_MAX)
      throw engineError('too_many_streams', `${FEED_READERS_MAX} clients follow the fired windows already`, {
        next: 'close a stream, or try again later',
      });
  }

  /** Opens a reader.
   *  @param from position that it resumes at; absent: rows that are published from now on
   *  @param wake called when rows were added
   *  @throws too_many_streams */
  open(from: number | undefined, wake: () => void): FeedReader {
    this.demandRoom();
    this.isFollowed = true;
    const reader = new FeedReader(from ?? this.end, {
      wake,
      read: (at, most) => this.read(at, most),
      closed: () => this.readers.delete(reader),
    });
    this.readers.add(reader);
    return reader;
  }

  /** Returns rows from a position on; undefined if the log does not have that position. */
  private read(at: number, most: number): readonly WindowResult[] | undefined {
    if (at === this.end) return [];
    const page = this.pages.find(({ first, rows }) => at >= first && at < first + rows.rowCount);
    if (page === undefined) return undefined;
    const from = at - page.first;
    const count = Math.min(most, page.rows.rowCount - from);
    return Array.from({ length: count }, (_, row) => page.rows.result(from + row));
  }
}

interface ReaderParts {
  readonly wake: () => void;
  readonly read: (at: number, most: number) => readonly WindowResult[] | undefined;
  readonly closed: () => void;
}

export class FeedReader {
  /** Position of the next row. */
  position: number;
  private readonly parts: ReaderParts;

  constructor(position: number, parts: ReaderParts) {
    this.position = position;
    this.parts = parts;
  }

  wake(): void {
    this.parts.wake();
  }

  /** Returns the next rows, none if there are none yet; undefined if the next row has left the
   *  log. */
  next(most: number): readonly WindowResult[] | undefined {
    const rows = this.parts.read(this.position, most);
    this.position += rows?.length ?? 0;
    return rows;
  }

  close(): void {
    this.parts.closed();
  }
}
