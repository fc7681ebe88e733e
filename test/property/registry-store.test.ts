import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { REGISTRY_LOG_FILE } from '../../src/registry/store/file/log.ts';
import type { LogRecord, LogSink, RegistryLog } from '../../src/registry/store/log.ts';
import { Registry } from '../../src/registry/store/registry.ts';
import { State } from '../../src/registry/store/state/model.ts';
import { decodeRecord, encodeRecord } from '../../src/registry/store/state/records.ts';
import { isFull, runs } from '../tier.ts';
import { fileLog, frameEnds } from '../unit/registry/store/file-kit.ts';
import { realClock } from '../wait.ts';
import { type Answer, Model } from './registry-store-model.ts';

/** Two families of schemas: schemas of one family are compatible with each other and with no schema
 *  of the other family. */
const TEXTS = [
  ...['a', 'b', 'c'].map((name) => ({
    type: 'record',
    name: 'R',
    fields: [{ name, type: 'string', default: '' }],
  })),
  { type: 'enum', name: 'E', symbols: ['X'] },
  { type: 'enum', name: 'E', symbols: ['X'], doc: 'again' },
].map((schema) => JSON.stringify(schema));
const family = (text: string): string => (text.includes('enum') ? 'enum' : 'record');
const SUBJECTS = ['s', 't"{', ':.c:s', ':.c:u'];
const LEVELS = ['NONE', 'BACKWARD', 'FULL_TRANSITIVE'];

/** Log in memory that another process can read. */
class SharedLog implements RegistryLog {
  readonly name = 'shared';
  readonly records: LogRecord[];
  constructor(records: LogRecord[] = []) {
    this.records = records;
  }
  async open(sink: LogSink) {
    sink.apply(this.records);
    return { records: this.records.length, tornBytes: 0 };
  }
  async append(records: readonly LogRecord[]): Promise<void> {
    this.records.push(...records);
  }
  async catchUp(): Promise<void> {}
  role() {
    return { leader: true } as const;
  }
  async close(): Promise<void> {}
}

type Operation =
  | { readonly do: 'register'; readonly subject: string; readonly text: string }
  | { readonly do: 'burst'; readonly subjects: readonly string[]; readonly texts: readonly string[] }
  | {
      readonly do: 'deleteVersion';
      readonly subject: string;
      readonly version: number;
      readonly permanent: boolean;
    }
  | { readonly do: 'deleteSubject'; readonly subject: string; readonly permanent: boolean }
  | { readonly do: 'setLevel'; readonly subject: string; readonly level: string }
  | { readonly do: 'setMode'; readonly subject: string; readonly mode: string }
  | { readonly do: 'restart' };

const subject = fc.constantFrom(...SUBJECTS);
const text = fc.constantFrom(...TEXTS);
const register = fc.record({ do: fc.constant('register' as const), subject, text });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 5, arbitrary: register },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('burst' as const),
      subjects: fc.array(subject, { minLength: 6, maxLength: 6 }),
      texts: fc.array(text, { minLength: 6, maxLength: 6 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('deleteVersion' as const),
      subject,
      version: fc.integer({ min: 1, max: 5 }),
      permanent: fc.boolean(),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('deleteSubject' as const), subject, permanent: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('setLevel' as const),
      subject,
      level: fc.constantFrom(...LEVELS),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('setMode' as const),
      subject,
      mode: fc.constantFrom('READONLY', 'READWRITE', 'READWRITE'),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ do: 'restart' as const }) },
);

async function answer(work: Promise<unknown>): Promise<Answer> {
  try {
    return { value: await work };
  } catch (thrown) {
    return { refused: (thrown as { code?: string }).code ?? String(thrown) };
  }
}

const registering = async (registry: Registry, subject: string, text: string): Promise<unknown> => {
  const { created, version } = await registry.register(subject, { text }, {});
  return { id: version.id, version: version.version, created };
};

