/** Checks of expensive schemas: how much runs on the serving thread, the limits of a request, and
 *  the state on which a registration commits. The tests count characters and steps, not time. */
import { afterEach, describe, expect, it } from 'vitest';
import { hostileSchemas } from '../../../../bench/hostile.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { CONTRACT_ENTRIES_MAX } from '../../../../src/registry/api/limits.ts';
import { StepBudget } from '../../../../src/registry/compatibility/finding.ts';
import { checkPair } from '../../../../src/registry/compatibility/modes.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import {
  Allowance,
  CHECK_CHARS_MAX,
  Checks,
  Deferred,
  INLINE_CHARS_MAX,
  INLINE_STEPS_MAX,
  type Origin,
  untilDone,
} from '../../../../src/registry/worker/checks.ts';
import {
  charsOf,
  judgeSchemas,
  readSource,
  type SchemaSource,
} from '../../../../src/registry/worker/judge.ts';
import { runTask } from '../../../../src/registry/worker/task.ts';
import type { Ran, TaskRequest, TaskRunner } from '../../../../src/registry/worker/thread.ts';
import { realClock } from '../../../wait.ts';
import { code, TestLog } from '../store/store-kit.ts';

/** Runs tasks in this thread. While `held` is set, each task waits for its release. */
class HeldRunner implements TaskRunner {
  readonly jobs: TaskRequest[] = [];
  held: Array<() => void> | undefined;

  async run(job: TaskRequest): Promise<Ran> {
    this.jobs.push(job);
    const { held } = this;
    if (held !== undefined) await new Promise<void>((resolve) => held.push(resolve));
    return { reply: await runTask(job.task, job.sources, job.steps), tookMs: 1 };
  }
  async close(): Promise<void> {}
}

const originOf = (source: SchemaSource, key = source.text): Origin => ({
  key,
  source,
  tree: () => undefined,
  read: () => readSource(source),
  report: () => undefined,
});
const json = (text: string): SchemaSource => ({
  format: 'JSON',
  text,
  references: [],
  lenient: false,
  normalize: false,
});

const SMALL = '{"type":"object","properties":{"a":{"type":"string"}}}';
const large = (i: number): string =>
  JSON.stringify({ description: 'x'.repeat(INLINE_CHARS_MAX), type: ['string', 'integer'].slice(0, i) });

let registry: Registry;
let runner: HeldRunner;
async function open(): Promise<void> {
  runner = new HeldRunner();
  registry = await Registry.open(new TestLog(), silentLogger, { clock: realClock, checkRunner: runner });
}
afterEach(() => registry?.close());

const asJson = (text: string) => ({ format: 'JSON', text });
const register = (subject: string, text: string) =>
  Promise.resolve(untilDone(() => registry.step(() => registry.register(subject, asJson(text), {}))));
const check = (subject: string, text: string) =>
  Promise.resolve(
    untilDone(() => registry.step(() => registry.compatibility(subject, undefined, asJson(text), {}))),
  );

