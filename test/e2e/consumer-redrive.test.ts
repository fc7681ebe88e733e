/** consumer -redrive on a real broker: SIGKILL in the middle of a redrive, counted by a reader of
 *  committed records; every output, and every error. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { append, createTopics } from '../../src/demo/contracts/topic.ts';
import { guidOf } from '../../src/formats/guid.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { RECORD_ID_HEADER } from '../../src/registry/quarantine/record.ts';
import { idHeaderOf, VALUE_ID_HEADER } from '../../src/serde/frame.ts';
import { runConsumer, startConsumer } from '../fixtures/consumer.ts';
import { pageOf } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { createTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import {
  appendBinary,
  committed,
  type Filled,
  type Found,
  fill,
  frame,
  payloadOf,
  register,
} from './redrive-kit.ts';

const own = launcher();
const stack = await sharedStack();
const topicOf = (part: string): string => `redrive-${own.suffix}-${part}`;
let registry = '';
let servers: readonly string[] = [];

beforeAll(async () => {
  registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  servers = [`-brokers=${stack.brokers}`, `-registry=${registry}`];
});

const flagsOf = (topic: string): readonly string[] => [
  ...servers,
  `-topic=${topic}`,
  `-subject=${topic}-value`,
];

/** Fills a topic, and lets a consumer group quarantine what it cannot read. */
async function quarantined(
  part: string,
  count: number,
  garbage: readonly Uint8Array[] = [],
): Promise<Filled> {
  const filled = await fill(stack.brokers, registry, topicOf(part), count, garbage);
  const ran = await runConsumer(own, [...flagsOf(filled.topic), '-exit-at-end', '-json']);
  expect(ran.code, ran.stderr).toBe(0);
  expect(JSON.parse(ran.stdout)).toMatchObject({ quarantined: count + garbage.length });
  return filled;
}

const redrive = (topic: string, ...more: readonly string[]) =>
  runConsumer(own, [...flagsOf(topic), '-redrive', ...more]);

/** Numbers of records to try, because a redrive may end before this process sees it at work. */
const COUNTS = [3000, 30_000, 120_000];

const tooFast = (): Error =>
  new Error(`a redrive of ${COUNTS.at(-1)} records ended before it was seen at work`);

/** Waits until a redrive reports this many records, and returns how many. Undefined: it ended by
 *  itself before. */
async function seenAtWork(
  running: ReturnType<typeof startConsumer>,
  written: number,
): Promise<number | undefined> {
  const address = await running.address();
  const seen = until('redriven records', async () => {
    const page = await pageOf(address);
    const count = page.get('redriven_total{reason="unknown_schema_id",outcome="redriven"}') ?? 0;
    return count >= written && count;
  });
  // Nobody waits for it once the redrive has ended.
  seen.catch(() => {});
  return Promise.race([seen, running.ended.then(() => undefined)]);
}

/** Starts redrives and kills each after it has written records.
 *  @returns number of redriven records that the killed processes reported; undefined: one of them
 *    ended by itself before */
async function killed(
  topic: string,
  kills: number,
  written: number,
  more: readonly string[],
): Promise<number | undefined> {
  let sum = 0;
  for (let i = 0; i < kills; i++) {
    const flags = [...flagsOf(topic), '-redrive', '-batch-rows=20', ...more];
    const running = startConsumer(own, flags, `redrive-${i}`);
    const seen = await seenAtWork(running, written);
    if (seen === undefined) return undefined;
    await running.die();
    sum += seen;
  }
  return sum;
}

/** Fills a quarantine, has its records mended, and kills redrives in the middle of their work. */
async function cutShort(
  part: string,
  kills: number,
  written: number,
  outOf: (name: string) => string | undefined = () => undefined,
  garbage: readonly Uint8Array[] = [],
): Promise<Filled & { readonly count: number; readonly reported: number; readonly out: string }> {
  for (const count of COUNTS) {
    const name = `${part}-${count}`;
    const filled = await quarantined(name, count, garbage);
    await filled.fix();
    const out = outOf(name);
    const reported = await killed(filled.topic, kills, written, out === undefined ? [] : [`-out=${out}`]);
    if (reported !== undefined) return { ...filled, count, reported, out: out ?? '' };
  }
  throw tooFast();
}

const redrivenOf = (records: readonly Found[]): readonly Found[] =>
  records.filter(({ headers }) => headers.has(RECORD_ID_HEADER));

const GARBAGE = [Buffer.from('garbage'), Buffer.from([0, 0, 1])];

