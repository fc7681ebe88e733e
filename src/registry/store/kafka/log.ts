/** Kafka store: several instances follow one `_schemas` topic, and one of them writes.
 *
 *  Election. The leader announces itself every second in a side topic. An instance that has read no
 *  announcement for a lease takes over. This is only a guess, because clocks drift and processes
 *  are suspended and resume.
 *
 *  Safety. All instances write with one transactional id. An instance that takes over initializes
 *  the id. From then on the broker refuses every step of every earlier term, a commit in flight
 *  included, and aborts the open transaction of an earlier term. The new leader reads to the end of
 *  the log, which no other instance can move any more. It overwrites the rows of aborted
 *  transactions (ghosts.ts) and announces itself, in one transaction. It accepts writes only after
 *  that commit. So a leader knows every committed record, and no id is assigned twice: of two
 *  instances that both believe that they lead, one cannot commit.
 */
import { type Random, randomUuid, sleep, type Timers, within } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { BrokerDriver, BrokerOptions, BrokerProperties } from '../../../io/kafka/port.ts';
import { registryError } from '../../errors.ts';
import type { LogRecord, LogRole, LogSink, OpenReport, RegistryLog } from '../log.ts';
import { rowsAgainstGhosts } from './ghosts.ts';
import { ANNOUNCEMENT_KEY, decodeAnnouncement, encodeAnnouncement, LeaderLease } from './lease.ts';
import { KafkaReads } from './reads.ts';
import { KafkaTail } from './tail.ts';
import { Term, textOf, type WriteOutcome } from './term.ts';
import { findTopic, leaderTopicOf, prepareTopics, type TopicFacts } from './topic.ts';

const SCHEMAS_TOPIC = '_schemas';
/** Lease: a leader that is silent for this long is replaced. */
const LEASE_MS = 4000;
const HEARTBEATS_A_LEASE = 4;
const TICK_MS = 50;
/** Maximum wait of a candidate that failed before it tries again. */
const RETRY_MS = 1000;
const OPEN_MS = 30_000;
/** Maximum wait of `open` for a leader: a cluster without a coordinator for transactions can still
 *  be read.
 */
const FIRST_TERM_MS = 5000;
const ANSWER_MS = 5000;
const READ_MS = 60_000;
const RESIGN_MS = 3000;

export interface KafkaLogOptions {
  readonly driver: BrokerDriver;
  readonly clock: Timers;
  readonly random: Random;
  /** Comma-separated list of `host:port`. */
  readonly brokers: string;
  readonly properties?: BrokerProperties;
  /** Default: `_schemas`. */
  readonly topic?: string;
  /** HTTP address of this instance for other instances. Absent: writes cannot be forwarded to it.
   */
  readonly url?: string;
  readonly log: Logger;
  /** Only reads: creates no topic, is never a candidate, writes nothing. */
  readonly follow?: boolean;
  /** Called for each read that is answered from state that may be stale, because the broker is
   *  silent. Absent: such reads fail.
   */
  readonly staleRead?: () => void;
  readonly leaseMs?: number;
  /** Timeout of `catchUp`, ms. */
  readonly catchUpMs?: number;
  /** Maximum wait of `open` for a leader, ms. */
  readonly firstTermMs?: number;
}

export class KafkaLog implements RegistryLog {
  readonly name: string;
  readonly shared = true;
  private readonly options: KafkaLogOptions;
  private readonly clock: Timers;
  private readonly broker: BrokerOptions;
  private readonly topic: string;
  private readonly leaderTopic: string;
  /** Name with which this instance announces itself. */
  readonly instance: string;
  private readonly leaseMs: number;
  private readonly lease: LeaderLease;
  private readonly reads: KafkaReads | undefined;
  private facts: TopicFacts = { recordBytesMax: 0 };
  private tail: KafkaTail | undefined;
  private term: Term | undefined;
  /** Announcements below this offset are older than our own term. */
  private termFrom = 0n;
  private beaten = 0;
  private warned = false;
  private governing: Promise<void> | undefined;
  private closing = false;
  /** Aborts the wait of the election loop. */
  private rest: AbortController | undefined;
  /** Ends the wait of `open` for a leader. */
  private led = (): void => {};
  private asking: Promise<bigint> | undefined;
  private nextAsking: Promise<bigint> | undefined;

  constructor(options: KafkaLogOptions) {
    this.options = options;
    this.topic = options.topic ?? SCHEMAS_TOPIC;
    this.leaderTopic = leaderTopicOf(this.topic);
    this.name = `kafka:${options.brokers}/${this.topic}`;
    this.leaseMs = options.leaseMs ?? LEASE_MS;
    const { clock, random, log, staleRead } = options;
    this.clock = clock;
    this.instance = randomUuid(random);
    this.lease = new LeaderLease(this.instance, options.url ?? '', this.leaseMs, random);
    if (staleRead !== undefined)
      this.reads = new KafkaReads({ clock, log, catchUp: () => this.catchUp(), staleRead });
    this.broker = {
      brokers: options.brokers,
      clientId: `millrace-registry-${this.instance.slice(0, 8)}`,
      ...(options.properties === undefined ? {} : { properties: options.properties }),
    };
  }