describe('comparison of JSON Schemas', () => {
  /** Steps of the comparison of two versions. The limit is far above any polynomial of these
   *  sizes. */
  function stepsOf(text: (count: number, i: number) => string, count: number): number {
    const [reader, writer] = [1, 0].map((i) => parseSchema('JSON', text(count, i)));
    const budget = new StepBudget(1e9);
    checkPair(reader!, writer!, 'PROVEN', budget);
    checkPair(writer!, reader!, 'PROVEN', budget);
    return budget.used;
  }
  const leaf = (i: number): object => ({ type: 'string', maxLength: 100 + i });
  const chain =
    (join: (next: object) => object) =>
    (count: number, i: number): string => {
      const $defs: Record<string, object> = {};
      for (let at = 0; at < count; at++)
        $defs[`d${at}`] = at + 1 < count ? join({ $ref: `#/$defs/d${at + 1}` }) : leaf(i);
      return JSON.stringify({ $ref: '#/$defs/d0', $defs });
    };
  const back = { $ref: '#/$defs/d0' };

  it.each<readonly [string, (next: object) => object]>([
    ['twice by properties', (next) => ({ properties: { a: next, b: next } })],
    ['twice by anyOf', (next) => ({ anyOf: [next, next] })],
    ['twice by allOf', (next) => ({ allOf: [next, next] })],
    ['twice by oneOf', (next) => ({ oneOf: [next, next] })],
    [
      'by properties and inside its exclusion',
      (next) => ({ not: { properties: { a: next } }, properties: { a: next } }),
    ],
    ['and back to the first', (next) => ({ anyOf: [next, next], properties: { a: back, b: next } })],
    [
      'and back to the first by items',
      (next) => ({ type: ['array', 'string'], items: { anyOf: [back, next] } }),
    ],
  ])(
    'a comparison visits each pair of nodes once if each definition refers to the next %s',
    (_name, join) => {
      const text = chain(join);
      const [short, long] = [stepsOf(text, 10), stepsOf(text, 40)];
      // Four times the definitions make sixteen times the pairs; an expansion would make 2^30 times
      // as many.
      expect(long / short).toBeLessThan(40);
    },
  );

  it('two enums are compared in steps that grow with the sum of their sizes', () => {
    const values = (count: number, i: number): string =>
      JSON.stringify({ enum: Array.from({ length: count }, (_, at) => at + i) });
    expect(stepsOf(values, 10_000) / stepsOf(values, 1_000)).toBeLessThan(11);
  });

  it('recursive schemas are compatible exactly where their differing leaf is', () => {
    const tree = (i: number): string =>
      JSON.stringify({
        $ref: '#/$defs/t',
        $defs: {
          t: {
            type: 'object',
            properties: { left: { $ref: '#/$defs/t' }, right: { anyOf: [{ $ref: '#/$defs/t' }, leaf(i)] } },
          },
        },
      });
    const [narrow, wide] = [0, 1].map((i) => parseSchema('JSON', tree(i)));
    expect(checkPair(wide!, narrow!)).toEqual([]);
    expect(checkPair(narrow!, wide!)).not.toEqual([]);
  });
});

