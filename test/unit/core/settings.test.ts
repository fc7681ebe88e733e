import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MillraceError } from '../../../src/core/errors.ts';
import {
  formatDuration,
  formatRate,
  formatSize,
  parseDuration,
  parseRate,
  parseSize,
} from '../../../src/core/quantity.ts';
import {
  describeSetting,
  environmentName,
  formatValue,
  nearest,
  parseSettings,
  renderHelp,
  type SettingInputs,
  type SettingTable,
} from '../../../src/core/settings.ts';

const TABLE = {
  format: { type: 'string', choices: ['avro', 'protobuf'], default: 'avro', help: 'wire format' },
  count: { type: 'int', default: '10', min: 0, max: 1000, help: 'how many' },
  shift: { type: 'number', default: '0', help: 'added to each' },
  'dry-run': { type: 'bool', default: 'false', help: 'only say what would be done' },
  wait: { type: 'duration', default: '5s', min: 100, help: 'how long' },
  budget: { type: 'size', default: '64MiB', help: 'how much' },
  rate: { type: 'rate', default: '200k', help: 'how fast' },
  topics: { type: 'list', default: '', help: 'which' },
  versions: { type: 'ints', default: '1,2', help: 'which ones' },
  listen: { type: 'listen', default: '127.0.0.1:0', help: 'where' },
  url: { type: 'string', help: 'optional', env: ['SERVICE_URL'] },
  password: { type: 'string', help: 'hidden', secret: true, choices: ['right'] },
} as const satisfies SettingTable;

const parse = (argv: readonly string[], more: Partial<SettingInputs> = {}) =>
  parseSettings(TABLE, { argv, env: {}, ...more });

/** Returns the error of a call. Fails the test if the call throws no error or a foreign error. */
function errorOf(call: () => unknown): MillraceError {
  try {
    call();
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(MillraceError);
    return thrown as MillraceError;
  }
  throw new Error('nothing was thrown');
}

describe('flag forms', () => {
  const dashes = fc.constantFrom('-', '--');
  const joined = fc.boolean();
  const samples: ReadonlyArray<readonly [keyof typeof TABLE, string, unknown]> = [
    ['format', 'protobuf', 'protobuf'],
    ['count', '77', 77],
    ['shift', '-2.5', -2.5],
    ['shift', '.5', 0.5],
    ['shift', '-1e-3', -0.001],
    ['dry-run', 'true', true],
    ['dry-run', 'false', false],
    ['wait', '250ms', 250],
    ['budget', '4GiB', 4 * 2 ** 30],
    ['rate', '1.5M', 1_500_000],
    ['topics', 'a, b,,c', ['a', 'b', 'c']],
    ['versions', '3,-4', [3, -4]],
    ['listen', ':8081', '127.0.0.1:8081'],
    ['listen', '8081', '127.0.0.1:8081'],
    ['listen', '[::1]:0', '[::1]:0'],
    ['url', '-', '-'],
    ['url', 'a=b=c', 'a=b=c'],
  ];

  test('a flag means the same with one or two dashes, with equals or a space', () => {
    fc.assert(
      fc.property(fc.constantFrom(...samples), dashes, joined, ([name, text, value], dash, equals) => {
        const argv = equals ? [`${dash}${name}=${text}`] : [`${dash}${name}`, text];
        expect(parse(argv).values[name]).toEqual(value);
        expect(parse(argv).sources[name]).toBe('flag');
      }),
    );
  });

  test('the flags give the same values in any order', () => {
    const argv = ['-format=protobuf', '--count=3', '-dry-run', '-wait=1m', '-topics=x'];
    fc.assert(
      fc.property(fc.shuffledSubarray(argv, { minLength: argv.length }), (shuffled) => {
        expect(parse(shuffled).values).toEqual(parse(argv).values);
      }),
    );
  });

  test('a switch needs no value and can be turned off', () => {
    expect(parse(['-dry-run']).values['dry-run']).toBe(true);
    expect(parse(['-no-dry-run']).values['dry-run']).toBe(false);
    expect(parse(['-no-dry-run=false']).values['dry-run']).toBe(true);
    expect(parse(['-dry-run=off'], {}).values['dry-run']).toBe(false);
    for (const word of ['-no-dry-run=maybe', '-dry-run=maybe'])
      expect(errorOf(() => parse([word])).code).toBe('bad_value');
    expect(parse(['-dry-run', 'name'], { positionalMax: 1 }).positional).toEqual(['name']);
  });

  test('a flag without its value does not consume the next flag', () => {
    expect(errorOf(() => parse(['-format', '-dry-run'])).message).toBe('-format needs a value');
    expect(errorOf(() => parse(['-format'])).row.exit).toBe(2);
  });

  test('a repeated flag is an error, and a repeated list is extended', () => {
    expect(errorOf(() => parse(['-count=1', '--count', '2'])).message).toBe('-count is given twice');
    expect(errorOf(() => parse(['-dry-run', '-no-dry-run'])).code).toBe('usage');
    expect(parse(['-topics=a,b', '-topics', 'c']).values.topics).toEqual(['a', 'b', 'c']);
    expect(parse(['-versions=1', '-versions=5']).values.versions).toEqual([1, 5]);
  });

  test('negative numbers and a lone dash are arguments, and -- ends the flags', () => {
    const inputs = { positionalMax: 4 };
    expect(parse(['-5', '-', '--', '-count=1'], inputs).positional).toEqual(['-5', '-', '-count=1']);
    expect(parse(['-5', '-', '--', '-count=1'], inputs).values.count).toBe(10);
    expect(errorOf(() => parse(['stray'])).message).toBe('unexpected argument "stray"');
  });
});

