/** Single writer of the log. Requests queue; a batch of them is decided on a draft, made durable by
 *  one append (group commit), then answered.
 *
 *  Invariants:
 *  1. A request sees every decision before it.
 *  2. A decision is visible only inside its batch until it is durable. A shared log shows it to
 *     reads as soon as readers of other processes can see it, before it is answered.
 *  3. A failed append fails exactly the requests of its batch. Refusals fail too, because a refusal
 *     may rest on a lost decision.
 *  4. After an append with unknown outcome nothing is decided until the log has been read to its
 *     end.
 *  5. A batch that appends nothing is answered after a shared log was read to its end, because no
 *     broker has confirmed that this process still leads.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Clock, sleep, type Timers } from '../../core/clock.ts';
import { findMillraceError, invariant } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { isLevel } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import type { LogRecord, RegistryLog } from './log.ts';
import type { BurnedEntry, State, VersionEntry } from './state/model.ts';
import { contextOf } from './state/names.ts';
import { encodeRecord, type StoreRecord } from './state/records.ts';

/** Maximum requests and bytes of one append. */
const BATCH_REQUESTS_MAX = 512;
const BATCH_BYTES_MAX = 8 << 20;
/** Time of deciding after which reads get a turn. */
const SLICE_MS = 4;
const CATCH_UP_RETRY_MS = 250;

/** Maximum tombstones of one content that a deletion replaces by its own. */
const SAME_TOMBSTONES_MAX = 16;

/** Number of unread records that get a line of their own, and of key characters in a line. */
const UNREAD_LINES_MAX = 20;
const KEY_CHARS_MAX = 200;
/** Minimum time between two lines about consecutive failed writes. */
const FAILURE_LINE_MS = 10_000;

interface DraftOptions {
  /** Time of the records, ms since 1970. */
  readonly ts: number;
  /** Maximum bytes of a record, key and value. */
  readonly recordBytesMax: number;
}

/** Change that is decided but not yet durable: its records, and the state that results from them.
 */
export class Draft {
  readonly state: State;
  readonly records: LogRecord[] = [];
  private readonly options: DraftOptions;
  private readonly parent: Draft | undefined;

  constructor(base: State, options: DraftOptions, parent?: Draft) {
    this.state = base.fork();
    this.options = options;
    this.parent = parent;
  }

  /** @param ts time of the record, ms since 1970; default: the time of this draft
   *  @throws schema_too_large, store_failed for a record that the log does not accept, so that only
   *    this request fails and not every request of the append
   */
  put(record: StoreRecord, ts = this.options.ts): void {
    const encoded = encodeRecord(record, ts);
    this.checkSize(record, encoded);
    this.records.push(encoded);
    // Also removes every other spelling of the key, whose value would otherwise survive log
    // compaction.
    if (encoded.value === null)
      for (const key of this.state.aliases(record))
        this.records.push({ key: Buffer.from(key, 'utf8'), value: null, ts: this.options.ts });
    this.state.apply(record, ts);
  }

  private checkSize(record: StoreRecord, { key, value }: LogRecord): void {
    const { recordBytesMax } = this.options;
    const bytes = key.length + (value?.length ?? 0);
    if (bytes <= recordBytesMax) return;
    // A deletion writes a text again that the log once accepted; the client cannot make it smaller.
    const isSent = record.kind === 'config' || (record.kind === 'schema' && record.value?.deleted === false);
    throw registryError(
      isSent ? 'schema_too_large' : 'store_failed',
      `the request needs a record of ${bytes} bytes, and the topic of the store accepts ${recordBytesMax}; ${isSent ? 'send less, or ' : ''}raise max.message.bytes of the topic and restart the registry`,
    );
  }

  /** Writes the facts that outlive versions which the caller is about to delete for good, in
   *  records that other registries skip: Protobuf field numbers and the greatest id.
   *
   *  A content has one tombstone, at the place of its latest deletion: of equal versions only the
   *  latest decides which field had a number last.
   */
  putTombstones(subject: string, versions: readonly VersionEntry[]): void {
    const { state } = this;
    const context = contextOf(subject);
    const left = state.versions(subject).length - versions.length;
    for (const [i, { stored }] of versions.entries()) {
      const { id, version, content } = stored;
      if (id === state.maxId(context)) this.put({ kind: 'maxId', context, value: id });
      if (content.format !== 'PROTOBUF') continue;
      const { format, text, references } = content;
      const same = state.burnedWith(subject, { format, text, references });
      // A log of an earlier release may have thousands; a deletion drops some of them.
      for (const one of same.slice(-SAME_TOMBSTONES_MAX)) this.dropTombstone(subject, one);
      const seq = (state.burned(subject).at(-1)?.seq ?? 0) + 1;
      const last = left === 0 && i === versions.length - 1;
      this.put({ kind: 'burned', subject, seq, value: { version, format, text, references, last } });
    }
  }