async function run(registry: Registry, one: Operation): Promise<readonly Answer[]> {
  switch (one.do) {
    case 'register':
      return [await answer(registering(registry, one.subject, one.text))];
    case 'burst':
      return Promise.all(
        one.subjects.map((subject, i) => answer(registering(registry, subject, one.texts[i] as string))),
      );
    case 'deleteVersion':
      return [await answer(registry.deleteVersion(one.subject, String(one.version), one.permanent))];
    case 'deleteSubject':
      return [await answer(registry.deleteSubject(one.subject, one.permanent))];
    case 'setLevel':
      return [
        await answer(
          registry
            .setConfig(one.subject, { compatibility: one.level })
            .then(({ compatibilityLevel }) => compatibilityLevel),
        ),
      ];
    case 'setMode':
      return [await answer(registry.setMode(one.subject, one.mode, false))];
    case 'restart':
      return [];
  }
}

function expected(model: Model, one: Operation): readonly Answer[] {
  switch (one.do) {
    case 'register':
      return [model.register(one.subject, one.text)];
    case 'burst':
      return one.subjects.map((subject, i) => model.register(subject, one.texts[i] as string));
    case 'deleteVersion':
      return [model.deleteVersion(one.subject, one.version, one.permanent)];
    case 'deleteSubject':
      return [model.deleteSubject(one.subject, one.permanent)];
    case 'setLevel':
      return [model.setLevel(one.subject, one.level)];
    case 'setMode':
      return [model.setMode(one.subject, one.mode)];
    case 'restart':
      return [];
  }
}

const canonical = new Map<string, string>();

function shown(registry: Registry): unknown {
  return registry
    .browse({ prefix: '', deleted: true, latestOnly: false })
    .map(({ subject, version, id, content, deleted }) => ({
      subject,
      version,
      id,
      text: canonical.get(content.text) ?? content.text,
      deleted,
    }));
}

/** The complete state, including parts that are not visible in the versions. */
const whole = (registry: Registry): unknown => [
  registry.browse({ prefix: '', deleted: true, latestOnly: false }),
  SUBJECTS.map((subject) => [registry.config(subject, true), registry.mode(subject, true)]),
  ['.', '.c'].map((context) => registry.maxId(context)),
];

const noModel = new Model((a, b) => family(a) === family(b));

describe('registry against its model', () => {
  it('the registry has the answers and the state of the model, through bursts and restarts', async () => {
    for (const given of TEXTS) {
      const probe = await Registry.open(new SharedLog(), silentLogger, { clock: realClock });
      const { version } = await probe.register('s', { text: given }, {});
      canonical.set(version.content.text, given);
    }
    expect(noModel.shown()).toEqual([]);
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { minLength: 5, maxLength: 40 }), async (operations) => {
        const records: LogRecord[] = [];
        let registry = await Registry.open(new SharedLog(records), silentLogger, { clock: realClock });
        const model = new Model((a, b) => family(a) === family(b));
        for (const one of operations) {
          if (one.do === 'restart')
            registry = await Registry.open(new SharedLog(records), silentLogger, { clock: realClock });
          expect(await run(registry, one)).toEqual(expected(model, one));
          expect(shown(registry)).toEqual(model.shown());
          for (const name of SUBJECTS) {
            expect(registry.config(name, true).compatibilityLevel).toBe(
              model.levels.get(name) ?? model.level,
            );
            expect(registry.mode(name, true)).toBe(model.modes.get(name) ?? 'READWRITE');
          }
        }
        for (const context of ['.', '.c'])
          expect(registry.maxId(context)).toBe(model.maxIds.get(context) ?? 0);
      }),
      { numRuns: runs(150) },
    );
  });
});

async function recordsOf(operations: readonly Operation[]): Promise<LogRecord[]> {
  const records: LogRecord[] = [];
  const registry = await Registry.open(new SharedLog(records), silentLogger, { clock: realClock });
  for (const one of operations) await run(registry, one);
  return records;
}

