/** Router of rows to topics: the topic that a row names, else that of the first rule for its event
 *  type, else the topic of the relay. A topic is used only after the broker confirmed that it
 *  exists: a row for a missing topic would end the producer, and with it all rows in flight.
 */
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Metrics } from '../../../core/metrics.ts';
import { isTopicName } from '../../append/event.ts';
import { outboxError } from '../../errors.ts';
import type { OutboxRow } from '../store.ts';

/** Topics by event type. A key that ends with `*` matches every type with that beginning; the
 *  longest match decides, an equal type before all others. */
export type TopicRules = Readonly<Record<string, string>>;

/** Limit of the topics of one relay. Rows of further topics stay pending. */
const TOPICS_MAX = 1000;
/** Limit of the rules. */
const RULES_MAX = 1000;
/** Limit of the cached choices by event type. */
const TYPES_MAX = 1000;
/** Time after which a missing topic is looked for, or created, again. */
const AGAIN_MS = 2000;
/** Time between two log lines about a name that cannot be a topic. */
const INVALID_AGAIN_MS = 60_000;

export interface TopicRouterOptions {
  /** Topic of rows without a topic and without a rule. */
  readonly topic: string;
  readonly rules: TopicRules;
  /** Creates a topic, or checks that it exists. Returns the largest record in bytes. */
  readonly ensure: (topic: string) => Promise<number>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
}

interface Pending {
  isAsked: boolean;
  nextMs: number;
}

/** Checks rules. @throws bad_option */
export function checkRules(rules: TopicRules): TopicRules {
  const entries = Object.entries(rules);
  const next = 'give event types, or their beginning and *, with the names of topics';
  if (entries.length > RULES_MAX)
    throw outboxError('bad_option', `a relay has at most ${RULES_MAX} rules for topics`, { next });
  for (const [type, topic] of entries) {
    const isPattern = /^[\x21-\x7e]{1,200}$/.test(type) && !type.slice(0, -1).includes('*');
    if (isPattern && typeof topic === 'string' && isTopicName(topic)) continue;
    throw outboxError('bad_option', `the rule ${JSON.stringify(type)}: ${JSON.stringify(topic)} is no rule`, {
      next,
    });
  }
  return rules;
}

/** Text of the topic and the rules, which all relays of an outbox must share. Without rules, it is
 *  the name of the topic. */
export function routingText(topic: string, rules: TopicRules): string {
  const entries = Object.entries(rules).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.length === 0 ? topic : `${topic} ${entries.map(([type, to]) => `${type}=${to}`).join(',')}`;
}

export class TopicRouter {
  /** Topics that exist. The place of a name never changes. */
  readonly names: string[] = [];
  private readonly options: TopicRouterOptions;
  private readonly places = new Map<string, number>();
  /** Largest record of each topic, in bytes. */
  private readonly bytesMax: number[] = [];
  private readonly byType = new Map<string, string>();
  /** Rules with `*`, the longest first. */
  private readonly beginnings: ReadonlyArray<readonly [beginning: string, topic: string]>;
  private readonly pending = new Map<string, Pending>();
  private readonly withoutTopic;
  /** Topics are created or looked for one after another. */
  private turn: Promise<void> = Promise.resolve();

  constructor(options: TopicRouterOptions) {
    this.options = options;
    this.beginnings = Object.entries(options.rules)
      .filter(([type]) => type.endsWith('*'))
      .map(([type, topic]) => [type.slice(0, -1), topic] as const)
      .sort(([a], [b]) => b.length - a.length);
    this.withoutTopic = options.metrics.counter(
      'relay_rows_without_topic_total',
      'Rows left pending because their topic does not exist or could not be created yet.',
    );
  }

  /** Creates or checks the topic of the relay and those of the rules.
   *  @throws unreachable */
  async open(): Promise<void> {
    for (const topic of new Set([this.options.topic, ...Object.values(this.options.rules)]))
      this.add(topic, await this.options.ensure(topic));
  }

  /** Place of the row's topic in `names`; undefined while the topic cannot be used. Then it is
   *  created or looked for, and the row stays pending. */
  placeOf(row: Pick<OutboxRow, 'eventType' | 'record'>): number | undefined {
    const topic = row.record?.topic ?? this.ruled(row.eventType);
    const place = this.places.get(topic);
    if (place !== undefined) return place;
    this.withoutTopic.add();
    this.request(topic);
    return undefined;
  }

  /** Largest record that the topic accepts, in bytes. */
  recordBytesMax(place: number): number {
    return this.bytesMax[place] ?? Number.POSITIVE_INFINITY;
  }

  private ruled(eventType: string): string {
    const known = this.byType.get(eventType);
    if (known !== undefined) return known;
    const { rules, topic } = this.options;
    const exact = Object.hasOwn(rules, eventType) ? rules[eventType] : undefined;
    const found =
      exact ?? this.beginnings.find(([beginning]) => eventType.startsWith(beginning))?.[1] ?? topic;
    if (this.byType.size >= TYPES_MAX) this.byType.clear();
    this.byType.set(eventType, found);
    return found;
  }

  private add(topic: string, recordBytesMax: number): void {
    if (this.places.has(topic)) return;
    this.places.set(topic, this.names.push(topic) - 1);
    this.bytesMax.push(recordBytesMax);
  }

  private request(topic: string): void {
    const { clock, log, ensure } = this.options;
    const nowMs = clock.monotonicMs();
    let pending = this.pending.get(topic);
    if (pending === undefined) {
      if (this.names.length + this.pending.size >= TOPICS_MAX) {
        this.forgetOld(nowMs);
        return;
      }
      pending = { isAsked: false, nextMs: nowMs };
      this.pending.set(topic, pending);
    }
    if (pending.isAsked || nowMs < pending.nextMs) return;
    if (!isTopicName(topic)) {
      pending.nextMs = nowMs + INVALID_AGAIN_MS;
      log.error({ topic: topic.slice(0, 300) }, 'an outbox row names no valid topic; its key is blocked');
      return;
    }
    const asked = pending;
    asked.isAsked = true;
    this.turn = this.turn.then(async () => {
      try {
        this.add(topic, await ensure(topic));
        this.pending.delete(topic);
      } catch (thrown) {
        asked.isAsked = false;
        asked.nextMs = clock.monotonicMs() + AGAIN_MS;
        log.error(
          { topic, error: findMillraceError(thrown)?.message ?? String(thrown) },
          'the topic of an outbox row cannot be used; its rows stay pending',
        );
      }
    });
  }

  /** Makes room for the names of other topics. */
  private forgetOld(nowMs: number): void {
    for (const [topic, { isAsked, nextMs }] of this.pending)
      if (!isAsked && nowMs >= nextMs) this.pending.delete(topic);
  }
}
