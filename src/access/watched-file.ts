/** File that is read again when it changes. If the new content cannot be read or parsed, the old
 *  content stays in force. */
import { readFileSync, statSync } from 'node:fs';
import { coreError, findMillraceError } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import type { Counter } from '../core/metrics.ts';

export interface WatchedFileOptions<T> {
  readonly path: string;
  /** Flag that names the file, for messages. */
  readonly flag: string;
  readonly bytesMax: number;
  /** @throws bad_file */
  readonly parse: (text: string, where: string) => T;
  readonly onChange?: () => void;
  readonly log: Logger;
  /** Counter with the labels file (the flag) and outcome. */
  readonly reloads: Counter;
}

export class WatchedFile<T> {
  private readonly options: WatchedFileOptions<T>;
  private seen: string;
  private value: T;

  /** @throws bad_file */
  constructor(options: WatchedFileOptions<T>) {
    this.options = options;
    // Taken before the text is read, so the next check sees a change in between.
    this.seen = this.stamp();
    this.value = this.read();
    // A counter that begins with its first failure has no increase that an alert could see.
    options.reloads.series(options.flag, 'failed');
  }

  get current(): T {
    return this.value;
  }

  /** Reads the file again if it changed.
   *  @param always reads it even if it did not change */
  check(always = false): void {
    const { path, flag, log, reloads } = this.options;
    let stamp = '';
    try {
      stamp = this.stamp();
      if (!always && stamp === this.seen) return;
      this.value = this.read();
      this.seen = stamp;
    } catch (thrown) {
      // Logged once for each state of the file, not at each check.
      if (stamp === this.seen && !always) return;
      this.seen = stamp;
      reloads.add(1, reloads.series(flag, 'failed'));
      const error = findMillraceError(thrown)?.toLine() ?? String(thrown);
      log.error({ file: path, error }, `-${flag} was not reloaded; the previous content stays in force`);
      return;
    }
    reloads.add(1, reloads.series(flag, 'done'));
    log.info({ file: path }, `-${flag} reloaded`);
    this.options.onChange?.();
  }

  private stamp(): string {
    try {
      const { mtimeMs, size, ino } = statSync(this.options.path);
      return `${mtimeMs} ${size} ${ino}`;
    } catch (cause) {
      throw this.unreadable(cause);
    }
  }

  private read(): T {
    const { path, bytesMax, parse, flag } = this.options;
    let bytes: Buffer;
    try {
      const { size } = statSync(path);
      if (size > bytesMax) throw new Error(`${size} bytes, over the limit of ${bytesMax}`);
      bytes = readFileSync(path);
    } catch (cause) {
      throw this.unreadable(cause);
    }
    let text: string;
    try {
      text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    } catch (cause) {
      throw coreError('bad_file', `${path} is not UTF-8 text`, { next: `give -${flag}=FILE`, cause });
    }
    return parse(text, path);
  }

  private unreadable(cause: unknown): Error {
    const { path, flag } = this.options;
    const why = (cause as NodeJS.ErrnoException).code ?? (cause as Error).message;
    return coreError('bad_file', `${path} cannot be read (${why})`, { next: `give -${flag}=FILE`, cause });
  }
}
