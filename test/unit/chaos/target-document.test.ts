/** File of a chaos target: what is read, and what is refused with its place. */
import { describe, expect, it } from 'vitest';
import { type ChaosTarget, readTarget } from '../../../src/chaos/target/document.ts';
import { fill, fillLast, namesIn } from '../../../src/chaos/target/template.ts';

const shop = {
  command: 'node shop.mjs -db={postgres}',
  env: { PORT: '{port}', LABELS: 'http://{labels}/print' },
  ready: 'http://127.0.0.1:{port}/ready',
};
const labels = { command: ['node', 'labels.mjs', '{brokers}'], ready: 'tcp://127.0.0.1:{port}' };
const whole = {
  processes: { shop, labels },
  load: { url: 'http://{shop}/parcels/{key}', body: '{"cents": {amount}, "text": "{{key}}"}' },
  reconcile: 'SELECT 1;\n',
};

const read = (value: unknown, environment = {}): ChaosTarget => readTarget(value, 'chaos.yaml', environment);
/** @param change fields that replace those of the whole file */
const changed = (change: object): unknown => ({ ...whole, ...change });

describe('file of a target', () => {
  it('the links of a process are the values that its command and variables name', () => {
    const { processes, load, reconcile } = read(whole);
    expect(processes).toMatchObject([
      { name: 'shop', usesPostgres: true, usesBrokers: false, peers: ['labels'], mustStay: false },
      { name: 'labels', usesPostgres: false, usesBrokers: true, peers: [] },
    ]);
    expect(load).toMatchObject({ method: 'POST', process: 'shop', sameAnswers: false });
    expect(reconcile).toBe('SELECT 1');
  });

  it('a topic has four partitions unless it names another number', () => {
    const { topics } = read(changed({ topics: ['a', { name: 'b', partitions: 9 }] }));
    expect(topics).toEqual([
      { topic: 'a', partitions: 4 },
      { topic: 'b', partitions: 9 },
    ]);
  });

  it.each<[string, unknown, RegExp]>([
    ['a text', 'processes', /^chaos\.yaml is no mapping$/],
    ['an unknown field', changed({ procesess: {} }), /^procesess is not known$/],
    ['no process', changed({ processes: {} }), /^processes is empty$/],
    [
      'no command',
      changed({ processes: { shop: { ready: shop.ready } } }),
      /^processes\.shop\.command is missing$/,
    ],
    ['a reserved name', changed({ processes: { kafka: shop } }), /^processes\.kafka is a reserved name$/],
    [
      'a name with a hyphen',
      changed({ processes: { 'a-b': shop } }),
      /^processes\.a-b is no name of a process$/,
    ],
    [
      'a value that does not exist',
      changed({ processes: { shop: { ...shop, command: 'node {prot}' } } }),
      /^processes\.shop has an unknown value \{prot\}$/,
    ],
    [
      'its own address as a peer',
      changed({ processes: { shop: { ...shop, env: { ME: '{shop}' } }, labels } }),
      /unknown value \{shop\}$/,
    ],
    [
      'no readiness',
      changed({ processes: { shop: { command: 'node' } } }),
      /^processes\.shop\.ready is missing$/,
    ],
    [
      'readiness of another form',
      changed({ processes: { labels: { ...labels, ready: '{port}' } } }),
      /^processes\.labels\.ready is no address$/,
    ],
    ['no load', changed({ load: undefined }), /^load is missing$/],
    ['a load without an address', changed({ load: { url: '/parcels' } }), /^load\.url is no http address$/],
    [
      'a key in the host',
      changed({ load: { url: 'http://{key}/' } }),
      /^load\.url has \{key\} in the wrong place$/,
    ],
    [
      'a process in the path',
      changed({ load: { url: 'http://{shop}/{labels}' } }),
      /^load\.url has \{labels\} in the wrong place$/,
    ],
    [
      'an unknown value of a body',
      changed({ load: { ...whole.load, body: '{cents}' } }),
      /^load\.body has an unknown value \{cents\}$/,
    ],
    [
      'a mistyped truth value',
      changed({ load: { ...whole.load, same_answers: 'yes' } }),
      /neither true nor false$/,
    ],
    ['a table with quotes', changed({ tables: ['a"; DROP'] }), /^tables\[0\] is no plain name of a table$/],
    [
      'a column with quotes',
      changed({ reconcile: { intents: { table: 'a', key: 'b c' }, effects: { table: 'd', key: 'e' } } }),
      /^reconcile\.intents\.key is no plain name of a column$/,
    ],
    ['no query', changed({ reconcile: undefined }), /^reconcile is missing$/],
    ['an empty query', changed({ reconcile: ' ; ' }), /^reconcile is empty$/],
    ['brokers without a database', changed({ brokers: 'a:1' }), /^postgres is missing beside brokers$/],
    [
      'too many partitions',
      changed({ topics: [{ name: 'a', partitions: 1001 }] }),
      /^topics\[0\]\.partitions is no number of partitions$/,
    ],
  ])('a target with %s is refused with its place', (_, value, message) => {
    expect(() => read(value)).toThrow(message);
  });
});

