/** Job files of `millrace engine`: what is read, where each mistake is, the published schema, and
 *  the file that a first run prints. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, describe, expect, it, test } from 'vitest';
import { JOB_BYTES_MAX, readJobDocument } from '../../../src/bin/engine/jobfile/document.ts';
import { inferredJob, jobFileText } from '../../../src/bin/engine/jobfile/inferred.ts';
import { readJob } from '../../../src/bin/engine/jobfile/read.ts';
import { jobTable } from '../../../src/bin/engine/jobfile/schema.ts';
import { command } from '../../../src/bin/engine.ts';
import { formatValue, parseSettings, type Setting } from '../../../src/core/settings.ts';
import type { Command } from '../../../src/shell/command.ts';
import { loadSettings, settingTableOf } from '../../../src/shell/load-settings.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { fakeWorld, start } from '../shell/fake-world.ts';

const engine = command as unknown as Command;
const table = settingTableOf(engine);
const known = jobTable(table);
const folder = mkdtempSync(join(tmpdir(), 'millrace-job-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
function fileOf(text: string | Uint8Array): string {
  const path = join(folder, `job-${files++}.yaml`);
  writeFileSync(path, text);
  return path;
}

const texts = (text: string): Record<string, string> => {
  const { entries, problems } = readJobDocument(text, known);
  expect(problems).toEqual([]);
  return Object.fromEntries([...entries.values()].map((entry) => [entry.name, entry.text]));
};

/** Problems as `line:column code message`. */
const problems = (text: string): readonly string[] =>
  readJobDocument(text, known).problems.map(
    ({ line, column, code, message }) => `${line}:${column} ${code} ${message}`,
  );

describe('the texts of a job file', () => {
  it('a value means what it means behind a flag, in each form of YAML', () => {
    const read = texts(
      [
        '# a comment',
        'topic: 0755',
        "key: [country, 'user_id:i64']",
        'aggregate:',
        '  - count',
        '  - sum(amount) as revenue',
        'where: >-',
        '  status = "PAID"',
        '  and amount > 0',
        'time: "@timestamp"',
        'allowed-lateness: 0',
        'mem-budget: 536870912',
        'shards: 2',
        'migrate: true',
        'quarantine: off',
        'broker-property:',
        '  - security.protocol=plaintext',
        '  - sasl.password=a,b',
      ].join('\n'),
    );
    expect(read).toEqual({
      topic: '0755',
      key: 'country,user_id:i64',
      aggregate: 'count,sum(amount) as revenue',
      where: 'status = "PAID" and amount > 0',
      time: '@timestamp',
      'allowed-lateness': '0',
      'mem-budget': '536870912',
      shards: '2',
      migrate: 'true',
      quarantine: 'off',
      'broker-property': 'security.protocol=plaintext\0sasl.password=a,b',
    });
  });

  it.each([
    ['an unknown name', 'topic: a\nwindw: session', '2:1 unknown_flag windw is no setting of a job'],
    [
      'a value that is no duration',
      'size:   1 minute',
      '1:9 bad_value size=1 minute is not a duration such as',
    ],
    ['a value that is no choice', 'topic: a\nwindow: hourly', '2:9 bad_value window=hourly is not a choice'],
    ['a number that is too large', 'shards: 300', '1:9 bad_value shards=300 is too large'],
    ['a number in quotes', 'shards: "2"', '1:9 bad_job shards is not a number'],
    ['a word that was a boolean in YAML 1.1', 'migrate: yes', '1:10 bad_job migrate is not true or false'],
    ['a value that is left out', 'topic: a\nkey:\n', '2:5 bad_job key has no value'],
    ['a mapping', 'topic:\n  name: a', '2:3 bad_job topic is neither a value nor a list of values'],
    ['a list where one value is due', 'topic: [a, b]', '1:8 bad_job topic is a list, and takes one value'],
    ['a list in a list', 'key: [[a]]', '1:7 bad_job key is neither a value nor a list of values'],
    ['an alias', 'topic: &a b\nkey: *a', '1:11 bad_job topic has an anchor or an alias'],
    ['a setting twice', 'topic: a\ntopic: b', '2:1 bad_job the setting is given twice'],
    ['a second document', 'topic: a\n---\ntopic: b', '2:1 bad_job a second YAML document begins'],
    ['a text that YAML reserves', 'time: @timestamp', '1:7 bad_job a text without quotes begins with'],
    ['a list of settings', '- topic: a', '1:1 bad_job the file is no mapping of settings'],
    ['no setting', '', '1:1 bad_job the file is no mapping of settings'],
    ['a name that is no text', '1: a', '1:1 bad_job the name of a setting is no text'],
    ['another file of settings', 'config: a.json', '1:1 unknown_flag config is no setting of a job'],
  ])('a file with %s has a problem at its line and column', (_what, text, expected) => {
    expect(problems(text)[0]).toContain(expected);
  });

  it('all problems of a file are found', () => {
    expect(problems('size: x\nshards: 0\nnope: 1\nkey: [a]').map((one) => one.split(' ')[0])).toEqual([
      '1:7',
      '2:9',
      '3:1',
    ]);
  });

  it('a problem does not repeat a secret', () => {
    const found = [
      ...problems('registry-user: [a, hunter2]'),
      ...problems('broker-property: hunter2'),
      ...problems('sink: "postgres://me:hunter2@db/x'),
      ...problems('hunter2 hunter2: x'),
    ];
    expect(found).toHaveLength(4);
    expect(found.join()).not.toContain('hunter2');
  });
});

