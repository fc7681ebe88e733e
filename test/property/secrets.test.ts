/** No part of a secret is ever written: not at the start, in an error, in -help or in a log,
 *  whatever characters it contains and however the setting that contains it is malformed. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { Secrets } from '../../src/core/secrets.ts';
import { openBroker } from '../../src/drivers.ts';
import { SHOWN_PROPERTIES } from '../../src/io/kafka/properties.ts';
import { whereOf } from '../../src/io/postgres/sql/faults.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { Command } from '../../src/shell/command.ts';
import { defineCommand } from '../../src/shell/command.ts';
import { fakeWorld, start } from '../unit/shell/fake-world.ts';

const dir = mkdtempSync(join(tmpdir(), 'secrets-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** Texts of eight or more characters that occur in no output by chance. */
const part = fc.stringMatching(/^zq[0-9][a-z0-9]{5,12}$/);
/** Parts joined by characters that have a meaning in shells, URLs, lists and JSON. */
const secret = fc
  .array(
    fc.tuple(
      part,
      fc.constantFrom('&', ',', ' ', ';', '=', '"', "'", '@', '/', '#', '?', ':', '%', '\n', ''),
    ),
    {
      minLength: 1,
      maxLength: 4,
    },
  )
  .map((pairs) => ({ text: pairs.flat().join(''), parts: pairs.map(([one]) => one) }));
type Secret = { readonly text: string; readonly parts: readonly string[] };

/** Command of the tests.
 *  @param work may throw errors that contain the secret where the command cannot know it */
const probe = (work: () => Promise<number> = () => Promise.resolve(0)): Command =>
  defineCommand({
    name: 'probe',
    summary: 'A command of the tests.',
    listens: false,
    settings: {
      'broker-property': { type: 'properties', default: '', shown: SHOWN_PROPERTIES, help: 'properties' },
      postgres: { type: 'string', secret: true, help: 'database' },
      store: { type: 'string', help: 'where' },
      scrape: { type: 'list', help: 'URLs' },
    },
    run: async (context) => {
      context.log.info({ store: context.settings.store }, 'runs');
      return work();
    },
  }) as unknown as Command;

/** Everything that a run writes. */
async function written(
  argv: readonly string[],
  command = probe(),
  env: Record<string, string> = {},
): Promise<string> {
  const world = fakeWorld({ env });
  await start(command, [...argv, '-log-level=debug', '-json'], world).code;
  return `${world.stderr()}\n${world.stdout()}`;
}

const shows = (text: string, { parts }: Secret): readonly string[] =>
  parts.filter((one) => text.includes(one));

const always = (check: (secret: Secret) => Promise<string> | string, numRuns = 60): Promise<void> =>
  fc.assert(
    fc.asyncProperty(secret, async (one) => {
      expect(shows(await check(one), one)).toEqual([]);
    }),
    { numRuns },
  );

describe('secrets', () => {
  it('a secret in a broker property, a database address or a URL is not written at the start of a run', async () => {
    const seen = await written([
      '-broker-property=sasl.password=a,b',
      '-broker-property=security.protocol=ssl,acks=1',
    ]);
    expect(seen).toContain('sasl.password=***, security.protocol=ssl, acks=1 (flag)');
    await always(({ text }) =>
      written([`-broker-property=sasl.password=${text}`, '-broker-property=acks=all']),
    );
    await always(({ text }) => written([`-postgres=postgres://me:${text}@db/shop`]));
    await always(({ text }) =>
      written([`-store=http://me:${text}@host/path`, `-scrape=http://me:${text}@host/metrics`]),
    );
    await always(({ text }) => written([], probe(), { MILLRACE_BROKER_PROPERTY: `ssl.key.pem=${text}` }));
  });

  it('a secret is not written if the setting that contains it cannot be parsed', async () => {
    await always(({ text }) => written([`-broker-property=${text}`, '-broker-property=.']));
    // Unquoted blanks separate words, and words that begin with a dash are flags.
    await always(({ text }) => written(['-broker-property', ...`sasl.password=${text}`.split(' '), 'zq']));
    await always(({ text, parts }) => written([`-postgres=${text}`, `-${parts[0]}`]));
    await always(({ text }) => written([`-postgre:${text}`]));
    await always(({ text }) => {
      const path = join(dir, 'config.json');
      writeFileSync(path, `{"postgres": ${text}`);
      return written([`-config=${path}`]);
    });
  });

  it('a secret is not written in the help text', async () => {
    await always(({ text }) => written([`-postgres=${text}`, '-help']), 10);
  });

  it('a secret is not written if a library quotes it in an error or a stack, completely, escaped or truncated', async () => {
    const quoted = (text: string) =>
      probe(() => Promise.reject(new Error(`refused: "${text}" at ${JSON.stringify(text)}`)));
    await always(({ text }) => written([`-broker-property=sasl.password=${text}`], quoted(text)));
    const pem = fc.stringMatching(/^zq[A-Za-z0-9+]{200}$/);
    await fc.assert(
      fc.property(pem, fc.nat(150), (key, at) => {
        const cut = new Secrets([key]).hide(`bad key: ${key.slice(at, at + 50)}`);
        expect(cut).toBe('bad key: ***');
      }),
    );
  });

  it('host and database of an address stay readable in errors while the secret is hidden', async () => {
    const words = 'database "no_such_database" at db.internal does not exist for hunter2-hunter2';
    const seen = await written(
      ['-postgres=postgres://me:hunter2-hunter2@db.internal/no_such_database'],
      probe(() => Promise.reject(new Error(words))),
    );
    expect(seen).toContain('error: database "no_such_database" at db.internal does not exist for ***');
  });

  it('the parts that read a database address hide its password, even if the password makes the address invalid', async () => {
    await always(({ text }) => {
      const url = `postgres://me:${text}@127.0.0.1:1/shop`;
      try {
        return JSON.stringify(whereOf({ url }).address);
      } catch (thrown) {
        return String((thrown as Error).message);
      }
    });
    await always(async ({ text }) => {
      const url = `postgres://me:${encodeURIComponent(text)}@127.0.0.1:1/shop`;
      const options = { url, connectionsMax: 1, applicationName: 'test', connectTimeoutMs: 60_000 };
      const thrown = await pgDriver.connect(options).then(
        () => undefined,
        (error: Error) => error,
      );
      return String(thrown?.message);
    }, 5);
  });

  it.each(['on', 'off'] as const)(
    'an error of librdkafka about a refused property does not contain its secret (native %s)',
    async (native) => {
      const driver = await openBroker(native);
      const names = ['ssl.key.pem', 'sasl.kerberos.min.time.before.relogin', 'no.such.property', 'debug'];
      for (const name of names) {
        await always(async ({ text }) => {
          const options = { brokers: '127.0.0.1:1', clientId: 'test', connectTimeoutMs: 50 };
          const properties = { 'security.protocol': 'ssl', [name]: text };
          const thrown = await driver.producer({ ...options, properties }).then(
            (producer) => producer.close().then(() => undefined),
            (error: Error) => error,
          );
          return `${thrown?.message} ${String(thrown?.cause)}`;
        }, 5);
      }
    },
  );
});