describe('SIGKILL in the middle of a redrive', () => {
  it('a redrive back to the topic that is killed three times returns every record once, and leaves the others quarantined', async () => {
    const { topic, id, count, reported } = await cutShort('killed', 3, 100, undefined, GARBAGE);
    const last = await redrive(topic, '-json');
    expect(last.code, last.stderr).toBe(1);
    const document = JSON.parse(last.stdout) as { redriven: number; repeated: number };
    expect(document).toMatchObject({ topic, out: 'source', complete: true, failed: 2, foreign: 0 });
    expect(document.repeated).toBeGreaterThanOrEqual(reported);
    expect(document.redriven + document.repeated).toBe(count);
    const back = redrivenOf(await committed(stack.brokers, topic));
    expect(back).toHaveLength(count);
    expect(new Set(back.map(({ headers }) => headers.get(RECORD_ID_HEADER))).size).toBe(count);
    const wanted = Array.from(
      { length: count },
      (_, n) => `${n % 3} k-${n} ${frame(id, payloadOf(n)).toString('hex')}`,
    );
    expect(
      back.map(({ partition, key, value }) => `${partition} ${key} ${value.toString('hex')}`).sort(),
    ).toEqual(wanted.sort());
    expect([...(back[0]?.headers.keys() ?? [])]).toEqual(['ce_source', RECORD_ID_HEADER]);
    const left = await runConsumer(own, [...flagsOf(topic), '-quarantine', '-json']);
    expect(JSON.parse(left.stdout)).toMatchObject({
      left: 2,
      redriven: count,
      redrivenInto: { source: count },
    });
    const read = await runConsumer(own, [...flagsOf(topic), '-exit-at-end', '-json']);
    expect(JSON.parse(read.stdout)).toMatchObject({ records: count, quarantined: 0 });
  });

  it('a redrive into another topic that is killed writes a line for every record once', async () => {
    const { topic, count, out } = await cutShort('lines', 2, 60, (name) => `kafka:${topicOf(name)}-out`);
    const last = await redrive(topic, `-out=${out}`);
    expect(last.code, last.stderr).toBe(0);
    const lines = await committed(stack.brokers, out.slice('kafka:'.length));
    const ids = lines.map(
      ({ value }) => (JSON.parse(value.toString()) as { value: { id: string } }).value.id,
    );
    expect(ids.sort()).toEqual(Array.from({ length: count }, (_, n) => `o-${n}`).sort());
    expect(redrivenOf(lines)).toHaveLength(count);
  });

  it('a redrive into a file that is killed loses no record, and each line has an id', async () => {
    const { topic, count, out } = await cutShort(
      'file',
      2,
      60,
      (name) => `file:${join(own.dir, name)}.jsonl`,
    );
    const last = await redrive(topic, `-out=${out}`, '-json');
    expect(last.code, last.stderr).toBe(0);
    const lines = readFileSync(out.slice('file:'.length), 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { recordId: string; value: { id: string } });
    expect(new Set(lines.map(({ value }) => value.id)).size).toBe(count);
    expect(new Set(lines.map(({ recordId }) => recordId)).size).toBe(count);
    const again = await redrive(topic, `-out=${out}`, '-json');
    expect(JSON.parse(again.stdout)).toMatchObject({ redriven: 0, repeated: count });
  });
});

/** Suspends a redrive in the middle of its work. */
async function suspended() {
  for (const count of COUNTS) {
    const { topic, fix } = await quarantined(`fenced-${count}`, count);
    await fix();
    const first = startConsumer(own, [...flagsOf(topic), '-redrive', '-batch-rows=5'], 'first');
    if ((await seenAtWork(first, 1)) === undefined) continue;
    first.kill('SIGSTOP');
    return { topic, count, first };
  }
  throw tooFast();
}