const history = fc.array(operation, { minLength: 10, maxLength: 40 });

describe('registry records', () => {
  it('the records give the same state after log compaction of any prefix, with or without the tombstones', async () => {
    await fc.assert(
      fc.asyncProperty(history, fc.nat(), fc.boolean(), async (operations, at, removals) => {
        const records = await recordsOf(operations);
        const cleaned = records.length === 0 ? 0 : at % (records.length + 1);
        const last = new Map(records.slice(0, cleaned).map(({ key }, i) => [String(key), i]));
        const compacted = records.filter(
          ({ key, value }, i) =>
            i >= cleaned || (last.get(String(key)) === i && (removals || value !== null)),
        );
        const plain = await Registry.open(new SharedLog(records), silentLogger, { clock: realClock });
        const other = await Registry.open(new SharedLog(compacted), silentLogger, { clock: realClock });
        expect(whole(other)).toEqual(whole(plain));
      }),
      { numRuns: runs(150) },
    );
  });

  it('the records can be applied in any order and twice, and leave a registry that answers', async () => {
    await fc.assert(
      fc.asyncProperty(
        history.chain((operations) => fc.tuple(fc.constant(operations), fc.infiniteStream(fc.nat()))),
        async ([operations, picks]) => {
          const records = await recordsOf(operations);
          const twice = records.flatMap((record) => [record, record]);
          const once = await Registry.open(new SharedLog([...records]), silentLogger, { clock: realClock });
          expect(
            whole(await Registry.open(new SharedLog(twice), silentLogger, { clock: realClock })),
          ).toEqual(whole(once));
          const shuffled: LogRecord[] = [];
          for (const rest = [...records]; rest.length > 0; ) {
            const pick = (picks.next().value as number) % rest.length;
            shuffled.push(...rest.splice(pick, 1));
          }
          const registry = await Registry.open(new SharedLog(shuffled), silentLogger, { clock: realClock });
          for (const { id, context, content } of registry.browse({
            prefix: '',
            deleted: true,
            latestOnly: false,
          }))
            expect(registry.schema(id, `:${context}:`).content.text).toBe(content.text);
          const { version } = await registry.register('after', { text: '"bytes"' }, {});
          expect(version.id).toBe(registry.maxId('.'));
        },
      ),
      { numRuns: runs(60) },
    );
  });

  it('a record of any bytes never stops the registry', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc.json().map((json) => Buffer.from(json)),
      fc
        .constantFrom('SCHEMA', 'CONFIG', 'MODE', 'DELETE_SUBJECT', 'CLEAR_SUBJECT', 'CONTEXT', 'NOOP')
        .chain((keytype) =>
          fc
            .record(
              {
                subject: fc.oneof(fc.constantFrom('s', ':.c:s', null), fc.jsonValue()),
                version: fc.oneof(fc.constantFrom(1, 2, 2147483647), fc.jsonValue()),
                context: fc.jsonValue(),
                millrace: fc.constantFrom('POLICY', 'MAX_ID', 'BURNED', 5),
                seq: fc.constantFrom(1, 2, 'x'),
                id: fc.oneof(fc.constantFrom(1, 2), fc.jsonValue()),
                schema: fc.constantFrom('"int"', '', 7),
                deleted: fc.jsonValue(),
                references: fc.oneof(fc.constant([{ name: 'n', subject: 's', version: 1 }]), fc.jsonValue()),
                mode: fc.constantFrom('READONLY', 'x'),
                maxId: fc.constantFrom(3, -1),
              },
              { requiredKeys: [] },
            )
            .map((fields) => Buffer.from(JSON.stringify({ keytype, ...fields }))),
        ),
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(bytes, fc.option(bytes)), { maxLength: 30 }), (pairs) => {
        const state = new State();
        for (const [key, value] of pairs) {
          const decoded = decodeRecord({ key, value });
          if (!('record' in decoded)) continue;
          state.apply(decoded.record, 0, decoded.keyIsExact ? undefined : 'other');
          const again = decodeRecord(encodeRecord(decoded.record));
          expect('record' in again && again.keyIsExact).toBe(true);
        }
        expect(state.counts().versions).toBeGreaterThanOrEqual(0);
      }),
      { numRuns: runs(500) },
    );
  });
});