describe('precedence', () => {
  test('a flag takes precedence over the environment, the config file and the default, whichever of them are set', () => {
    fc.assert(
      fc.property(fc.boolean(), fc.boolean(), fc.boolean(), (flag, environment, config) => {
        const parsed = parse(flag ? ['-count=1'] : [], {
          env: environment ? { MILLRACE_COUNT: '2' } : {},
          ...(config ? { config: { count: 3 } } : {}),
        });
        const expected = flag
          ? ['flag', 1]
          : environment
            ? ['environment', 2]
            : config
              ? ['config', 3]
              : ['default', 10];
        expect([parsed.sources.count, parsed.values.count]).toEqual(expected);
      }),
    );
  });

  test('the own environment name takes precedence over further names, and an empty variable does not count', () => {
    expect(parse([], { env: { SERVICE_URL: 'b' } }).values.url).toBe('b');
    expect(parse([], { env: { SERVICE_URL: 'b', MILLRACE_URL: 'a' } }).values.url).toBe('a');
    expect(parse([], { env: { MILLRACE_URL: '', MILLRACE_COUNT: '' } }).values).toMatchObject({
      url: undefined,
      count: 10,
    });
    expect(environmentName('mem-budget')).toBe('MILLRACE_MEM_BUDGET');
  });

  test('the parsed settings are frozen', () => {
    const { values, sources, positional } = parse(['-topics=a']);
    for (const one of [values, sources, positional, values.topics]) expect(Object.isFrozen(one)).toBe(true);
  });

  test('a config value may be a number, a switch or a list', () => {
    const config = { count: 5, 'dry-run': true, topics: ['a', 'b'], wait: '2m' };
    expect(parse([], { config }).values).toMatchObject({
      count: 5,
      'dry-run': true,
      topics: ['a', 'b'],
      wait: 120_000,
    });
  });
});