describe('serving thread', () => {
  it.each(hostileSchemas(0.2).map((one) => [one.name, one] as const))(
    'the serving thread parses and compares no more than its inline limits of: %s',
    async (_name, { format, text }) => {
      const held = new HeldRunner();
      let chars = 0;
      const checks = new Checks(held);
      const counted = (source: SchemaSource): Origin => ({
        ...originOf(source),
        read: () => {
          chars += charsOf(source);
          return readSource(source);
        },
      });
      const source = (i: number): SchemaSource => ({ ...json(text(i)), format });
      const question = {
        proposed: counted(source(8)),
        level: 'BACKWARD_TRANSITIVE' as const,
        policy: 'PROVEN' as const,
        against: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => ({
          version: i + 1,
          format,
          origin: counted(source(i)),
        })),
        ever: undefined,
      };
      expect(() => checks.step(() => checks.judge(question))).toThrow(Deferred);
      expect(chars).toBeLessThanOrEqual(INLINE_CHARS_MAX);
      const firstChars = chars;
      const comparisons = await untilDone(() => checks.step(() => checks.judge(question)));
      expect(comparisons).toHaveLength(8);
      expect(held.jobs).toHaveLength(1);
      // The inline work of each step is at most the work of the first step.
      expect(chars).toBeLessThanOrEqual(3 * Math.max(firstChars, INLINE_CHARS_MAX));
    },
  );

  it('the serving thread moves a comparison to a worker when its step budget is spent, although the texts are short', async () => {
    const held = new HeldRunner();
    const checks = new Checks(held);
    const wide = (i: number): string =>
      JSON.stringify({
        anyOf: Array.from({ length: 60 }, (_, at) => ({ type: 'string', maxLength: at + i })),
      });
    const question = {
      proposed: originOf(json(wide(0))),
      level: 'BACKWARD' as const,
      policy: 'PROVEN' as const,
      against: [{ version: 1, format: 'JSON', origin: originOf(json(wide(1))) }],
      ever: undefined,
    };
    expect(wide(0).length * 2).toBeLessThan(INLINE_CHARS_MAX);
    await untilDone(() => checks.step(() => checks.judge(question)));
    expect(held.jobs.map(({ task }) => task.kind)).toEqual(['judge']);
    const { reply } = await new HeldRunner().run(held.jobs[0] as TaskRequest);
    expect(reply.steps).toBeGreaterThan(INLINE_STEPS_MAX);
  });

  it('the serving thread checks small schemas itself', async () => {
    await open();
    await register('s', SMALL);
    expect((await check('s', SMALL.replace('"a"', '"b"'))).compatible).toBe(false);
    expect(runner.jobs).toEqual([]);
  });

  it('the serving thread pauses between many small texts that it parses for one look-up', async () => {
    await open();
    await registry.setConfig('s', { compatibility: 'NONE' });
    const text = (i: number): string =>
      JSON.stringify({ description: 'x'.repeat(INLINE_CHARS_MAX / 4), minLength: i }).replace(':', ': ');
    for (let i = 0; i < 12; i++) await register('s', text(i));
    const other = await Registry.open(
      Object.assign(new TestLog(), { records: (registry as unknown as { log: TestLog }).log.records }),
      silentLogger,
      { clock: realClock, checkRunner: runner },
    );
    let steps = 0;
    const found = await Promise.resolve(
      untilDone(() => {
        steps++;
        return other.step(() => other.lookup('s', asJson(text(99).replace('99', '0')), {}));
      }),
    );
    expect(found.version).toBe(1);
    const asked = untilDone(() => {
      steps++;
      return other.step(() => other.lookup('s', asJson(text(99)), {}));
    });
    expect(await code(Promise.resolve(asked))).toBe('schema_not_found');
    expect(steps).toBeGreaterThan(4);
    await other.close();
  });

  it('the serving thread pauses between the metadata that it compares for one look-up, and compares each once', async () => {
    await open();
    await registry.setConfig('s', { compatibility: 'NONE' });
    const withMetadata = (i: number) => ({
      ...asJson(SMALL),
      metadata: {
        properties: Object.fromEntries(
          Array.from({ length: CONTRACT_ENTRIES_MAX }, (_, k) => [`${k}`, `${i}`]),
        ),
      },
    });
    for (let i = 0; i < 12; i++)
      await untilDone(() => registry.step(() => registry.register('s', withMetadata(i), {})));
    const other = await Registry.open(
      Object.assign(new TestLog(), { records: (registry as unknown as { log: TestLog }).log.records }),
      silentLogger,
      { clock: realClock, checkRunner: runner },
    );
    /** Steps of a look-up that compares with every version. */
    const stepsOfLookup = async (): Promise<number> => {
      let steps = 0;
      const asked = untilDone(() => {
        steps++;
        return other.step(() => other.lookup('s', withMetadata(99), {}));
      });
      expect(await code(Promise.resolve(asked))).toBe('schema_not_found');
      return steps;
    };
    expect(await stepsOfLookup()).toBeGreaterThan(4);
    expect(await stepsOfLookup()).toBe(1);
    await other.close();
  });

  it('the serving thread serves reads and writes of other subjects while a check is in flight', async () => {
    await open();
    await register('large', large(1));
    runner.held = [];
    const under = register('large', large(2));
    await expect.poll(() => runner.held?.length).toBe(1);
    expect((await register('small', SMALL)).version.version).toBe(1);
    expect(registry.versions('small', 'no')).toHaveLength(1);
    for (const resolve of runner.held ?? []) resolve();
    runner.held = undefined;
    expect((await under).version.version).toBe(2);
  });
});

