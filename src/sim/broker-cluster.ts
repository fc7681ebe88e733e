/** One log broker in memory: topics, committed offsets, groups, and the faults of a seed.
 *
 *  Invariants: (1) a partition's log only grows; (2) a partition of a group has at most one owner among the members that were not
 *  evicted; (3) the same seed, and the same calls in the same order, give the same answers.
 */
import type { Timers } from '../core/clock.ts';
import { coreError, errorRow, errorsOf, type MillraceError } from '../core/errors.ts';
import type { RecordHeader } from '../core/layout/record-batch.ts';
import type { BrokerEvent, TopicPartition } from '../io/broker/port.ts';

/** Chances in [0, 1] per row or call. */
export interface BrokerFaults {
  /** A row is not appended; its report says _MSG_TIMED_OUT. */
  readonly lostRow: number;
  /** A row is appended, but its report says _MSG_TIMED_OUT. */
  readonly lostReport: number;
  /** A consume ends early, however much is there. */
  readonly shortRead: number;
  /** A commit fails with _TRANSPORT. */
  readonly lostCommit: number;
}

export interface SimOptions {
  readonly brokers: string;
  readonly seed: number;
  readonly clock: Timers;
  readonly faults?: Partial<BrokerFaults>;
  /** Largest record, key and value and headers. */
  readonly messageBytesMax?: number;
}

interface StoredRecord {
  readonly timestamp: bigint;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
}

/** One member of a group, as the group sees it. */
export interface Member {
  readonly topics: readonly string[];
  readonly owned: Map<string, TopicPartition>;
  /** A member that does not poll for this long is evicted; infinite without the property `session.timeout.ms`. */
  readonly sessionMs: number;
  /** Monotonic ms of its last poll. */
  polledMs: number;
}

export interface Group {
  readonly committed: Map<string, bigint>;
  readonly members: Member[];
}

export const keyOf = (at: TopicPartition): string => `${at.partition}@${at.topic}`;

const SIM_ERRORS = {
  broker_refused: errorRow('conflict', { exit: 3 }),
  broker_unavailable: errorRow('unavailable'),
  group_fenced: errorRow('fenced'),
  bad_broker_property: errorRow('invalid'),
} as const;
export const simError = errorsOf(SIM_ERRORS);

const EVENTS = {
  _MSG_TIMED_OUT: [-192, 'Local: Message timed out', true],
  _TRANSPORT: [-195, 'Local: Broker transport failure', true],
  _UNKNOWN_PARTITION: [-190, 'Local: Unknown partition', false],
  _APPLICATION: [-143, 'Local: Application generated error', false],
  MSG_SIZE_TOO_LARGE: [10, 'Broker: Message size too large', false],
  MILLRACE_OVERSIZE: [-10_000, 'the record is larger than the arena', false],
} as const;

export function simEvent(
  name: keyof typeof EVENTS,
  place: Partial<TopicPartition> = {},
  message?: string,
): BrokerEvent {
  const [code, text, retriable] = EVENTS[name];
  return { code, name, message: message ?? text, retriable, fatal: false, ...place };
}

const DEFAULT_MESSAGE_BYTES_MAX = 1_000_000;

export class SimCluster {
  readonly options: SimOptions;
  readonly messageBytesMax: number;
  readonly topics = new Map<string, StoredRecord[][]>();
  readonly topicIds = new Map<string, string>();
  lastTopicId = 0;
  readonly configs = new Map<string, ReadonlyMap<string, string>>();
  readonly replicas = new Map<string, number>();
  private readonly groups = new Map<string, Group>();
  private readonly faults: BrokerFaults;
  private state: number;
  private readonly waiting = new Set<() => void>();

  constructor(options: SimOptions) {
    this.options = options;
    this.messageBytesMax = options.messageBytesMax ?? DEFAULT_MESSAGE_BYTES_MAX;
    this.faults = { lostRow: 0, lostReport: 0, shortRead: 0, lostCommit: 0, ...options.faults };
    this.state = options.seed >>> 0;
  }

  /** Whether a fault strikes now. */
  strikes(fault: keyof BrokerFaults): boolean {
    const chance = this.faults[fault];
    return chance > 0 && this.random() < chance;
  }

