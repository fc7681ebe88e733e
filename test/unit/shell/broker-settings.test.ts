/** The settings of every command that uses Kafka. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { COMMANDS } from '../../../src/bin/main.ts';
import { BROKER_SETTINGS, REQUIRED_BROKER_SETTINGS } from '../../../src/shell/broker-settings.ts';
import { type Command, defineCommand } from '../../../src/shell/command.ts';
import { loadSettings, settingTableOf } from '../../../src/shell/load-settings.ts';
import { fakeWorld, start } from './fake-world.ts';

const dir = mkdtempSync(join(tmpdir(), 'broker-settings-'));
afterAll(() => rmSync(dir, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
};

const SECRET = 'zq7-Secret,"of the file"';
const client = file(
  'client.properties',
  `bootstrap.servers=file:9093\nsecurity.protocol=SASL_SSL\nsasl.username=zq8-user-of-file\nsasl.password=${SECRET}\nlinger.ms=9\n`,
);

const probe = (settings: typeof BROKER_SETTINGS | typeof REQUIRED_BROKER_SETTINGS) =>
  defineCommand({
    name: 'probe',
    summary: 'A command of the tests.',
    listens: false,
    settings,
    run: async (context) => {
      context.log.info({ why: `refused ${context.settings['broker-property']['sasl.password']}` }, 'answer');
      return 0;
    },
  });
const load = (argv: readonly string[], env = {}, settings = REQUIRED_BROKER_SETTINGS) =>
  loadSettings(probe(settings) as unknown as Command<typeof settings>, argv, env);

/** Commands that connect to Kafka by themselves, or print how others do. */
const KAFKA_COMMANDS = [
  'registry export',
  'registry import',
  'chaos',
  'consumer',
  'doctor',
  'engine',
  'gen',
  'gen ddl',
  'payments',
  'producer',
  'registry',
  'relay',
  'rollout',
  'topic',
  'bench',
];

describe('the broker settings', () => {
  test('every command with -brokers has the whole group, with one text of each setting', async () => {
    const having: string[] = [];
    for (const [name, loadCommand] of Object.entries(COMMANDS)) {
      const table = settingTableOf((await loadCommand()).command as Command);
      if (table['brokers'] === undefined && table['broker-property'] === undefined) continue;
      having.push(name);
      for (const [flag, { help, type }] of Object.entries(BROKER_SETTINGS)) {
        expect(table[flag], `${name} -${flag}`).toMatchObject(flag === 'brokers' ? { type } : { help, type });
      }
    }
    expect(having.sort()).toEqual([...KAFKA_COMMANDS].sort());
  });

  test('flags win over the environment, the environment over -config, and all over the file', () => {
    const config = file(
      'settings.json',
      JSON.stringify({ 'broker-config': client, 'broker-property': ['client.id=config', 'batch.size=3'] }),
    );
    const { values, sources } = load(['-broker-property=sasl.mechanism=PLAIN', `-config=${config}`], {
      MILLRACE_BROKER_PROPERTY: 'client.id=env\nsasl.mechanisms=GSSAPI\nlinger.ms=5',
    });
    expect(values.brokers).toBe('file:9093');
    expect(sources['brokers']).toBe('config');
    expect(values['broker-property']).toEqual({
      'security.protocol': 'sasl_ssl',
      'sasl.username': 'zq8-user-of-file',
      'sasl.password': SECRET,
      'sasl.mechanisms': 'PLAIN',
      'client.id': 'env',
      'batch.size': '3',
      'linger.ms': '5',
    });
    expect(load([`-broker-config=${client}`], { MILLRACE_BROKERS: 'env:1' }).values.brokers).toBe('env:1');
    expect(load([`-broker-config=${client}`, '-brokers=flag:1']).values.brokers).toBe('flag:1');
  });

  test('-brokers is required where no file names them', () => {
    expect(() => load([])).toThrow('-brokers is required');
    expect(() => load([`-broker-config=${file('none.properties', 'linger.ms=1\n')}`])).toThrow(
      '-brokers is required',
    );
    expect(load([], {}, BROKER_SETTINGS as never).values.brokers).toBeUndefined();
  });

  test('a wrong property ends the command with 2 and one line that quotes no value', async () => {
    const world = fakeWorld();
    const flags = [
      '-brokers=a:1',
      '-broker-property=sasl.passwort=zq-hunter2',
      '-broker-property=group.id=zq-hunter2',
    ];
    expect(await start(probe(BROKER_SETTINGS) as unknown as Command, flags, world).code).toBe(2);
    expect(world.stderr()).toContain(
      'sasl.passwort is no property of librdkafka: did you mean sasl.password?',
    );
    expect(world.stderr()).toContain('group.id is refused: give -group');
    expect(world.stderr()).toContain('[bad_broker_property]');
    expect(world.stderr()).not.toContain('hunter2');
  });

  test('values of the file are secret in the log and in texts of libraries', async () => {
    const world = fakeWorld();
    const flags = [`-broker-config=${client}`, '-log-level=debug'];
    expect(await start(probe(BROKER_SETTINGS) as unknown as Command, flags, world).code).toBe(0);
    expect(world.stderr()).not.toMatch(/zq[78]|of the file/);
    expect(world.stderr()).toContain('security.protocol=sasl_ssl');
    expect(world.stderr()).toContain('sasl.password=***');
    expect(world.stderr()).toContain('refused ***');
  });
});