  /** Opens the log and settles when an instance leads: this one where no other does. After
   *  `firstTermMs` it settles without a leader, and the election continues. @throws store_unfit,
   *  unreachable
   */
  async open(sink: LogSink): Promise<OpenReport> {
    const { driver, log } = this.options;
    const admin = await driver.admin(this.broker);
    try {
      this.facts = await (this.options.follow === true ? findTopic : prepareTopics)(
        admin,
        this.topic,
        log,
        this.clock,
      );
    } finally {
      await admin.close();
    }
    const tail = new KafkaTail({
      driver,
      clock: this.clock,
      broker: this.broker,
      topic: this.topic,
      leaderTopic: this.options.follow === true ? undefined : this.leaderTopic,
      log,
      apply: (records) => sink.apply(records),
      announced: (value, offset, timestampMs) => this.announced(value, offset, timestampMs),
      failed: () => this.term?.end('the log cannot be applied'),
    });
    this.tail = tail;
    await tail.open(OPEN_MS);
    const { records } = tail;
    if (this.options.follow === true) return { records, tornBytes: 0 };
    const led = new Promise<void>((resolve) => {
      this.led = resolve;
    });
    const isVacant = this.lease.vacant(this.clock.monotonicMs());
    if (!isVacant) this.led();
    const first = isVacant ? this.attempt() : Promise.resolve(false);
    this.governing = first.then(() => {
      this.lease.started();
      return this.govern();
    });
    const firstTermMs = this.options.firstTermMs ?? FIRST_TERM_MS;
    await within(this.clock, firstTermMs, led);
    return { records, tornBytes: 0 };
  }

  get recordBytesMax(): number {
    return this.facts.recordBytesMax;
  }

  async append(records: readonly LogRecord[]): Promise<void> {
    const { term } = this;
    if (term === undefined || term.ended !== undefined) throw this.notLeader('another instance writes');
    for (const { key, value } of records) {
      const bytes = key.length + (value?.length ?? 0);
      if (bytes <= this.facts.recordBytesMax) continue;
      throw registryError(
        'store_failed',
        `a record of ${bytes} bytes is larger than topic ${this.topic} accepts`,
        {
          next: `raise max.message.bytes of the topic above ${this.facts.recordBytesMax}, and restart the registry`,
        },
      );
    }
    const written = await term.write(records);
    if (written.outcome !== 'kept' || term.ended !== undefined) this.stepDown(term);
    if (written.outcome === 'kept') return;
    if (written.outcome === 'open') {
      throw registryError('store_unknown', `the outcome of the write is unknown: ${written.why}`, {
        next: 'read it before writing it again',
      });
    }
    if (written.fenced) throw this.notLeader(written.why);
    throw registryError('store_failed', `the write was not kept: ${written.why}`, {
      next: 'check that the broker runs, then try again',
    });
  }

  async catchUp(): Promise<void> {
    const deadline = this.clock.monotonicMs() + (this.options.catchUpMs ?? ANSWER_MS);
    const end = await this.ask();
    await this.reading().reach('schemas', end, Math.max(1, deadline - this.clock.monotonicMs()));
  }

  async catchUpToRead(): Promise<void> {
    await (this.reads?.ready() ?? this.catchUp());
  }

  /** True when reads are answered from state that may be stale. */
  get stale(): boolean {
    return this.reads?.stale ?? false;
  }

  role(): LogRole {
    if (this.term !== undefined && this.term.ended === undefined) return { leader: true };
    return { leader: false, url: undefined, ...this.lease.leader(this.clock.monotonicMs()) };
  }

  async close(): Promise<void> {
    if (this.closing) return;
    this.closing = true;
    this.reads?.close();
    this.led();
    this.rest?.abort();
    if (this.governing !== undefined) await within(this.clock, RESIGN_MS, this.governing);
    const { term } = this;
    if (term !== undefined) {
      if (term.ended === undefined) {
        await within(this.clock, RESIGN_MS, this.announce(term, true));
      }
      this.term = undefined;
      await term.close().catch(() => {});
    }
    await this.tail?.close();
  }

  private reading(): KafkaTail {
    if (this.tail === undefined) throw registryError('starting', 'the log is not open yet');
    return this.tail;
  }

  /** Reads the end of the log, with one query in flight; calls that arrive meanwhile share the next
   *  query.
   */
  private ask(): Promise<bigint> {
    if (this.nextAsking !== undefined) return this.nextAsking;
    const before = this.asking ?? Promise.resolve(0n);
    const mine: Promise<bigint> = before
      .catch(() => 0n)
      .then(() => {
        this.nextAsking = undefined;
        this.asking = mine;
        return this.reading().end('schemas', this.options.catchUpMs ?? ANSWER_MS);
      })
      .finally(() => {
        if (this.asking === mine) this.asking = undefined;
      });
    this.nextAsking = mine;
    return mine;
  }

