/** `millrace effects list|redrive|release`: the dead letters of a table of effects. */
import { coreError, EXIT } from '../core/errors.ts';
import type { SqlPool } from '../io/postgres/sql/port.ts';
import { withSettings } from '../outbox/database/connection.ts';
import { requirePlainSchema } from '../outbox/database/schema-name.ts';
import {
  DEAD_REASONS,
  type DeadEffect,
  type DeadFilter,
  listDeadEffects,
  redriveEffects,
  releaseEffects,
} from '../outbox/effects/dead.ts';
import type { DeadReason } from '../outbox/effects/retry.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { sqlDriver } from '../shell/drivers.ts';

const ACTIONS = ['list', 'redrive', 'release'] as const;
type Action = (typeof ACTIONS)[number];
const LIMIT_MAX = 100_000;
const CONNECT_TIMEOUT_MS = 5000;

const SETTINGS = {
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: { type: 'string', default: 'public', help: 'schema of the table' },
  table: { type: 'string', default: 'effects', help: 'table of effects' },
  name: { type: 'list', help: 'only effects of these handlers' },
  key: { type: 'list', help: 'only effects of these keys' },
  reason: { type: 'list', help: `only letters of these reasons: ${DEAD_REASONS.join(', ')}` },
  id: { type: 'list', help: 'only these effects' },
  all: { type: 'bool', help: 'redrive or release every dead letter, if no filter is given' },
  'unknown-not-done': {
    type: 'bool',
    help: 'redrive letters of unknown outcome too: the third party has confirmed that it did not act',
  },
  limit: { type: 'int', default: '100', min: 1, max: LIMIT_MAX, help: 'letters that list prints' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

function actionOf(context: Context): Action {
  const [given] = context.positional;
  const action = ACTIONS.find((one) => one === (given ?? 'list'));
  if (action !== undefined) return action;
  throw coreError('usage', `effects accepts list, redrive or release, not ${JSON.stringify(given)}`, {
    next: 'for example millrace effects list -postgres=postgres://me@127.0.0.1/shop',
  });
}

/** @throws usage for a change without a filter */
function filterOf({ settings }: Context, action: Action): DeadFilter {
  const { name, key, reason, id, all } = settings;
  const filter = {
    ...(name === undefined ? {} : { names: name }),
    ...(key === undefined ? {} : { keys: key }),
    ...(reason === undefined ? {} : { reasons: reason as readonly DeadReason[] }),
    ...(id === undefined ? {} : { ids: id }),
  };
  if (action !== 'list' && Object.keys(filter).length === 0 && !all) {
    throw coreError('usage', `effects ${action} without a filter would change every dead letter`, {
      next: 'give -name, -key, -reason or -id, or -all',
    });
  }
  return filter;
}

const lineOf = ({ id, name, key, reason, attempts, blocks, behind, error }: DeadEffect): string =>
  `${id} ${name} ${key} ${reason}, ${attempts} attempts, ${behind} behind it${blocks ? ' wait' : ' pass'}: ${error}`;

async function list(context: Context, pool: SqlPool): Promise<void> {
  const { table, limit } = context.settings;
  const found = await listDeadEffects(pool, table, filterOf(context, 'list'), limit);
  const lines = found.map(lineOf);
  context.print(lines.length === 0 ? 'no dead letters' : lines.join('\n'), { dead: found });
}

async function change(context: Context, pool: SqlPool, action: 'redrive' | 'release'): Promise<void> {
  const { table, 'unknown-not-done': unknownNotDone } = context.settings;
  const filter = filterOf(context, action);
  const count =
    action === 'redrive'
      ? await redriveEffects(pool, table, filter, unknownNotDone)
      : await releaseEffects(pool, table, filter);
  const done = action === 'redrive' ? 'are due again' : 'no longer block their keys';
  context.print(`${count} dead letters ${done}`, { [action === 'redrive' ? 'redriven' : 'released']: count });
}

async function run(context: Context): Promise<number> {
  const { settings } = context;
  const action = actionOf(context);
  requirePlainSchema(settings.schema);
  filterOf(context, action);
  const driver = await sqlDriver(context);
  const pool = await driver.connect({
    url: withSettings(settings.postgres, { schema: settings.schema }),
    connectionsMax: 1,
    applicationName: 'millrace effects',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  });
  context.onClose(() => pool.close());
  if (action === 'list') await list(context, pool);
  else await change(context, pool, action);
  return EXIT.done;
}

export const command = defineCommand({
  name: 'effects',
  summary: 'List, redrive and release the dead letters among calls to third parties',
  description: `
Effects are calls to third parties that a service added with effect() of millrace/outbox. One that was refused, that used up its
budget, whose outcome is unknown, or that ended its runner each time is a dead letter, and blocks its key unless its handler says
otherwise. redrive makes it due again under the same id; release lets later effects of its key pass it.

  millrace effects redrive -postgres=postgres://me@127.0.0.1/shop -name=capture -reason=budget
`,
  settings: SETTINGS,
  positionalMax: 1,
  positionalHelp: 'list|redrive|release',
  listens: false,
  run,
});