describe('registry file', () => {
  async function write(dir: string, operations: readonly Operation[]): Promise<Map<number, unknown>> {
    const log = fileLog(dir);
    let appends = 0;
    const append = log.append.bind(log);
    log.append = async (records) => {
      await append(records);
      appends++;
    };
    const registry = await Registry.open(log, silentLogger, { clock: realClock });
    const after = new Map<number, unknown>([[0, whole(registry)]]);
    for (const one of operations) {
      await run(registry, one);
      after.set(appends, whole(registry));
    }
    await registry.close();
    return after;
  }

  const inFolder = async (work: (dir: string) => Promise<void>): Promise<void> => {
    const dir = mkdtempSync(join(tmpdir(), 'millrace-crash-'));
    try {
      await work(dir);
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  };

  async function reopened(dir: string): Promise<unknown> {
    const registry = await Registry.open(fileLog(dir), silentLogger, { clock: realClock });
    const state = whole(registry);
    await registry.close();
    return state;
  }

  it('a file written up to any byte contains exactly the appends before that byte, and a file cut there is refused', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { minLength: 6, maxLength: 12 }), fc.nat(), (operations, seed) =>
        inFolder(async (dir) => {
          const after = await write(dir, operations);
          const path = join(dir, REGISTRY_LOG_FILE);
          const bytes = readFileSync(path);
          const ends = frameEnds(bytes);
          const from = ends.at(-2) ?? 8;
          // The bytes of the last append, and some bytes before it.
          const step = isFull ? 1 : 7;
          const cuts = Array.from({ length: (bytes.length - from) / step }, (_, i) => from + i * step);
          for (let i = 0; i < 20; i++) cuts.push(8 + ((seed + i * 7919) % (bytes.length - 7)));
          for (const cut of cuts) {
            const kept = ends.findLastIndex((end) => end <= cut);
            const written = bytes.subarray(0, cut);
            writeFileSync(path, Buffer.concat([written, Buffer.alloc(bytes.length - cut)]));
            expect(await reopened(dir), `written up to ${cut}`).toEqual(after.get(kept));
            writeFileSync(path, written);
            // A tail of zeros is preallocated space.
            if (written.subarray(ends[kept]).every((byte) => byte === 0))
              expect(await reopened(dir), `cut at ${cut}`).toEqual(after.get(kept));
            else
              await expect(reopened(dir), `cut at ${cut}`).rejects.toMatchObject({ code: 'store_corrupt' });
          }
        }),
      ),
      { numRuns: isFull ? 4 : 2 },
    );
  });

  it('a file with any flipped bit is refused, or loses only an append that looks unfinished', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { minLength: 4, maxLength: 10 }), (operations) =>
        inFolder(async (dir) => {
          const after = await write(dir, operations);
          const path = join(dir, REGISTRY_LOG_FILE);
          const bytes = readFileSync(path);
          const frames = frameEnds(bytes).length;
          let refused = 0;
          const step = isFull ? 5 : 31;
          for (let at = 0; at < bytes.length; at += step) {
            const damaged = Buffer.from(bytes);
            damaged[at] = (damaged[at] as number) ^ (1 << (at % 8));
            writeFileSync(path, damaged);
            const outcome = await reopened(dir).catch((thrown: { code?: string }) => thrown.code);
            if (outcome === 'store_corrupt') refused++;
            else expect(outcome, `bit of byte ${at}`).toEqual(after.get(frames - 1));
          }
          expect(refused).toBeGreaterThanOrEqual(Math.floor(bytes.length / step) - 4);
        }),
      ),
      { numRuns: isFull ? 4 : 2 },
    );
  });
});
