/** Rows go to the topic that they name, or to that of a rule, once the broker has it. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import {
  checkRules,
  routingText,
  TopicRouter,
  type TopicRules,
} from '../../../../src/outbox/relay/pipeline/topic-router.ts';
import { turn, until } from '../../../wait.ts';

const NO_FIELDS = { aggregateKey: null, partitionKey: null, headers: null, contentType: null };
const rowOf = (eventType: string, topic?: string) =>
  topic === undefined ? { eventType } : { eventType, record: { ...NO_FIELDS, topic } };

/** Router on a broker that has the topics of `known`. */
function router(rules: TopicRules, known = new Map([['main', 1000]])) {
  let nowMs = 0;
  const asked: string[] = [];
  const metrics = new Metrics();
  const made = new TopicRouter({
    topic: 'main',
    rules,
    ensure: async (topic) => {
      asked.push(topic);
      const bytes = known.get(topic);
      if (bytes === undefined) throw new Error(`the topic ${topic} does not exist`);
      return bytes;
    },
    clock: { monotonicMs: () => nowMs, wallNowMs: () => nowMs },
    log: silentLogger,
    metrics,
  });
  const topicOf = (eventType: string, topic?: string): string | undefined => {
    const place = made.placeOf(rowOf(eventType, topic));
    return place === undefined ? undefined : made.names[place];
  };
  const left = metrics.counter('relay_rows_without_topic_total', '');
  const advance = (ms: number): void => {
    nowMs += ms;
  };
  return { made, asked, known, topicOf, left, advance };
}

describe('rules', () => {
  it('an equal type decides, then the longest beginning, then the topic of the relay', async () => {
    const rules = { 'parcel.*': 'parcels', 'parcel.moved.*': 'moves', 'parcel.moved.v2': 'second' };
    const names = ['main', 'parcels', 'moves', 'second'];
    const { made, topicOf, asked } = router(rules, new Map(names.map((name) => [name, 1000])));
    await made.open();
    expect(asked).toEqual(names);
    expect(topicOf('parcel.sent.v1')).toBe('parcels');
    expect(topicOf('parcel.moved.v1')).toBe('moves');
    expect(topicOf('parcel.moved.v2')).toBe('second');
    expect(topicOf('parcel')).toBe('main');
    expect(topicOf('constructor')).toBe('main');
    expect(topicOf('parcel.moved.v2', 'parcels')).toBe('parcels');
  });

  it('a relay does not start without a topic of its rules', async () => {
    await expect(router({ 'a*': 'missing' }).made.open()).rejects.toThrow('missing');
  });

  it.each([
    ['a type with a star inside', { 'a*b': 'x' }],
    ['an empty type', { '': 'x' }],
    ['a type with a space', { 'a b': 'x' }],
    ['a topic with a slash', { a: 'x/y' }],
    ['an empty topic', { a: '' }],
  ])('a rule of topics is refused, with %s', (_, rules) => {
    expect(() => checkRules(rules)).toThrow('is no rule');
  });

  it('relays agree on their rules by a text, which is the topic alone without rules', () => {
    expect(routingText('main', {})).toBe('main');
    expect(routingText('main', { b: '2', a: '1' })).toBe('main a=1,b=2');
  });
});

describe('topics of rows', () => {
  it('a row waits until the topic that it names exists, and other rows do not', async () => {
    const { made, topicOf, known, asked, left, advance } = router({});
    await made.open();
    expect(topicOf('a', 'new')).toBeUndefined();
    expect(topicOf('a')).toBe('main');
    await turn();
    expect(topicOf('a', 'new')).toBeUndefined();
    expect(asked, 'not asked again immediately').toEqual(['main', 'new']);
    known.set('new', 500);
    advance(2000);
    expect(topicOf('a', 'new')).toBeUndefined();
    await turn();
    expect(topicOf('a', 'new')).toBe('new');
    expect(made.recordBytesMax(1)).toBe(500);
    expect(left.value()).toBe(3);
  });

  it('a name that is no topic is never sent to the broker', async () => {
    const { made, topicOf, asked, advance } = router({});
    await made.open();
    for (let i = 0; i < 3; i++) {
      expect(topicOf('a', '../x')).toBeUndefined();
      advance(5000);
      await turn();
    }
    expect(asked).toEqual(['main']);
  });

  it('rows with names that are no topics leave room for topics', async () => {
    const { made, topicOf, known, advance } = router({});
    await made.open();
    for (let i = 0; i < 3000; i++) topicOf('a', `/${i}`);
    known.set('new', 500);
    advance(120_000);
    await until('the new topic', async () => {
      const topic = topicOf('a', 'new');
      await turn();
      return topic === 'new' || undefined;
    });
  });

  it('the topics of a relay are bounded, and rows of known topics pass beyond the bound', async () => {
    const { made, topicOf, asked } = router({});
    await made.open();
    for (let i = 0; i < 3000; i++) topicOf('a', `t${i}`);
    for (let i = 0; i < 3000; i++) await turn();
    expect(asked.length).toBeLessThanOrEqual(1000);
    expect(topicOf('a')).toBe('main');
  });
});