describe('hostile job files', () => {
  it('a file above the limit is refused before it is parsed', () => {
    const path = fileOf(`topic: ${'a'.repeat(JOB_BYTES_MAX)}`);
    expect(() => readJob(path, table)).toThrow(`is larger than ${JOB_BYTES_MAX} bytes`);
  });

  it('a device without an end is refused at the limit', () => {
    expect(() => readJob('/dev/zero', table)).toThrow(`is larger than ${JOB_BYTES_MAX} bytes`);
  });

  it('bytes that are not UTF-8 are refused', () => {
    expect(() => readJob(fileOf(Buffer.from([0x61, 0xff])), table)).toThrow('is not UTF-8');
  });

  it.each([
    ['nested lists', `key: ${'['.repeat(30_000)}`],
    ['nested mappings', `${'{a: '.repeat(12_000)}`],
    [
      'aliases that would expand',
      ['a: &a [x,x]', ...'bcdefghi'.split('').map((at, i) => `${at}: &${at} [*${'abcdefgh'[i]},*a]`)].join(
        '\n',
      ),
    ],
    ['many documents', '---\n'.repeat(12_000)],
    ['a long name', `? ${'k'.repeat(60_000)}\n: 1`],
  ])('a file of %s is a problem, in bounded time', (_what, text) => {
    expect(problems(text).length).toBeGreaterThan(0);
  });
});

describe('precedence', () => {
  const sourcesOf = (argv: readonly string[], env: Record<string, string> = {}) => {
    const { values, sources } = loadSettings(engine, argv, env);
    const shown = values as unknown as Record<string, unknown>;
    return ['topic', 'size', 'shards', 'window'].map((name) => `${String(shown[name])} (${sources[name]})`);
  };

  test('a flag overrides the environment, which overrides the job file, which overrides the configuration', () => {
    const config = fileOf(JSON.stringify({ topic: 'c', size: '4s', shards: 4, window: 'session' }));
    const job = fileOf('topic: j\nsize: 3s\nshards: 3');
    expect(
      sourcesOf([`-job=${job}`, `-config=${config}`, '-topic=f'], {
        MILLRACE_TOPIC: 'e',
        MILLRACE_SIZE: '2s',
      }),
    ).toEqual(['f (flag)', '2000 (environment)', '3 (job file)', 'session (config)']);
  });

  test('a flag that makes a setting of the job file needless is accepted', () => {
    const job = fileOf('sink: postgres:postgres://me@db/x\nsink-table: revenue');
    expect(loadSettings(engine, [`-job=${job}`, '-sink=rocksdb'], {}).sources['sink-table']).toBe('job file');
  });

  test('a run is refused with the first problem of its job file and the number of the others', () => {
    const job = fileOf('topic: a\nsize: x\nkey: a b');
    expect(() => loadSettings(engine, [`-job=${job}`], {})).toThrow(
      `${job}:2:7: size=x is not a duration such as 250ms, 5s, 2m`,
    );
    expect(() => loadSettings(engine, [`-job=${job}`], {})).toThrow(
      expect.objectContaining({
        code: 'bad_job',
        row: expect.objectContaining({ exit: 2 }),
        next: expect.stringContaining(`engine validate -job=${job} prints 1 more problem`),
      }),
    );
  });
});