describe('registration that waits for its check', () => {
  it('a waiting registration is checked again when its subject gets another version', async () => {
    await open();
    await registry.setConfig('s', { compatibility: 'BACKWARD' });
    const closed = (name: string): string =>
      JSON.stringify({
        description: 'x'.repeat(INLINE_CHARS_MAX),
        type: 'object',
        additionalProperties: false,
        properties: { [name]: { type: 'string' } },
      });
    runner.held = [];
    const { held } = runner;
    // As the first version it is compared with no other version.
    const late = register('s', closed('a'));
    await expect.poll(() => held.length).toBe(1);
    await register(
      's',
      '{"type":"object","additionalProperties":false,"properties":{"b":{"type":"string"}}}',
    );
    runner.held = undefined;
    for (const resolve of held) resolve();
    expect(await code(late)).toBe('incompatible');
    expect(registry.versions('s', 'no')).toHaveLength(1);
  });

  it('a waiting registration is answered with the version that the same schema got meanwhile', async () => {
    await open();
    runner.held = [];
    const { held } = runner;
    const both = [register('s', large(1)), register('s', large(1))];
    await expect.poll(() => held.length).toBe(2);
    runner.held = undefined;
    for (const resolve of held) resolve();
    const versions = await Promise.all(both);
    expect(versions.map(({ version }) => version.version)).toEqual([1, 1]);
    expect(versions.filter(({ created }) => created)).toHaveLength(1);
  });

  it('a long invalid text is refused after its check like a short text', async () => {
    await open();
    const bad = `${large(1).slice(0, -1)},"type":"string"}`;
    await expect(register('s', bad)).rejects.toMatchObject({
      code: 'invalid_schema',
      message: /the key "type" stands twice/,
    });
    // Parsed as a new text, and then leniently as a text that the registry may have.
    expect(runner.jobs).toHaveLength(2);
  });

  it('a registration finds a stored text in another spelling, although a new text like it would be refused', async () => {
    await open();
    const record = {
      type: 'record',
      name: 'R',
      doc: 'x'.repeat(INLINE_CHARS_MAX),
      fields: [{ name: 'n', type: 'int', default: 'none' }],
    };
    const step = <T>(run: () => T | Promise<T>): Promise<T> =>
      Promise.resolve(untilDone(() => registry.step(run)));
    const put = (text: string) => step(() => registry.register('s', { text }, {}));
    await registry.setConfig(undefined, { validateNewSchemas: false });
    expect((await put(JSON.stringify(record))).created).toBe(true);
    await registry.setConfig(undefined, { validateNewSchemas: true });
    runner.jobs.length = 0;
    const spelled = JSON.stringify(record, null, 2);
    const again = await put(spelled);
    expect([again.created, again.version.version]).toEqual([false, 1]);
    expect((await step(() => registry.compatibility('s', undefined, { text: spelled }, {}))).compatible).toBe(
      true,
    );
    const leniences = runner.jobs.flatMap(({ sources }) => sources.map(({ lenient }) => lenient));
    expect(leniences).toEqual([false, true]);
    expect(await code(put(spelled.replace('"R"', '"Q"')))).toBe('invalid_schema');
  });
});