  /** @throws unreachable where this cluster is not at the address */
  admit(brokers: string): void {
    if (brokers === this.options.brokers) return;
    throw coreError(
      'unreachable',
      `no broker answers at ${brokers}: the simulated one is at ${this.options.brokers}`,
    );
  }

  /** @throws bad_broker_property for a property that the simulation does not know, lest a test rely on it */
  checkProperties(properties: Readonly<Record<string, unknown>> | undefined): void {
    const stranger = Object.keys(properties ?? {}).find((name) => !KNOWN_PROPERTIES.has(name));
    if (stranger !== undefined) {
      throw simError('bad_broker_property', `No such configuration property: "${stranger}"`);
    }
  }

  logOf(at: TopicPartition): StoredRecord[] | undefined {
    return this.topics.get(at.topic)?.[at.partition];
  }

  /** @throws broker_refused */
  demandLog(at: TopicPartition): StoredRecord[] {
    const log = this.logOf(at);
    if (log === undefined) throw unknownPartition(at);
    return log;
  }

  group(name: string): Group {
    let group = this.groups.get(name);
    if (group === undefined) {
      group = { committed: new Map(), members: [] };
      this.groups.set(name, group);
    }
    const now = this.options.clock.monotonicMs();
    const evicted = group.members.filter(({ polledMs, sessionMs }) => now - polledMs > sessionMs);
    for (const member of evicted) group.members.splice(group.members.indexOf(member), 1);
    return group;
  }

  /** Resolves after `ms`, or when something has changed that a consumer may wait for. */
  change(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        this.waiting.delete(done);
        resolve();
      };
      const cancel = this.options.clock.after(ms, done);
      this.waiting.add(done);
    });
  }

  changed(): void {
    for (const done of [...this.waiting]) done();
  }

  /** What each member should own: partitions dealt in turn, those that may stay with their owner first. */
  target(group: Group): Map<Member, Map<string, TopicPartition>> {
    const out = new Map<Member, Map<string, TopicPartition>>(
      group.members.map((member) => [member, new Map()]),
    );
    for (const topic of new Set(group.members.flatMap((member) => member.topics))) {
      const members = group.members.filter((member) => member.topics.includes(topic));
      const partitions = (this.topics.get(topic) ?? []).map((_, partition) => ({ topic, partition }));
      const most = Math.ceil(partitions.length / members.length);
      const share = (member: Member): number =>
        [...(out.get(member) as Map<string, TopicPartition>).values()].filter((one) => one.topic === topic)
          .length;
      const homeless: TopicPartition[] = [];
      for (const at of partitions) {
        const owner = members.find((member) => member.owned.has(keyOf(at)));
        if (owner !== undefined && share(owner) < most) out.get(owner)?.set(keyOf(at), at);
        else homeless.push(at);
      }
      for (const at of homeless) {
        const poorest = members.reduce((least, member) => (share(member) < share(least) ? member : least));
        out.get(poorest)?.set(keyOf(at), at);
      }
    }
    return out;
  }

  /** Whether a member has still to give back what is another's by now. */
  isRebalancing(group: Group): boolean {
    for (const [member, target] of this.target(group))
      for (const key of member.owned.keys()) if (!target.has(key)) return true;
    return false;
  }

  /** Mulberry32: a published 32-bit generator. */
  private random(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let word = this.state;
    word = Math.imul(word ^ (word >>> 15), word | 1);
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61);
    return ((word ^ (word >>> 14)) >>> 0) / 2 ** 32;
  }
}

export const unknownPartition = (at: TopicPartition): MillraceError =>
  simError('broker_refused', `${at.topic}/${at.partition}: unknown partition`);

/** Properties that change nothing here, or that the simulation honours. */
const KNOWN_PROPERTIES = new Set([
  'queue.buffering.max.messages',
  'message.max.bytes',
  'linger.ms',
  'partition.assignment.strategy',
  'heartbeat.interval.ms',
  'session.timeout.ms',
  // How long a row may wait for its topic: none does, for it is known at once which are there.
  'topic.metadata.propagation.max.ms',
  'message.timeout.ms',
]);