describe('engine validate', () => {
  const validate = async (text: string, ...more: readonly string[]) => {
    const path = fileOf(text);
    const { code, world } = start(
      engine,
      ['validate', `-job=${path}`, '-log-level=silent', ...more],
      fakeWorld(),
    );
    return { code: await code, stdout: world.stdout().replaceAll(path, 'job.yaml'), stderr: world.stderr() };
  };

  it('a valid file is exit 0, and the answer says what was not checked', async () => {
    expect(await validate('topic: orders\nkey: [country, user_id]\nsize: 1h')).toEqual({
      code: 0,
      stdout:
        'job.yaml is a valid job; the fields were not compared with a schema, because no registry is given; the topic was not looked up, because no brokers are given\n',
      stderr: '',
    });
  });

  it('each mistake is a line with its place, its reason and the next step, and the exit code is 1', async () => {
    const { code, stdout } = await validate(
      [
        'topic: orders',
        'key:',
        '  - country',
        '  - user id',
        'where: status = PAID',
        'aggregate:',
        '  - count',
        '  - median(amount)',
        'slide: 10s',
        'sink: kafka:orders',
        'sink-table: results',
        'mem-budget: 1MiB',
        'quarantine: orders',
        'source: group',
        'start: yesterday',
      ].join('\n'),
    );
    expect(code).toBe(1);
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => line.split(' ')[0])).toEqual([
      'job.yaml:4:5:',
      'job.yaml:5:17:',
      'job.yaml:8:5:',
      'job.yaml:9:8:',
      'job.yaml:10:7:',
      'job.yaml:11:13:',
      'job.yaml:12:13:',
      'job.yaml:13:13:',
      'job.yaml:14:9:',
      'job.yaml:15:8:',
      'job.yaml',
    ]);
    for (const line of lines.slice(0, -1)) expect(line).toMatch(/: .+; .+ \[[a-z_]+\]$/);
    expect(lines.at(-1)).toBe('job.yaml has 10 problems');
  });

  it('-json prints the problems as one document', async () => {
    const { code, stdout } = await validate('topic: a\nsize: x', '-json');
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      valid: false,
      problems: [{ line: 2, column: 7, setting: 'size', code: 'bad_value', next: expect.any(String) }],
    });
  });

  it('a name of a result column that is a part of the key is a problem', async () => {
    const { stdout } = await validate('key: "sum_a:string"\naggregate: sum(a)');
    expect(stdout).toMatch(
      /^job.yaml:2:12: -aggregate and -key both have a column sum_a; .* \[bad_setting\]/,
    );
  });

  it.each([
    ['without a file', ['validate'], /engine validate needs -job; give -job=FILE \[usage\]/],
    ['with a flag of a run', ['validate', '-job=x', '-size=1m'], /-size changes nothing for engine validate/],
    ['with a file that does not exist', ['validate', '-job=/nowhere'], /\/nowhere cannot be read \(ENOENT\)/],
  ])('a validation %s is exit 2', async (_what, argv, message) => {
    const { code, world } = start(engine, argv, fakeWorld());
    expect(await code).toBe(2);
    expect(world.stderr()).toMatch(message);
  });

  it('a checkpoint store beside a sink that is lost with the machine has its place, and the error of a run', async () => {
    const job = 'checkpoint-store: /x\nsink: rocksdb:/r\nwindows:\n  - {name: a, window: tumbling, size: 1m}';
    const { code, stdout } = await validate(job, '-json');
    expect(code).toBe(1);
    expect(JSON.parse(stdout).problems).toEqual([
      expect.objectContaining({
        ...{ line: 2, column: 7, code: 'usage' },
        message: expect.stringContaining('is lost with its machine'),
      }),
    ]);
  });

  it('windows over different events, and aggregates of a window beside a value, have their places', async () => {
    const of = (setting: string, aggregate: string): string =>
      [
        ...['format: json', setting, 'windows:', '  - {name: a, window: tumbling, size: 1m}'],
        `  - {name: b, window: session, gap: 1s, aggregate: "${aggregate}"}`,
      ].join('\n');
    const problems = async (text: string): Promise<unknown> => {
      const { code, stdout } = await validate(text, '-json');
      expect(code).toBe(1);
      return JSON.parse(stdout).problems;
    };
    expect(await problems(of('aggregate: count', 'sum(items[].qty)'))).toEqual([
      expect.objectContaining({
        ...{ line: 5, column: 52, code: 'usage' },
        message:
          'the windows have different events: window a has records, and window b has the elements of items[]',
      }),
    ]);
    expect(await problems(of('value: amount', 'max(amount)'))).toEqual([
      expect.objectContaining({
        line: 2,
        message: expect.stringContaining('-value and -aggregate both say'),
      }),
    ]);
  });

  it('-offline without validate is refused', async () => {
    const { code, world } = start(
      engine,
      ['-offline', '-brokers=127.0.0.1:1', '-listen=127.0.0.1:0'],
      fakeWorld(),
    );
    expect(await code).toBe(2);
    expect(world.stderr()).toContain('-offline changes nothing without validate');
  });

  it('a registry that does not answer is exit 3, and -offline does not ask it', async () => {
    const text = 'topic: orders\nregistry: http://127.0.0.1:1';
    expect(await validate(text, '-offline')).toMatchObject({ code: 0 });
    expect(await validate(text)).toMatchObject({ code: 3, stderr: expect.stringContaining('127.0.0.1:1') });
  });
});