describe('allowances of a request', () => {
  const heavy = (i: number): SchemaSource => json(large(i));

  it('a request has one allowance of steps over all its tasks', async () => {
    const spent: number[] = [];
    const greedy: TaskRunner = {
      run: async ({ steps }) => {
        spent.push(steps);
        return {
          reply: { steps: 900_000, result: { kind: 'text', text: 'x', forms: [] } },
          tookMs: 1,
        };
      },
      close: async () => {},
    };
    const checks = new Checks(greedy);
    const step = (): unknown =>
      checks.step(() => {
        for (let i = 0; i < 9; i++) checks.text(originOf(heavy(1), String(i)));
        return 'done';
      });
    await expect(untilDone(step)).rejects.toMatchObject({
      code: 'check_too_long',
      message: expect.stringMatching(
        /more than 2000000 steps .*\(the limit check-steps\); make the schema simpler/,
      ),
    });
    expect(spent).toEqual([2_000_000, 1_100_000, 200_000]);
  });

  it('a request has one allowance of time over all its tasks', async () => {
    const limits: number[] = [];
    const slow: TaskRunner = {
      run: async ({ limitMs }) => {
        limits.push(limitMs);
        return { reply: { steps: 1, result: { kind: 'text', text: 'x', forms: [] } }, tookMs: 400 };
      },
      close: async () => {},
    };
    const checks = new Checks(slow);
    const step = (): unknown =>
      checks.step(() => {
        for (let i = 0; i < 9; i++) checks.text(originOf(heavy(1), String(i)));
        return 'done';
      });
    await expect(untilDone(step, 1_000)).rejects.toMatchObject({
      code: 'check_too_long',
      message: expect.stringContaining('longer than 1000 ms'),
    });
    expect(limits).toEqual([1_000, 600, 200]);
  });

  it('a request reads no more characters than the limit, references included', async () => {
    const held = new HeldRunner();
    const checks = new Checks(held);
    const text = 'x'.repeat(1 << 20);
    const reference = (i: number) => ({
      name: `r${i}`,
      subject: 's',
      version: i,
      format: 'JSON' as const,
      text,
      references: [],
    });
    const references = Array.from({ length: CHECK_CHARS_MAX / text.length }, (_, i) => reference(i));
    const ask = () => checks.step(() => checks.text(originOf({ ...heavy(1), references })));
    await expect(untilDone(ask)).rejects.toMatchObject({
      code: 'check_too_long',
      message: expect.stringContaining('(the limit check-chars)'),
    });
    expect(held.jobs).toEqual([]);
  });

  it('a request refers to no more characters than the limit, which is checked before they are read', async () => {
    const one = await Registry.open(new TestLog(), silentLogger, { clock: realClock });
    const text = JSON.stringify({ description: 'x'.repeat(500_000) });
    const count = Math.ceil(CHECK_CHARS_MAX / text.length);
    for (let i = 0; i < count; i++) await one.register(`part-${i}`, asJson(text), {});
    const refer = (most: number) => ({
      ...asJson('{"$ref":"r0"}'),
      references: Array.from({ length: most }, (_, i) => ({
        name: `r${i}`,
        subject: `part-${i}`,
        version: 1,
      })),
    });
    await expect(one.register('s', refer(count), {})).rejects.toMatchObject({
      code: 'invalid_schema',
      message: expect.stringContaining('(the limit reference-chars)'),
    });
    expect(await one.register('s', refer(2), {})).toMatchObject({ created: true });
    await one.close();
  });

  it('a check counts the steps of the number history, which no level disables, in the same budget', () => {
    const text = `syntax = "proto3"; message M { ${Array.from({ length: 20 }, (_, i) => `int32 f${i} = ${i + 1};`).join(' ')} }`;
    const proposed = parseSchema('PROTOBUF', text);
    const verdict = (versions: number): unknown => {
      const ever = Array.from({ length: versions }, (_, i) => ({ version: i + 1, schema: proposed }));
      return judgeSchemas(
        { proposed, level: 'NONE', policy: 'PROVEN', against: [], ever },
        new StepBudget(100),
      );
    };
    expect(verdict(4)).toMatchObject([{ direction: 'HISTORY' }]);
    expect(() => verdict(6)).toThrow(/more than 100 steps .*\(the limit check-steps\)/);
  });

  it('a request pauses no more often than its steps allow', async () => {
    const checks = new Checks(new HeldRunner());
    const allowance = new Allowance(1_000);
    const pause = (): Deferred => {
      try {
        checks.step(() => {
          checks.takes(1);
          checks.pauseFor(1);
        });
      } catch (thrown) {
        return thrown as Deferred;
      }
      throw new Error('the check did not pause');
    };
    await pause().work(allowance);
    allowance.steps = 1;
    await expect(pause().work(allowance)).rejects.toMatchObject({ code: 'check_too_long' });
  });
});