describe('compose file of a target', () => {
  const services = {
    shop: {
      image: 'shop:1',
      entrypoint: 'node',
      command: `shop.mjs $$HOME \${LEVEL:-info} $WHO`,
      working_dir: './shop',
      environment: ['PORT={port}', 'LEVEL', 'DATABASE_URL=postgres://db/x'],
    },
    db: { image: 'postgres:18' },
  };
  const own = {
    processes: { shop: { env: { DATABASE_URL: '{postgres}' }, ready: 'http://127.0.0.1:{port}/' } },
    load: { url: 'http://{shop}/' },
    reconcile: 'SELECT 1',
  };

  it('command, variables and folder of a service are read, and x-chaos overrides them', () => {
    const { processes } = read({ services, 'x-chaos': own }, { WHO: 'me', LEVEL: 'debug' });
    expect(processes).toMatchObject([
      {
        name: 'shop',
        command: 'node shop.mjs $HOME debug me',
        cwd: './shop',
        env: { PORT: '{port}', LEVEL: 'debug', DATABASE_URL: '{postgres}' },
        usesPostgres: true,
      },
    ]);
  });

  it('a compose file without x-chaos is refused with what to do without containers', () => {
    const thrown = (() => {
      try {
        return read({ services });
      } catch (error) {
        return error as Error & { next: string };
      }
    })();
    expect(thrown).toMatchObject({
      message: 'chaos.yaml is a compose file without x-chaos',
      next: expect.stringContaining('docker compose up -d NAME'),
    });
  });

  it.each<[string, object, object, RegExp]>([
    [
      'a service that only its image can start',
      {},
      { ...own, processes: { db: { ready: 'tcp://127.0.0.1:{port}' } }, load: { url: 'http://{db}/' } },
      /the service db of the compose file has none but that of its image$/,
    ],
    [
      'env_file',
      { shop: { ...services.shop, env_file: '.env' } },
      own,
      /^services\.shop\.env_file|env_file is not read$/,
    ],
    [
      'another interpolation',
      { shop: { command: `a \${B:?no}` } },
      own,
      /has an interpolation that is not read$/,
    ],
  ])('a compose file with %s is refused', (_, more, chaos, message) => {
    expect(() => read({ services: { ...services, ...more }, 'x-chaos': chaos })).toThrow(message);
  });
});

describe('values in braces', () => {
  it('names are replaced, literals lose a pair of braces, and other braces stay', () => {
    expect(namesIn('{a} {{b}} {"c": {a}}')).toEqual(['a']);
    expect(fill('{a} {b} {{a}}', { a: '1' })).toBe('1 {b} {{a}}');
    expect(fillLast('{"x": {a}, "y": "{{a}}"}', { a: '1' })).toBe('{"x": 1, "y": "{a}"}');
  });
});