describe('one redrive', () => {
  it('a second redrive fences a suspended one, which ends with exit code 3 and says why', async () => {
    const { topic, count, first } = await suspended();
    const second = await redrive(topic, '-partition=1', '-json');
    expect(second.code, second.stderr).toBe(0);
    first.kill('SIGCONT');
    expect((await first.ended).code, first.log()).toBe(3);
    expect(first.log()).toContain('another redrive of this quarantine started, and this one stopped');
    expect((await redrive(topic)).code).toBe(0);
    expect(redrivenOf(await committed(stack.brokers, topic))).toHaveLength(count);
  });

  it('a dry run prints what would be done, and writes nothing', async () => {
    const { topic, fix } = await quarantined('dry', 12, GARBAGE);
    const unfixed = await redrive(topic, '-dry-run');
    expect(unfixed.code).toBe(1);
    expect(unfixed.stdout).toContain(
      `would redrive 0 records of ${topic}.quarantine to ${topic}; 0 were redriven before; 14 still cannot be read`,
    );
    await fix();
    const ran = await redrive(topic, '-dry-run', '-json', '-reason=unknown_schema_id', '-partition=0,2');
    expect(ran.code, ran.stderr).toBe(0);
    expect(JSON.parse(ran.stdout)).toMatchObject({
      dryRun: true,
      redriven: 8,
      failed: 0,
      skipped: 6,
      byReason: { unknown_schema_id: { redriven: 8, repeated: 0, failed: 0, refused: 0 } },
    });
    expect(await committed(stack.brokers, topic)).toHaveLength(14);
    expect(await committed(stack.brokers, `${topic}.quarantine.redriven`)).toEqual([]);
  });

  it('stdout gets each record with its id; a count limits a trial, and times select', async () => {
    const { topic, fix } = await quarantined('stdout', 6);
    await fix();
    const trial = await redrive(topic, '-out=-', '-count=2', '-filter=cents >= 3');
    expect(trial.code, trial.stderr).toBe(0);
    const lines = trial.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines).toHaveLength(2);
    for (const line of lines) {
      expect(line).toMatchObject({ topic, schemaId: expect.any(Number) });
      expect(line['recordId']).toMatch(
        new RegExp(`^${topic}/${line['partition']}/${line['offset']}/[\\da-f]{16}$`),
      );
    }
    const none = await redrive(topic, '-json', '-since=2000-01-01T00:00:00Z', '-until=@978307200000');
    expect(JSON.parse(none.stdout)).toMatchObject({ redriven: 0, skipped: 6 });
    const all = await redrive(topic, '-json', '-since=2001-01-01T00:00:00Z');
    expect(JSON.parse(all.stdout)).toMatchObject({ redriven: 6, skipped: 0 });
  });

  it('a record that the topic refuses for its size or its missing key stays quarantined, and the others are redriven once', async () => {
    const { topic, fix, id } = await fill(stack.brokers, registry, topicOf('refused'), 40);
    await append(stack.brokers, topic, [
      { partition: 0, value: frame(id, payloadOf(100)) },
      { partition: 0, key: Buffer.from('large'), value: frame(id, payloadOf(101, 5000)) },
    ]);
    await runConsumer(own, [...flagsOf(topic), '-exit-at-end']);
    await fix();
    const out = topicOf('refused-out');
    await createTopic(stack.brokers, out, 1, { 'cleanup.policy': 'compact', 'max.message.bytes': '3000' });
    const ran = await redrive(topic, `-out=kafka:${out}`, '-json');
    expect(ran.code, ran.stderr).toBe(1);
    expect(JSON.parse(ran.stdout)).toMatchObject({ redriven: 40, refused: 2, failed: 0 });
    expect(ran.stderr).toContain('the output refuses the record; it stays quarantined');
    expect(await committed(stack.brokers, out)).toHaveLength(40);
  });

  it('the reference implementation redrives as the addon does', async () => {
    const { topic, fix } = await quarantined('reference', 40);
    await fix();
    const ran = await redrive(topic, '-native=off');
    expect(ran.code, ran.stderr).toBe(0);
    expect(redrivenOf(await committed(stack.brokers, topic))).toHaveLength(40);
  });
});

describe('any schema', () => {
  it.each(['source', 'kafka'])(
    'framed Avro, Protobuf and JSON, by an id or a guid in a header, are redriven without a subject (out=%s)',
    async (out) => {
      const topic = topicOf(`any-${out}`);
      const namespace = topic.replace(/\W/g, '_');
      const proto = `syntax = "proto3"; package ${namespace}; message Order { string id = 1; }`;
      const json = `{"title":"${topic}","type":"object"}`;
      const record = `{"type":"record","name":"${namespace}","fields":[{"name":"id","type":"string"}]}`;
      const first = await register(
        registry,
        `${topic}-first`,
        `{"type":"fixed","name":"${namespace}","size":1}`,
      );
      const guid = guidOf({ format: 'AVRO', text: parseSchema('AVRO', record).text, references: [] });
      await createTopics(stack.brokers, [{ topic, partitions: 1 }]);
      await appendBinary(stack.brokers, topic, [
        { partition: 0, value: frame(first + 1, Buffer.from([0, 0x0a, 1, 0x70])) },
        { partition: 0, value: frame(first + 2, Buffer.from('{"id":"j"}')) },
        { partition: 0, value: Buffer.from([2, 0x61]), headers: [[VALUE_ID_HEADER, idHeaderOf(guid, null)]] },
      ]);
      const any = [...servers, `-topic=${topic}`];
      const quarantine = `-quarantine-topic=${topic}.quarantine`;
      const read = await runConsumer(own, [...any, quarantine, '-out=none', '-exit-at-end', '-json']);
      expect(JSON.parse(read.stdout), read.stderr).toMatchObject({ quarantined: 3 });
      expect(await register(registry, `${topic}-proto`, proto, 'PROTOBUF')).toBe(first + 1);
      expect(await register(registry, `${topic}-json`, json, 'JSON')).toBe(first + 2);
      await register(registry, `${topic}-avro`, record);
      const lines = topicOf(`any-${out}-lines`);
      const ran = await runConsumer(own, [
        ...any,
        '-redrive',
        `-out=${out === 'kafka' ? `kafka:${lines}` : out}`,
      ]);
      expect(ran.code, `${ran.stdout}${ran.stderr}`).toBe(0);
      const found = redrivenOf(await committed(stack.brokers, out === 'kafka' ? lines : topic));
      expect(found).toHaveLength(3);
      if (out === 'kafka') {
        const ids = found.map(
          ({ value }) => (JSON.parse(value.toString()) as { value: { id: string } }).value.id,
        );
        expect(ids.sort()).toEqual(['a', 'j', 'p']);
        return;
      }
      const printed = await runConsumer(own, [...any, '-exit-at-end', '-lines=value', '-start=-4']);
      expect(printed.stdout.trimEnd().split('\n').sort()).toEqual(['{"id":"a"}', '{"id":"j"}', '{"id":"p"}']);
    },
  );
});