  /** Removes a tombstone. If it ends a life of the subject, the tombstone before it in that life
   *  becomes the end.
   */
  private dropTombstone(subject: string, { seq, last }: BurnedEntry): void {
    const before = this.state.burned(subject).findLast((one) => one.seq < seq);
    if (last && before !== undefined && !before.last) {
      const { version, text } = before;
      const { format, text: plain, references } = text.content;
      const value = { version, format, text: plain, references, last: true };
      this.put({ kind: 'burned', subject, seq: before.seq, value });
    }
    this.put({ kind: 'burned', subject, seq, value: null });
  }

  /** Draft of one request in a batch. It sees the earlier decisions of the batch and cannot undo
   *  them.
   */
  fork(): Draft {
    return new Draft(this.state, this.options, this);
  }

  /** Applies the changes to the state that this draft began with, and adds the records to those of
   *  the draft that it was forked from.
   */
  merge(): void {
    this.state.merge();
    this.parent?.records.push(...this.records);
  }
}

/** Log lines and counters about the content of a log and about failed writes, with limited log
 *  volume.
 */
export class Notices {
  private readonly store: string;
  private readonly logger: Logger;
  private readonly clock: Clock;
  private readonly levels = new Set<string>();
  private records = 0;
  private lineAt = Number.NEGATIVE_INFINITY;
  private unsaid = 0;
  /** Number of records that have no effect here. */
  unread = 0;
  /** Number of failed appends, and whether the last append failed. */
  failures = 0;
  failing = false;

  constructor(store: string, logger: Logger, clock: Clock) {
    this.store = store;
    this.logger = logger;
    this.clock = clock;
  }

  /** Call once for each record, so that a line can name the record's position in the log. */
  count(): void {
    this.records++;
  }

  unreadRecord({ key }: LogRecord, why: string): void {
    if (++this.unread > UNREAD_LINES_MAX) return;
    const text = Buffer.from(key.subarray(0, 4 * KEY_CHARS_MAX))
      .toString('utf8')
      .slice(0, KEY_CHARS_MAX);
    const last = this.unread === UNREAD_LINES_MAX ? '; further ones are only counted' : '';
    this.logger.warn(
      { store: this.store, record: this.records, key: text, why },
      `a record of the log is kept and has no effect here${last}`,
    );
  }

  /** Reports, once, a compatibility level of another registry that is unknown here and therefore
   *  ignored.
   */
  record(record: StoreRecord): void {
    if (record.kind !== 'config') return;
    const level = record.value?.compatibilityLevel;
    if (level === undefined || isLevel(level) || this.levels.has(level)) return;
    if (this.levels.size < UNREAD_LINES_MAX) this.levels.add(level);
    else return;
    this.logger.warn(
      { store: this.store, subject: record.subject, compatibilityLevel: level.slice(0, KEY_CHARS_MAX) },
      'a compatibility level of the log is unknown and ignored; the inherited level is in force',
    );
  }

  appended(): void {
    if (!this.failing) return;
    this.failing = false;
    this.logger.info({ store: this.store, failures: this.failures }, 'writes succeed again');
  }

  appendFailed(thrown: unknown): void {
    this.failures++;
    this.unsaid++;
    const now = this.clock.monotonicMs();
    if (this.failing && now - this.lineAt < FAILURE_LINE_MS) return;
    this.failing = true;
    this.lineAt = now;
    const cause = thrown instanceof Error ? thrown.cause : undefined;
    this.logger.warn(
      {
        store: this.store,
        error: String(thrown),
        ...(cause === undefined ? {} : { cause: String(cause) }),
        failures: this.unsaid,
      },
      'a write failed; its requests were refused',
    );
    this.unsaid = 0;
  }
}

interface Request {
  readonly decide: (draft: Draft) => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (reason: unknown) => void;
}

type Outcome = { readonly value: unknown } | { readonly error: unknown };

/** Decision on a batch of requests. */
interface Decision {
  /** `Writer.applied` of the state that it rests on. */
  readonly applied: number;
  readonly draft: Draft;
  readonly requests: readonly Request[];
  readonly outcomes: readonly Outcome[];
}

export interface WriterOptions {
  readonly log: RegistryLog;
  readonly logger: Logger;
  readonly clock: Timers;
  readonly state: State;
  readonly notices: Notices;
}

export class Writer {
  private readonly log: RegistryLog;
  private readonly logger: Logger;
  private readonly clock: Timers;
  private readonly state: State;
  private readonly notices: Notices;
  private queue: Request[] = [];
  private running: Promise<void> | undefined;
  private closed = false;
  /** Number of batches that the log gave to the state; only `noteApplied` changes it. A decision
   *  from before the latest is stale.
   */
  applied = 0;

  constructor(options: WriterOptions) {
    this.log = options.log;
    this.logger = options.logger;
    this.clock = options.clock;
    this.state = options.state;
    this.notices = options.notices;
  }

  /** Queues a write. `decide` is synchronous and may run again on another state; it throws to
   *  refuse.
   */
  write<T>(decide: (draft: Draft) => T): Promise<T> {
    if (this.closed) return Promise.reject(registryError('store_failed', 'the registry is closing'));
    return new Promise<T>((resolve, reject) => {
      this.queue.push({ decide, resolve, reject });
      this.running ??= this.run();
    });
  }

