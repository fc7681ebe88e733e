/** Schema names of the effects commands: a name that PostgreSQL would refuse or misread is refused
 *  before the command connects. */
import { describe, expect, it } from 'vitest';
import { command as orders } from '../../../src/bin/orders.ts';
import { command as payments } from '../../../src/bin/payments.ts';
import { command as reconcile } from '../../../src/bin/reconcile.ts';
import { command as relay } from '../../../src/bin/relay.ts';
import { requirePlainSchema } from '../../../src/outbox/database/schema-name.ts';
import type { Command } from '../../../src/shell/command.ts';
import { start } from '../shell/fake-world.ts';

/** Address without a listener: a command that connects to it ends with exit code 3. */
const POSTGRES = '-postgres=postgres://me@127.0.0.1:1/shop';
const BROKERS = '-brokers=127.0.0.1:1';
const LISTEN = '-listen=127.0.0.1:0';

const COMMANDS: ReadonlyArray<readonly [string, Command, readonly string[]]> = [
  ['orders', orders, [LISTEN, '-grpc-listen=off', '-migrate']],
  ['relay', relay, [LISTEN, BROKERS, '-migrate']],
  ['relay -relay=wal', relay, [LISTEN, BROKERS, '-relay=wal']],
  ['payments', payments, [LISTEN, BROKERS, '-migrate']],
  ['payments -parked', payments, [LISTEN, '-parked']],
  ['reconcile', reconcile, []],
];

const REFUSED: ReadonlyArray<readonly [string, RegExp]> = [
  [
    'pg_x',
    /^error: -schema=pg_x names a schema that PostgreSQL keeps for itself; .*begin with pg_.* \[bad_value\]$/,
  ],
  ['pg_catalog', /keeps for itself/],
  ['information_schema', /keeps for itself/],
  ['', /^error: -schema= is not a plain schema name; use lower-case letters, digits and _ /],
  ['Shop', /^error: -schema=Shop is not a plain schema name/],
  ['"shop"', /is not a plain schema name/],
  ['my shop', /is not a plain schema name/],
  ['shop.orders', /is not a plain schema name/],
  ['1shop', /is not a plain schema name/],
  ['ünter', /is not a plain schema name/],
  ['s'.repeat(64), /^error: -schema=s{64} is not a plain schema name; .*at most 63/],
  ['user', /^error: -schema=user is a key word of SQL; use another name, such as user_1 /],
];

describe.each(COMMANDS)('%s', (_name, command, flags) => {
  it.each(REFUSED)('a command refuses -schema=%s with exit 2 and one line', async (schema, line) => {
    const run = start(command, [POSTGRES, `-schema=${schema}`, '-log-level=silent', ...flags]);
    expect(await run.code).toBe(2);
    const said = run.world
      .stderr()
      .split('\n')
      .filter((one) => one !== '' && !one.startsWith('listening on '));
    expect(said).toEqual([expect.stringMatching(line)]);
  });

  it('a command accepts the longest possible schema name', async () => {
    const run = start(command, [POSTGRES, `-schema=${'s'.repeat(63)}`, '-log-level=silent', ...flags]);
    expect(await run.code).toBe(3);
    expect(run.world.stderr()).toContain('[unreachable]');
  });
});

it('reconcile refuses the schema of payments as well', async () => {
  const run = start(reconcile, [POSTGRES, '-payments-schema=pg_x', '-log-level=silent']);
  expect(await run.code).toBe(2);
  expect(run.world.stderr()).toMatch(
    /^error: -payments-schema=pg_x names a schema that PostgreSQL keeps for itself/m,
  );
});

it.each(['public', 'shop', '_shop', 'shop_2', 'pgx', 'values', 'schema', 's'.repeat(63)])(
  'the schema name %s is accepted',
  (name) => {
    expect(requirePlainSchema(name)).toBeUndefined();
  },
);
