/** Requests to registries on one topic, above all requests that change nothing. Each answer was
 *  true of the topic at some moment between its request and the answer, whatever stops or is cut
 *  off. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sleep } from '../../src/core/clock.ts';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type { BrokerDriver } from '../../src/io/kafka/port.ts';
import { KafkaLog } from '../../src/registry/store/kafka/log.ts';
import { Registry } from '../../src/registry/store/registry.ts';
import { simDriverOf } from '../../src/sim/broker.ts';
import { type BrokerFaults, SimCluster } from '../../src/sim/broker-cluster.ts';
import { SimLink } from '../../src/sim/broker-link.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { ProcessClock } from '../../src/sim/process-clock.ts';
import { runs } from '../tier.ts';
import { avro, code } from '../unit/registry/store/store-kit.ts';

const BROKERS = 'simulated:9092';
const TOPIC = '_schemas';
const LEASE_MS = 4000;
const LATENCY_MS = 5;
/** Longest pause between two requests to an instance. */
const PAUSE_MS = 150;

interface Instance {
  readonly clock: ProcessClock;
  readonly link: SimLink;
  readonly log: KafkaLog;
  readonly registry: Registry;
}

class World {
  readonly clock = new VirtualClock();
  readonly cluster: SimCluster;
  readonly random: SeededRandom;
  readonly instances: Instance[] = [];
  /** Queries of the end of the topic. */
  queries = 0;

  constructor(seed = 1, faults: Partial<BrokerFaults> = {}) {
    this.random = new SeededRandom(seed);
    this.cluster = new SimCluster({ brokers: BROKERS, seed, clock: this.clock, faults, slowMs: 1500 });
  }

  async start(): Promise<Instance> {
    const { cluster } = this;
    const clock = new ProcessClock(this.clock);
    const link = new SimLink(cluster, { clock, latencyMs: LATENCY_MS });
    const log = new KafkaLog({
      driver: this.counting(simDriverOf(cluster, link)),
      brokers: BROKERS,
      clock,
      random: new SeededRandom(this.random.fraction() * 2 ** 32),
      url: `http://host-${this.instances.length}:8081`,
      log: silentLogger,
    });
    const registry = await this.clock.run(Registry.open(log, silentLogger, { clock }));
    const instance = { clock, link, log, registry };
    this.instances.push(instance);
    return instance;
  }

  get leader(): Instance | undefined {
    return this.instances.find(({ log }) => log.role().leader);
  }

  private counting(driver: BrokerDriver): BrokerDriver {
    return {
      ...driver,
      consumer: async (options) => {
        const consumer = await driver.consumer(options);
        const ask = consumer.watermarkOffsets.bind(consumer);
        consumer.watermarkOffsets = (at, timeoutMs) => {
          if (at.topic === TOPIC) this.queries++;
          return ask(at, timeoutMs);
        };
        return consumer;
      },
    };
  }
}

const settled = async (work: Promise<unknown>): Promise<void> => {
  await work;
};

interface Change {
  readonly what: string;
  /** Request to the first leader, and later again. */
  readonly ask: (registry: Registry) => Promise<unknown>;
  /** First answer. */
  readonly answer: string;
  /** Acknowledged by the next leader; `ask` now has an effect. */
  readonly meanwhile: (registry: Registry) => Promise<void>;
}

const CHANGES: readonly Change[] = [
  {
    what: 'a setting that was in force',
    ask: (registry) => registry.setConfig('s', { compatibility: 'FULL' }),
    answer: 'done',
    meanwhile: (registry) => settled(registry.setConfig('s', { compatibility: 'NONE' })),
  },
  {
    what: 'a schema that its subject had',
    ask: (registry) => registry.register('s', { text: avro('x') }, {}),
    answer: 'done',
    meanwhile: async (registry) => {
      await registry.deleteSubject('s', false);
      await registry.deleteSubject('s', true);
    },
  },
  {
    what: 'the deletion of a subject that did not exist',
    ask: (registry) => registry.deleteSubject('s', false),
    answer: 'subject_not_found',
    meanwhile: (registry) => settled(registry.register('s', { text: avro('x') }, {})),
  },
];