  /** Call before the log changes the state. */
  noteApplied(): void {
    this.applied++;
  }

  /** Settles when the state has every record that any process committed before this call.
   *  @throws not_leader when the log does not answer. Nothing was written, so the caller may
   *    forward the request to another instance, which may lead by now
   */
  async catchUp(): Promise<void> {
    if (this.log.shared !== true) return;
    try {
      await this.log.catchUp();
    } catch (thrown) {
      if (findMillraceError(thrown)?.code !== 'store_timeout') throw thrown;
      throw registryError(
        'not_leader',
        `this instance cannot confirm that it is still the leader: ${(thrown as Error).message}`,
        { next: 'check that the broker runs, then try again', cause: thrown },
      );
    }
  }

  /** Settles when all queued requests are answered; further requests are refused. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private async run(): Promise<void> {
    // Waits one turn, because a backend delivers requests one by one: all that have arrived by then
    // share a batch.
    await nextTurn();
    while (this.queue.length > 0) await this.batch();
    this.running = undefined;
  }

  private async batch(): Promise<void> {
    const role = this.log.role();
    if (!role.leader) {
      const error = registryError('not_leader', 'this instance is not the leader', {
        next: 'send the request to the leader',
        details: { url: role.url },
      });
      for (const { reject } of this.queue.splice(0)) reject(error);
      return;
    }
    const decision = await this.decide();
    const { requests, outcomes } = decision;
    invariant(requests.length === outcomes.length, 'each request of a batch has one outcome');
    const isFinal =
      decision.draft.records.length > 0 ? await this.append(decision) : await this.confirm(decision);
    if (!isFinal) return;
    for (const [i, { resolve, reject }] of requests.entries()) {
      const outcome = outcomes[i] as Outcome;
      if ('error' in outcome) reject(outcome.error);
      else resolve(outcome.value as never);
    }
  }

  /** Makes the records of a decision durable. @returns false: its requests were refused */
  private async append({ draft, requests }: Decision): Promise<boolean> {
    try {
      await this.log.append(draft.records);
      this.notices.appended();
      // A shared log has applied them. Again, they could replace a later value of a key.
      if (this.log.shared !== true) draft.merge();
      return true;
    } catch (thrown) {
      // Another leader is not a failure of the store.
      if (findMillraceError(thrown)?.code !== 'not_leader') this.notices.appendFailed(thrown);
      for (const { reject } of requests) reject(thrown);
      if (findMillraceError(thrown)?.code === 'store_unknown') await this.findOut(thrown);
      return false;
    }
  }

  /** Confirms that a decision without records rests on every committed write. @returns false: its
   *  requests were refused, or are queued again because other processes wrote
   */
  private async confirm({ applied, requests }: Decision): Promise<boolean> {
    try {
      await this.catchUp();
    } catch (thrown) {
      for (const { reject } of requests) reject(thrown);
      return false;
    }
    if (applied === this.applied) return true;
    this.queue.unshift(...requests);
    return false;
  }

  private async decide(): Promise<Decision> {
    for (;;) {
      const { applied } = this;
      const draft = new Draft(this.state, {
        ts: Math.floor(this.clock.wallNowMs()),
        recordBytesMax: this.log.recordBytesMax ?? Number.POSITIVE_INFINITY,
      });
      const outcomes: Outcome[] = [];
      let bytes = 0;
      let sliceEnd = this.clock.monotonicMs() + SLICE_MS;
      while (outcomes.length < Math.min(this.queue.length, BATCH_REQUESTS_MAX) && bytes < BATCH_BYTES_MAX) {
        const attempt = draft.fork();
        try {
          const value = (this.queue[outcomes.length] as Request).decide(attempt);
          attempt.merge();
          outcomes.push({ value });
        } catch (error) {
          outcomes.push({ error });
        }
        for (const { key, value } of attempt.records) bytes += key.length + (value?.length ?? 0);
        if (this.clock.monotonicMs() < sliceEnd) continue;
        await nextTurn();
        if (applied !== this.applied) break;
        sliceEnd = this.clock.monotonicMs() + SLICE_MS;
      }
      // The first write into an empty shared topic records that the log is Millrace's own.
      const { state } = draft;
      if (this.log.shared === true && draft.records.length > 0 && !state.foreign)
        if (state.origin() === undefined) draft.put({ kind: 'origin', value: 'PROVEN' });
      if (applied === this.applied)
        return { applied, draft, requests: this.queue.splice(0, outcomes.length), outcomes };
    }
  }

  private async findOut(cause: unknown): Promise<void> {
    this.logger.warn(
      { error: String(cause) },
      'the outcome of a write is unknown; writes wait until the log is read to its end',
    );
    for (;;) {
      try {
        await this.log.catchUp();
        return;
      } catch (thrown) {
        if (this.closed) {
          for (const { reject } of this.queue.splice(0)) reject(cause);
          return;
        }
        this.logger.warn({ error: String(thrown) }, 'the log cannot be read to its end; retrying');
        await sleep(this.clock, CATCH_UP_RETRY_MS);
      }
    }
  }
}