describe('bad input', () => {
  test('the error for an unknown flag names the nearest flag', () => {
    const error = errorOf(() => parse(['-fromat=avro']));
    expect(error.message).toBe('unknown flag -fromat');
    expect(error.next).toBe('did you mean -format? (-help lists all)');
    expect(error.row.exit).toBe(2);
    expect(errorOf(() => parse(['-zzzzzzzz'])).next).toBe('see -help for the flags of this command');
  });

  test('a property name of every object is not a flag', () => {
    for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
      expect(errorOf(() => parse([`-${name}=1`])).code).toBe('unknown_flag');
      const config = JSON.parse(`{"${name}": 1}`) as Record<string, unknown>;
      expect(errorOf(() => parse([], { config })).code).toBe('unknown_flag');
    }
  });

  test('the error for an unknown config key names the nearest key', () => {
    const error = errorOf(() => parse([], { config: { cuont: 1 } }));
    expect(error.message).toContain('cuont');
    expect(error.next).toBe('did you mean count?');
  });

  test.each([
    ['-count=1.5', 'whole number'],
    ['-count=99999999999999999999', 'whole number'],
    ['-count=1001', 'at most', 'the most is 1000'],
    ['-count=-1', 'too small', 'the least is 0'],
    ['-shift=1e999', 'a number'],
    ['-shift=ten', 'a number'],
    ['-dry-run=maybe', 'true or false'],
    ['-wait=5', 'a duration'],
    ['-wait=5 weeks', 'a duration'],
    ['-wait=-5s', 'a duration'],
    ['-wait=99ms', 'too small', 'the least is 100ms'],
    ['-wait=1e300d', 'a duration'],
    ['-budget=4XiB', 'a size'],
    ['-rate=fast', 'a rate'],
    ['-versions=1,,2', 'whole numbers'],
    ['-listen=host', 'host:port'],
    ['-listen=host:70000', 'host:port'],
    ['-listen=http://host:80', 'host:port'],
    ['-format=json', 'not a choice', 'choose from avro, protobuf'],
  ])('the flag %s is refused with an error that gives the reason', (flag, why, next = '') => {
    const error = errorOf(() => parse([flag]));
    expect(error.row.exit).toBe(2);
    expect(error.toLine()).toContain(next === '' ? why : next);
  });

  test('the error for a bad value names its source', () => {
    expect(errorOf(() => parse([], { env: { MILLRACE_COUNT: 'x' } })).message).toContain('MILLRACE_COUNT=x');
    expect(errorOf(() => parse([], { config: { count: 'x' } })).message).toContain('config count=x');
  });

  test('a property takes everything after its equals sign, and a harmless property ends at a comma', () => {
    const table = {
      property: { type: 'properties', default: '', help: 'p', shown: new Set(['acks', 'security.protocol']) },
    } as const satisfies SettingTable;
    const read = (argv: readonly string[], env = {}, config = {}) =>
      parseSettings(table, { argv, env, config }).values.property;
    const pem = '-----BEGIN KEY-----\nab/c\nkq=\n-----END KEY-----\n';
    expect(read(['-property=sasl.password=a, b&c=d', '-property=security.protocol=ssl,acks=1'])).toEqual({
      'sasl.password': 'a, b&c=d',
      'security.protocol': 'ssl',
      acks: '1',
    });
    expect(read([`-property=ssl.key.pem=${pem}`])).toEqual({ 'ssl.key.pem': pem.trimEnd() });
    expect(read([], { MILLRACE_PROPERTY: `ssl.key.pem=${pem.trimEnd()}\nsasl.password=x\n` })).toEqual({
      'ssl.key.pem': pem.trimEnd(),
      'sasl.password': 'x',
    });
    expect(read([], {}, { property: ['sasl.password=a,b', 'acks=all'] })).toEqual({
      'sasl.password': 'a,b',
      acks: 'all',
    });
    expect(errorOf(() => read(['-property=hunter2'])).toLine()).not.toContain('hunter2');
  });

  test('the error about a secret does not repeat it', () => {
    const line = errorOf(() => parse(['-password=hunter2'])).toLine();
    expect(line).not.toContain('hunter2');
  });

  test('a required setting must be present and not empty', () => {
    const table = { brokers: { type: 'string', required: true, help: 'host:port' } } as const;
    expect(errorOf(() => parseSettings(table, { argv: [], env: {} })).message).toBe('-brokers is required');
    expect(errorOf(() => parseSettings(table, { argv: ['-brokers='], env: {} })).message).toContain(
      'is empty',
    );
    const brokers: string = parseSettings(table, { argv: ['-brokers=a:1'], env: {} }).values.brokers;
    expect(brokers).toBe('a:1');
  });

  describe('flags without effect', () => {
    const table = {
      mode: { type: 'string', choices: ['poll', 'wal'], default: 'poll', help: 'how' },
      slot: { type: 'string', needs: ['mode=wal'], help: 'with wal' },
      list: { type: 'bool', default: 'false', help: 'list' },
      redo: { type: 'bool', default: 'false', excludes: ['list'], help: 'take again' },
      to: { type: 'string', default: 'file', help: 'where to' },
      table: { type: 'string', needs: ['to=sql:*'], help: 'of a database' },
      only: { type: 'int', needs: ['list', 'redo'], help: 'which' },
      share: { type: 'number', default: '0', help: 'of all' },
      seed: { type: 'int', default: '1', needs: ['share'], help: 'which of them' },
      topic: { type: 'string', default: 't', excludes: ['list', 'redo'], help: 'read' },
      every: { type: 'duration', default: '1s', excludes: ['mode=wal'], help: 'between two looks' },
    } as const satisfies SettingTable;
    const take = (argv: readonly string[], more: Partial<SettingInputs> = {}) =>
      parseSettings(table, { argv, env: {}, ...more });

    test.each([
      [['-slot=s'], '-slot changes nothing without -mode=wal', 'give -mode=wal too, or leave -slot out'],
      [['-slot=s', '-mode=poll'], '-slot changes nothing without -mode=wal'],
      [['-table=t'], '-table changes nothing without -to=sql:…'],
      [['-table=t', '-to=sql'], '-table changes nothing without -to=sql:…'],
      [['-only=1'], '-only changes nothing without -list or -redo'],
      [['-only=1', '-list=false'], '-only changes nothing without -list or -redo'],
      [['-seed=2', '-share=0'], '-seed changes nothing without -share'],
      [['-list', '-redo'], '-redo changes nothing with -list', 'leave -redo or -list out'],
      [['-redo', '-topic=x'], '-topic changes nothing with -redo'],
      [['-every=2s', '-mode=wal'], '-every changes nothing with -mode=wal', 'leave -every or -mode=wal out'],
    ])('the arguments %j are refused, because a flag has no effect', (argv, message, next?: string) => {
      const error = errorOf(() => take(argv));
      expect([error.message, error.row.exit]).toEqual([message, 2]);
      if (next !== undefined) expect(error.next).toBe(next);
    });

    test.each([
      [['-slot=s', '-mode=wal']],
      [['-table=t', '-to=sql:x']],
      [['-only=0', '-redo']],
      [['-seed=2', '-share=0.1']],
      [['-list', '-redo=false']],
    ])('the arguments %j are accepted', (argv) => {
      expect(() => take(argv)).not.toThrow();
    });

    test('a setting without effect is allowed in the environment and the config file, but not against other settings there', () => {
      const env = { MILLRACE_SLOT: 's', MILLRACE_ONLY: '3', MILLRACE_TOPIC: 'x' };
      expect(take([], { env }).values).toMatchObject({ slot: 's', only: 3 });
      expect(take(['-redo'], { env }).values).toMatchObject({ redo: true, topic: 'x' });
      expect(take(['-list'], { config: { redo: true } }).values.list).toBe(true);
      expect(errorOf(() => take([], { config: { list: true, redo: true } })).code).toBe('usage');
      expect(errorOf(() => take(['-redo'], { config: { list: true } })).code).toBe('usage');
    });
  });

  test('any arguments end in values or in a MillraceError of exit code 2', () => {
    const word = fc.oneof(
      fc.string(),
      fc.constantFrom('-', '--', '-count', '-format=', '--no-dry-run', '-wait=1s', '-topics'),
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 6 }), (argv) => {
        try {
          parse(argv, { positionalMax: 3 });
        } catch (thrown) {
          expect(thrown).toBeInstanceOf(MillraceError);
          expect((thrown as MillraceError).row.exit).toBe(2);
        }
      }),
    );
  });
});