describe('a leader that was replaced', () => {
  it.each(CHANGES.flatMap((change) => (['stopped', 'cut off'] as const).map((how) => ({ ...change, how }))))(
    'a replaced leader, $how before, does not answer $what',
    async ({ ask, answer, meanwhile, how }) => {
      const world = new World();
      const old = await world.start();
      const next = await world.start();
      for (let i = 0; i < 2; i++) expect(await world.clock.run(code(ask(old.registry)))).toBe(answer);
      if (how === 'stopped') old.clock.stop();
      else old.link.cut();
      await world.clock.until('a successor', () => next.log.role().leader);
      await world.clock.run(meanwhile(next.registry));
      // The replaced leader does not know.
      expect(old.log.role()).toEqual({ leader: true });
      old.clock.continue();
      expect(await world.clock.run(code(ask(old.registry)))).toBe('not_leader');
      expect(await world.clock.run(code(ask(next.registry)))).toBe('done');
    },
  );

  it('requests that change nothing share their queries of the end of the topic', async () => {
    const world = new World();
    const { registry } = await world.start();
    const ask = (): Promise<unknown> => registry.register('s', { text: avro('x') }, {});
    await world.clock.run(ask());
    const before = world.queries;
    await world.clock.run(Promise.all(Array.from({ length: 64 }, ask)));
    expect(world.queries - before).toBeLessThanOrEqual(2);
  });
});

describe('a topic with a small limit of its records', () => {
  it('a record over the limit of the topic fails its own request, and ten others succeed', async () => {
    const world = new World();
    const admin = await simDriverOf(world.cluster).admin({ brokers: BROKERS, clientId: 'test' });
    const config = { 'cleanup.policy': 'compact', 'max.message.bytes': '20000' };
    await admin.createTopics([{ topic: TOPIC, partitions: 1, replicationFactor: 1, config }]);
    const { registry } = await world.start();
    const texts = Array.from({ length: 11 }, (_, i) => (i === 5 ? avro('x'.repeat(20_000)) : avro(`f${i}`)));
    const answers = await world.clock.run(
      Promise.all(texts.map((text, i) => code(registry.register(`s${i}`, { text }, {})))),
    );
    expect(answers).toEqual(texts.map((_, i) => (i === 5 ? 'schema_too_large' : 'done')));
  });
});

interface Version {
  readonly id: number;
  readonly text: string;
  readonly deleted: boolean;
}

/** Settings and versions of the topic up to an offset, read without the code of the registry. */
class Truth {
  readonly levels = new Map<string, unknown>();
  private readonly versions = new Map<string, Map<number, Version>>();

  apply(keyText: string, valueText: string | null): void {
    const key = JSON.parse(keyText) as { keytype: string; subject: string; version: number };
    const value = valueText === null ? null : JSON.parse(valueText);
    const versions = this.of(key.subject);
    if (key.keytype === 'CONFIG') this.levels.set(key.subject, value?.compatibilityLevel);
    else if (key.keytype === 'SCHEMA' && value === null) versions.delete(key.version);
    else if (key.keytype === 'SCHEMA') {
      const { id, schema: text, deleted } = value;
      versions.set(key.version, { id, text, deleted });
    } else if (key.keytype === 'DELETE_SUBJECT' && value !== null) {
      for (const [version, one] of versions)
        if (version <= value.version) versions.set(version, { ...one, deleted: true });
    }
  }

  of(subject: string): Map<number, Version> {
    const known = this.versions.get(subject) ?? new Map<number, Version>();
    this.versions.set(subject, known);
    return known;
  }

  isLive(subject: string): boolean {
    return [...this.of(subject).values()].some(({ deleted }) => !deleted);
  }
}

const AT = { topic: TOPIC, partition: 0 };
const utf8 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

/** Offset below which readers see every record. */
const endOf = ({ cluster }: World): number => Number(cluster.endOf(AT, 'committed'));

/** True if the claim held when the readers of the topic saw its records below some offset from
 *  `from` to `to`. */
function heldWithin(world: World, from: number, to: number, claim: (truth: Truth) => boolean): boolean {
  const log = world.cluster.demandLog(AT);
  const truth = new Truth();
  for (let offset = 0; ; offset++) {
    if (offset >= from && claim(truth)) return true;
    if (offset >= to) return false;
    const record = log[offset];
    if (record === undefined || record.isMark === true || record.key === null) continue;
    if (record.transaction?.state !== 'committed') continue;
    truth.apply(utf8(record.key), record.value === null ? null : utf8(record.value));
  }
}

interface Asked {
  readonly what: string;
  readonly send: (registry: Registry) => Promise<unknown>;
  /** Claim of an answer about the topic; undefined: the answer claims nothing. */
  readonly claim: (answer: unknown) => ((truth: Truth) => boolean) | undefined;
}