describe('mistakes', () => {
  const refusal = async (topic: string, ...flags: readonly string[]): Promise<string> => {
    const { code, stderr } = await redrive(topic, ...flags);
    expect(code, stderr).toBe(2);
    return stderr;
  };

  it('a quarantine that does not exist is a mistake, and an empty one is not', async () => {
    const topic = topicOf('none');
    const { fix } = await fill(stack.brokers, registry, topic, 1);
    await fix();
    expect(await refusal(topic)).toContain(`topic ${topic}.quarantine does not exist`);
    await createTopic(stack.brokers, `${topic}.quarantine`, 1);
    const empty = await redrive(topic, '-json');
    expect(empty.code, empty.stderr).toBe(0);
    expect(JSON.parse(empty.stdout)).toMatchObject({ records: 0, redriven: 0 });
  });

  it('flags that contradict a redrive are refused before anything is written', async () => {
    const topic = topicOf('flags');
    const { fix } = await fill(stack.brokers, registry, topic, 1);
    await fix();
    expect(await refusal(topic, '-out=none')).toContain('-out=none with -redrive would write nothing');
    expect(await refusal(topic, `-out=kafka:${topic}`)).toContain('would write JSON lines into');
    expect(await refusal(topic, '-out=-', '-json')).toContain('both write to stdout');
    expect(await refusal(topic, '-out=lines.jsonl', '-lines=value')).toContain('has no place for the id');
    expect(await refusal(topic, '-group=g')).toContain('-group changes nothing with -redrive');
    expect(await refusal(topic, '-start=latest')).toContain('-start changes nothing with -redrive');
    expect(await refusal(topic, '-since=yesterday')).toContain('-since=yesterday is not a time');
    expect(await refusal(topic, '-since=@2', '-until=@1')).toContain('-until=@1 is not after -since=@2');
    expect(await refusal(topic, '-reason=ugly')).toContain('is not a choice');
    expect(await refusal(topic, `-quarantine-topic=${topic}`)).toContain('is the topic of the records');
  });

  it('a progress topic that can lose ids is refused', async () => {
    const { topic, fix } = await quarantined('unfit', 1);
    await fix();
    await createTopic(stack.brokers, `${topic}.quarantine.redriven`, 1, { 'cleanup.policy': 'delete' });
    expect(await refusal(topic)).toContain(
      'cannot keep the progress of a redrive: its cleanup.policy is delete',
    );
  });

  it('a record that another program wrote into the quarantine is reported and stays', async () => {
    const { topic, fix } = await quarantined('foreign', 1);
    await fix();
    await append(stack.brokers, `${topic}.quarantine`, [{ partition: 0, value: Buffer.from('by hand') }]);
    const ran = await redrive(topic);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toContain('redrove 1 records');
    expect(ran.stdout).toContain('1 have no quarantine headers');
    expect(ran.stderr).toContain('not a quarantined record; it is left alone');
  });

  it('a file that cannot be written is one error', async () => {
    const { topic, fix } = await quarantined('folder', 1);
    await fix();
    writeFileSync(join(own.dir, 'plain'), '');
    expect(await refusal(topic, `-out=file:${join(own.dir, 'plain', 'x')}`)).toContain('cannot write to');
  });
});