describe('quantities', () => {
  test.each([
    ['250ms', 250],
    ['5s', 5000],
    ['2m', 120_000],
    ['24h', 86_400_000],
    ['1d', 86_400_000],
    ['1.5s', 1500],
    ['1.001s', 1001],
    ['0', 0],
    ['0s', 0],
    ['100us', 0.1],
    ['2 m', 120_000],
    ['2M', 120_000],
  ])('the duration %s is parsed to milliseconds', (text, ms) => expect(parseDuration(text)).toBe(ms));

  test.each([
    ['64k', 64_000],
    ['64KiB', 65_536],
    ['512MiB', 2 ** 29],
    ['4GiB', 2 ** 32],
    ['1.5kib', 1536],
    ['10', 10],
    ['7b', 7],
  ])('the size %s is parsed to bytes', (text, bytes) => expect(parseSize(text)).toBe(bytes));

  test.each([
    ['200k', 200_000],
    ['1.5M', 1_500_000],
    ['5000', 5000],
    ['1e6', 1_000_000],
    ['0.5', 0.5],
  ])('the rate %s is parsed to a number', (text, value) => expect(parseRate(text)).toBe(value));

  test.each(['', '.', '1.', 's', '1 2', '-1', 'NaN', 'Infinity', '1ee3', '0x10', '1_000'])(
    'the text %j is not a quantity',
    (text) => {
      expect([parseDuration(text), parseSize(text), parseRate(text)]).toEqual([
        undefined,
        undefined,
        undefined,
      ]);
    },
  );

  test('a parsed quantity survives formatting and parsing', () => {
    const whole = fc.nat({ max: 2 ** 31 });
    fc.assert(
      fc.property(whole, fc.constantFrom(1, 1000, 60_000, 3_600_000), (n, unit) => {
        expect(parseDuration(formatDuration(n * unit))).toBe(n * unit);
        expect(parseSize(formatSize(n * 1024))).toBe(n * 1024);
        expect(parseRate(formatRate(n))).toBe(n);
      }),
    );
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e9, noNaN: true }), (n) => {
        const text = `${n}`;
        const ms = parseDuration(`${text}ms`);
        if (ms !== undefined) expect(parseDuration(formatDuration(ms))).toBe(ms);
      }),
    );
  });

  test('a value is formatted as a user would write it', () => {
    expect([
      formatValue('duration', 300_000),
      formatValue('size', 2 ** 29),
      formatValue('rate', 200_000),
    ]).toEqual(['5m', '512MiB', '200k']);
    expect(formatValue('list', ['a', 'b'])).toBe('a,b');
  });
});