const SUBJECTS = ['s', 't'];
const LEVELS = ['FULL', 'NONE'];
const TEXTS = ['x', 'y'].map((name) => avro(name));

/** Requests, most of which find what they ask for. */
const REQUESTS: readonly Asked[] = SUBJECTS.flatMap((subject): Asked[] => [
  ...LEVELS.map(
    (level): Asked => ({
      what: `set ${subject} ${level}`,
      send: (registry) => registry.setConfig(subject, { compatibility: level }),
      claim: (answer) =>
        typeof answer === 'string' ? undefined : (truth) => truth.levels.get(subject) === level,
    }),
  ),
  ...TEXTS.map(
    (text): Asked => ({
      what: `register ${subject} ${text}`,
      send: (registry) => registry.register(subject, { text }, {}).then(({ version }) => version),
      claim: (answer) => {
        if (typeof answer === 'string') return undefined;
        const { version, id } = answer as { version: number; id: number };
        return (truth) => {
          const found = truth.of(subject).get(version);
          return found?.id === id && found.text === text && !found.deleted;
        };
      },
    }),
  ),
  ...[false, true].map(
    (permanent): Asked => ({
      what: `delete ${subject} ${permanent ? 'permanently' : 'softly'}`,
      send: (registry) => registry.deleteSubject(subject, permanent),
      claim: (answer) => {
        if (answer === 'subject_not_found') return (truth) => truth.of(subject).size === 0;
        if (answer === 'subject_soft_deleted')
          return (truth) => truth.of(subject).size > 0 && !truth.isLive(subject);
        if (answer === 'subject_not_soft_deleted') return (truth) => truth.isLive(subject);
        return undefined;
      },
    }),
  ),
]);

const UNWRITTEN = ['not_leader', 'store_failed', 'store_unknown'];

/** Sends one request at a time to an instance while it leads by its own account, and checks each
 *  answer. */
class Client {
  readonly answers: string[] = [];
  isOver = false;
  failure: unknown;

  constructor(world: World, instance: Instance) {
    this.run(world, instance).catch((thrown: unknown) => {
      this.failure = thrown;
    });
  }

  private async run(world: World, { clock, log, registry }: Instance): Promise<void> {
    for (; !this.isOver; await sleep(clock, world.random.fraction() * PAUSE_MS)) {
      if (!log.role().leader) continue;
      const asked = REQUESTS[Math.floor(world.random.fraction() * REQUESTS.length)] as Asked;
      const from = endOf(world);
      const answer = await asked
        .send(registry)
        .catch((thrown: unknown) => findMillraceError(thrown)?.code ?? String(thrown));
      const claim = asked.claim(answer);
      this.answers.push(typeof answer === 'string' ? answer : 'done');
      if (claim !== undefined)
        expect(
          heldWithin(world, from, endOf(world), claim),
          `the answer ${JSON.stringify(answer)} to ${asked.what}`,
        ).toBe(true);
      else if (typeof answer === 'string') expect(UNWRITTEN).toContain(answer);
    }
  }
}

const step = fc.record({
  do: fc.constantFrom('pass', 'stop', 'cut'),
  ms: fc.integer({ min: 1, max: 3 * LEASE_MS }),
});

describe('answers of registries on one topic', () => {
  it('answers were true while they were asked, whichever leaders stop or are cut off', async () => {
    const met = new Map<string, number>();
    const property = fc.asyncProperty(
      fc.nat(),
      fc.array(step, { minLength: 4, maxLength: 12 }),
      async (seed, steps) => {
        const world = new World(seed, { lostReply: 0.02, slow: 0.2, shortRead: 0.2 });
        for (let i = 0; i < 3; i++) await world.start();
        const clients = world.instances.map((instance) => new Client(world, instance));
        for (const { do: what, ms } of steps) {
          const { leader } = world;
          if (what === 'stop') leader?.clock.stop();
          if (what === 'cut') leader?.link.cut();
          await world.clock.advance(ms);
          leader?.clock.continue();
          leader?.link.mend();
        }
        for (const client of clients) client.isOver = true;
        await world.clock.advance(5 * LEASE_MS);
        for (const { failure, answers } of clients) {
          if (failure !== undefined) throw failure;
          for (const answer of answers) met.set(answer, (met.get(answer) ?? 0) + 1);
        }
      },
    );
    await fc.assert(property, { numRuns: runs(10), endOnFailure: true });
    for (const answer of ['done', 'subject_not_found', 'subject_soft_deleted'])
      expect(met.get(answer), answer).toBeGreaterThan(0);
  });
});
