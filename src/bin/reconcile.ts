/** `millrace reconcile`: checks that every intent had exactly one effect, and lists the ids of
 *  violations. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { sleep } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { withSettings } from '../outbox/database/connection.ts';
import { requirePlainSchema } from '../outbox/database/schema-name.ts';
import { type LedgerEntry, readLedger } from '../outbox/reconcile/client-ledger.ts';
import { reconciliationText } from '../outbox/reconcile/report.ts';
import { reconcile } from '../outbox/reconcile/run.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { sqlDriver } from '../shell/drivers.ts';

const IDS_MAX = 100_000;

const SETTINGS = {
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: { type: 'string', default: 'public', help: 'schema of orders, idempotency_keys and outbox' },
  'payments-schema': { type: 'string', help: 'schema of inbox and charges, if not -schema' },
  ledger: {
    type: 'list',
    help: 'ledger files of all runs of millrace load; without it, the stored idempotency keys are the intents',
  },
  'key-ttl': {
    type: 'duration',
    min: 1000,
    help: 'age after which idempotency keys may have expired; set it if the orders service formerly had a shorter -key-ttl. Older orders are not compared with keys (default: the -key-ttl stored in the database)',
  },
  settle: {
    type: 'duration',
    default: '15s',
    max: 3_600_000,
    help: 'how long an order may be in flight: if younger rows differ, they are compared again after this time; 0: compare all rows once',
  },
  from: { type: 'string', help: 'judge rows from this time on, such as 2026-11-21T09:30:00Z' },
  to: { type: 'string', help: 'judge rows up to this time' },
  ids: { type: 'int', default: '20', min: 0, max: IDS_MAX, help: 'ids listed for each class of delta' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

const CONNECT_TIMEOUT_MS = 5000;

function unreadable(path: string, cause: unknown): Error {
  return coreError('bad_file', `cannot read the ledger ${path}: ${(cause as Error).message}`, {
    next: 'give a file that millrace load -ledger wrote',
    cause,
  });
}

async function* entriesOf(path: string): AsyncGenerator<LedgerEntry> {
  const stream = createReadStream(path);
  let failure: unknown;
  stream.once('error', (cause) => {
    failure = cause;
  });
  try {
    yield* readLedger(stream);
  } catch (thrown) {
    throw failure === undefined ? thrown : unreadable(path, failure);
  }
}

/** Checks that all ledgers can be opened before the database is queried. */
async function checkFiles(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const found = await stat(path).catch((cause: unknown) => {
      throw unreadable(path, cause);
    });
    if (!found.isFile()) throw unreadable(path, new Error('it is not a file'));
  }
}

const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/;

function timeOf(flag: string, text: string | undefined): Date | undefined {
  if (text === undefined) return undefined;
  const time = new Date(text);
  if (TIME.test(text) && !Number.isNaN(time.getTime())) return time;
  throw coreError('bad_value', `-${flag}=${text} is not a time`, {
    next: 'give date, time and zone, such as 2026-11-21T09:30:00Z',
  });
}

async function run(context: Context): Promise<number> {
  const { settings, metrics } = context;
  const paths = settings.ledger ?? [];
  const paymentsSchema = settings['payments-schema'] ?? settings.schema;
  requirePlainSchema(settings.schema);
  requirePlainSchema(paymentsSchema, '-payments-schema');
  const from = timeOf('from', settings.from);
  const to = timeOf('to', settings.to);
  if (from !== undefined && to !== undefined && from > to)
    throw coreError('bad_value', '-from is later than -to', { next: 'swap them' });
  await checkFiles(paths);
  const driver = await sqlDriver(context);
  const pool = await driver.connect({
    url: withSettings(settings.postgres, { schema: settings.schema }),
    connectionsMax: 1,
    applicationName: 'millrace reconcile',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  });
  context.onClose(() => pool.close());
  context.setReady();
  const progress = context.progress({ what: 'ledger', unit: 'entries' });
  const deltas = metrics.gauge('reconcile_deltas', 'Number of ids in each class of delta compared so far.', [
    'class',
  ]);
  // A stopped comparison must not exit with 0, which would mean that the invariant holds.
  const throwIfDrained = (): void => {
    if (context.drain.aborted)
      throw coreError('unreachable', 'the comparison was stopped before it finished');
  };
  const result = await reconcile({
    pool,
    ordersSchema: settings.schema,
    paymentsSchema,
    ledgers: paths.map((path) => () => entriesOf(path)),
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    settleMs: settings.settle,
    wait: async (ms) => {
      context.log.info(
        { wait_ms: Math.ceil(ms) },
        'rows differ and may be in flight; they are compared again',
      );
      await sleep(context.clock, ms, context.drain);
      throwIfDrained();
    },
    ...(settings['key-ttl'] === undefined ? {} : { keyTtlMs: settings['key-ttl'] }),
    idsMax: settings.ids,
    onEntry: () => {
      throwIfDrained();
      progress.add(1);
    },
    onClass: (name) => {
      throwIfDrained();
      context.log.debug({ class: name }, 'comparing');
    },
    // Set immediately: the process ends after the last class, and a later value would not be
    // scraped.
    onCompared: (name, count) => deltas.set(count, deltas.series(name)),
  });
  progress.done();
  context.print(reconciliationText(result), result);
  return result.holds ? EXIT.done : EXIT.no;
}

export const command = defineCommand({
  name: 'reconcile',
  summary: 'Compare intents, orders and charges as sets, and list the ids that differ',
  description: `
Takes one snapshot of the database and compares what the clients intended (their ledgers), what was ordered and what was
charged, row by row. Exit code 1 when the invariant is broken: an effect lost, done twice, or done with another amount.
During load, orders younger than the start are excluded; -settle sets how long an order may be in flight.

  millrace reconcile -postgres=postgres://me@127.0.0.1/shop -ledger=/tmp/ledger.jsonl
`,
  settings: SETTINGS,
  run,
});