describe('nearest name', () => {
  test('a name with a dropped, swapped or doubled letter still finds its flag', () => {
    const names = Object.keys(TABLE).filter((name) => name.length > 4);
    fc.assert(
      fc.property(
        fc.constantFrom(...names),
        fc.nat(),
        fc.constantFrom('drop', 'double'),
        (name, where, how) => {
          const at = where % name.length;
          const typo =
            how === 'drop'
              ? name.slice(0, at) + name.slice(at + 1)
              : name.slice(0, at) + name.charAt(at) + name.slice(at);
          expect(nearest(typo, Object.keys(TABLE))).toBe(name);
        },
      ),
    );
  });

  test('the beginning of a name finds the flag, and nonsense finds nothing', () => {
    expect(nearest('dry', Object.keys(TABLE))).toBe('dry-run');
    expect(nearest('qqqqqq', Object.keys(TABLE))).toBeUndefined();
    expect(nearest('x'.repeat(100_000), Object.keys(TABLE))).toBeUndefined();
  });
});

test('the help text names every flag with its default, range and environment variable', () => {
  const help = renderHelp(TABLE);
  for (const name of Object.keys(TABLE)) expect(help).toContain(`  -${name}=`);
  expect(help).toContain('how many (default 10; 0 to 1000; env MILLRACE_COUNT)');
  expect(help).toContain('optional (env MILLRACE_URL, SERVICE_URL)');
  expect(describeSetting('wait', TABLE.wait)).toMatchObject({
    form: 'duration',
    default: '5s',
    range: 'at least 100ms',
  });
});