  private announced(value: Uint8Array | null, offset: bigint, timestampMs: number): void {
    const announcement = decodeAnnouncement(value);
    if (announcement === undefined) return;
    this.lease.note(
      { ...announcement, offset },
      this.clock.monotonicMs(),
      this.clock.wallNowMs() - timestampMs,
    );
    if (this.lease.clashes && !this.warned) {
      this.warned = true;
      this.options.log.warn(
        { url: announcement.url },
        'another instance announces the address of this one; give each instance an address of its own, or writes are not forwarded',
      );
    }
    if (!this.lease.vacant(this.clock.monotonicMs())) this.led();
    // Another instance committed this after our own term began, so our term is over, and the broker
    // fences it.
    if (this.term !== undefined && announcement.instance !== this.instance && offset > this.termFrom) {
      this.term.end('another instance took over');
    }
  }

  private async govern(): Promise<void> {
    while (!this.closing) {
      const before = this.clock.monotonicMs();
      await this.wait(TICK_MS);
      if (this.closing) return;
      const now = this.clock.monotonicMs();
      const late = now - before - TICK_MS;
      if (late > this.leaseMs / HEARTBEATS_A_LEASE) this.lease.stalled(late);
      const { term } = this;
      if (term === undefined) {
        if (this.lease.vacant(now) && !(await this.attempt()))
          await this.wait(this.options.random.fraction() * RETRY_MS);
      } else if (term.ended !== undefined) this.stepDown(term);
      else if (now - this.beaten >= this.leaseMs / HEARTBEATS_A_LEASE) {
        this.beaten = now;
        await this.announce(term, false);
      }
    }
  }

  private async attempt(): Promise<boolean> {
    try {
      return await this.campaign();
    } catch (thrown) {
      const why = findMillraceError(thrown)?.toLine() ?? String(thrown);
      if (!this.closing)
        this.options.log.warn({ topic: this.topic, why }, 'this instance could not take over');
      return false;
    }
  }

  private wait(ms: number): Promise<void> {
    this.rest = new AbortController();
    return sleep(this.clock, ms, this.rest.signal);
  }

  /** Tries to take over the topic. @returns whether this instance leads now */
  private async campaign(): Promise<boolean> {
    const tail = this.reading();
    const { driver, log } = this.options;
    const started = this.clock.monotonicMs();
    // The silence may be our own after a time without a broker, so read the announcements again.
    await tail.reach('leaders', await tail.end('leaders', ANSWER_MS), ANSWER_MS);
    if (!this.lease.vacant(this.clock.monotonicMs())) return false;
    const term = await Term.begin({
      driver,
      broker: this.broker,
      topic: this.topic,
      leaderTopic: this.leaderTopic,
      tail,
      recordBytesMax: this.facts.recordBytesMax,
    });
    if (!(term instanceof Term)) {
      if (term.kind === 'fenced') this.lease.fenced(this.clock.monotonicMs());
      log.warn({ topic: this.topic, why: textOf(term.event) }, 'could not take over the topic');
      return false;
    }
    try {
      this.termFrom = await tail.end('leaders', ANSWER_MS);
      await tail.reach('leaders', this.termFrom, ANSWER_MS);
      await tail.reach('schemas', await tail.end('schemas', ANSWER_MS), READ_MS);
      const clean = this.lease.current?.clean ?? 0n;
      const { rows } = await rowsAgainstGhosts({
        driver,
        broker: this.broker,
        topic: this.topic,
        clock: this.clock,
        clean,
      });
      const written = await term.write(rows, this.announcement(false));
      if (written.outcome !== 'kept') {
        term.end(written.why);
        if (term.fenced) this.lease.fenced(this.clock.monotonicMs());
        log.info({ topic: this.topic, why: written.why }, 'another instance was faster to take over');
        return false;
      }
      this.term = term;
      this.beaten = this.clock.monotonicMs();
      this.led();
      log.info(
        { topic: this.topic, ghosts: rows.length, ms: Math.round(this.clock.monotonicMs() - started) },
        'this instance leads: it accepts the writes of the topic',
      );
      return true;
    } catch (thrown) {
      term.end(String(thrown));
      throw thrown;
    }
  }

  private announcement(resigned: boolean): LogRecord {
    const announcement = {
      instance: this.instance,
      url: this.options.url ?? '',
      clean: this.reading().applied,
      resigned,
    };
    return { key: ANNOUNCEMENT_KEY, value: encodeAnnouncement(announcement) };
  }

  private async announce(term: Term, resigned: boolean): Promise<WriteOutcome> {
    const written = await term.write([], this.announcement(resigned));
    if (written.outcome !== 'kept') {
      term.end(written.why);
      this.stepDown(term);
    }
    return written;
  }

  private stepDown(term: Term): void {
    if (this.term !== term) return;
    this.term = undefined;
    if (term.fenced) this.lease.fenced(this.clock.monotonicMs());
    if (!this.closing) {
      this.options.log.warn(
        { topic: this.topic, why: term.ended ?? 'unknown' },
        'this instance leads no longer',
      );
    }
  }

  private notLeader(why: string) {
    return registryError('not_leader', `this instance may not write: ${why}`, {
      next: 'write to the leader; another instance forwards to it',
    });
  }
}