describe('the published schema', () => {
  const schema = JSON.parse(
    readFileSync(join(packageRoot(), 'docs/reference/engine-job.schema.json'), 'utf8'),
  ) as { readonly properties: Readonly<Record<string, unknown>> };
  const ajv = new Ajv({ strict: true, strictTypes: false });
  const accepts = ajv.compile(schema);

  /** Values of every kind, with those that each type of setting and its limits accept or refuse. */
  const valuesOf = (setting: Setting): readonly unknown[] => [
    ...[true, false, null, '', 'x', 'a,b', 0, 1, -1, 1.5, 1e21, '0', '7', '250ms', '5 s', '1H', '.5m', '2M'],
    ...['64KiB', '4gib', '200k', '1e3s', '99999999999d', '127.0.0.1:80', ':80', '70000', 'a=b', 'off', 'yes'],
    ...[[], ['a'], ['a', 'b'], [1], [true], [[]], [null], {}, { a: 1 }],
    ...(setting.choices ?? []),
    ...[setting.min, setting.max].flatMap((limit) =>
      limit === undefined ? [] : [limit, limit - 1, limit + 1, formatValue(setting.type, limit)],
    ),
    ...(setting.default === undefined ? [] : [setting.default]),
  ];
  const isRead = (name: string, value: unknown): boolean =>
    readJobDocument(JSON.stringify({ [name]: value }), known).problems.length === 0;

  test('the schema has exactly the settings of a job', () => {
    expect(Object.keys(schema.properties)).toEqual([...Object.keys(known), 'windows']);
    expect(accepts({ topc: 'a' })).toBe(false);
  });

  test('the schema accepts every value that a job file may have', () => {
    for (const [name, setting] of Object.entries(known))
      for (const value of valuesOf(setting))
        if (isRead(name, value))
          expect([name, value, accepts({ [name]: value })]).toEqual([name, value, true]);
  });

  test('a value that the schema accepts is refused only for a limit or a form that no schema states', () => {
    const unstated = new Set<string>();
    for (const [name, setting] of Object.entries(known))
      for (const value of valuesOf(setting))
        if (accepts({ [name]: value }) && !isRead(name, value)) unstated.add(setting.type);
    // Texts with units have limits in their numbers; addresses and properties have a form.
    expect([...unstated].sort()).toEqual(['duration', 'listen', 'properties', 'rate', 'size']);
  });
});

describe('the job of a first run', () => {
  const printed = (argv: readonly string[]) => {
    const { values } = loadSettings(engine, argv, {});
    const definition = { format: 'avro', key: '@key:text', time: 'created_at' } as const;
    return jobFileText(inferredJob(table, values as unknown as Record<string, unknown>, definition));
  };

  it('a printed job file is valid and has the settings of the run', () => {
    const argv = [
      ...['-brokers=a:1,b:2', '-topic=orders', '-size=90s', '-where=status = "PAID # all"', '-shards=4'],
      ...[
        '-create-topics=false',
        '-allowed-lateness=0',
        '-mem-budget=512MiB',
        '-aggregate=count,sum(a) as b',
      ],
    ];
    const path = fileOf(printed(argv));
    const { values, sources } = parseSettings(known, { argv: [], env: {}, job: readJob(path, table) });
    const asked = loadSettings(engine, argv, {}).values as unknown as Record<string, unknown>;
    for (const name of Object.keys(known)) {
      const inferred = { format: 'avro', key: '@key:text', time: 'created_at' }[name];
      expect([name, (values as Record<string, unknown>)[name]]).toEqual([name, inferred ?? asked[name]]);
    }
    expect(Object.values(sources).filter((source) => source === 'job file')).toHaveLength(12);
  });

  it('a printed job file names the settings with secrets and leaves them out', () => {
    const text = printed([
      '-sink=postgres:postgres://me:hunter2@db/x',
      '-registry-user=a:hunter2',
      '-registry=http://r',
    ]);
    expect(text).not.toContain('hunter2');
    expect(text).toContain('they may hold secrets: registry-user, sink.');
    expect(readJob(fileOf(text), table)).toMatchObject({ registry: 'http://r' });
  });
});
