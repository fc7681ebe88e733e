/** `millrace reconcile`: whether every intent has had exactly one effect, and the ids of those that
 *  have not. */
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
  'payments-schema': { type: 'string', help: 'schema of inbox and charges, where it is not -schema' },
  ledger: {
    type: 'list',
    help: 'files that millrace load wrote: what the clients know, all of them; without, the stored keys are the intents',
  },
  'key-ttl': {
    type: 'duration',
    min: 1000,
    help: 'after how long keys may be gone, where orders had a shorter -key-ttl than it has: orders older than that are not judged by their key (default: what orders has)',
  },
  settle: {
    type: 'duration',
    default: '15s',
    max: 3_600_000,
    help: 'how long an order may be in flight: where rows differ and some are younger, they are compared again once it is over; 0 compares once, all rows',
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

/** Ledgers that cannot be opened are named before the database is asked. */
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
  const deltas = metrics.gauge(
    'reconcile_deltas',
    'Members of each class of delta that was compared so far.',
    ['class'],
  );
  // An exit code of 0 would say that the invariant holds.
  const goOn = (): void => {
    if (context.drain.aborted)
      throw coreError('unreachable', 'the comparison was stopped before it was over');
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
      goOn();
    },
    ...(settings['key-ttl'] === undefined ? {} : { keyTtlMs: settings['key-ttl'] }),
    idsMax: settings.ids,
    onEntry: () => {
      goOn();
      progress.add(1);
    },
    onClass: (name) => {
      goOn();
      context.log.debug({ class: name }, 'comparing');
    },
    // At once: the process ends with the last class, and nobody could ask for what is set then.
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
During load, orders younger than the start are left out, and -settle decides how long one may be in flight.

  millrace reconcile -postgres=postgres://me@127.0.0.1/shop -ledger=/tmp/ledger.jsonl
`,
  settings: SETTINGS,
  run,
});
