/** `millrace reconcile`: checks that every intent had exactly one effect, and lists the ids of
 *  violations. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { coreError, EXIT } from '../core/errors.ts';
import { requirePlainSchema } from '../outbox/database/schema-name.ts';
import { type LedgerEntry, readLedger } from '../outbox/reconcile/client-ledger.ts';
import { reconciliationText } from '../outbox/reconcile/report.ts';
import { reconcile } from '../outbox/reconcile/run.ts';
import { defineCommand } from '../shell/command.ts';
import { reconcilePairs } from './reconcile/pairs.ts';
import { configuredPairs, connectDatabases, throwIfDrained, waitSettled } from './reconcile/parts.ts';
import { type Context, SETTINGS } from './reconcile/settings.ts';
import { watchPairs } from './reconcile/watching.ts';

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

/** Compares orders with payments once. */
async function reconcileOrders(
  context: Context,
  paymentsSchema: string,
  { from, to }: { readonly from: Date | undefined; readonly to: Date | undefined },
): Promise<number> {
  const { settings, metrics } = context;
  const paths = settings.ledger ?? [];
  await checkFiles(paths);
  const { left, right } = await connectDatabases(context, { paymentsSchema });
  context.setReady();
  const progress = context.progress({ what: 'ledger', unit: 'entries' });
  const deltas = metrics.gauge('reconcile_deltas', 'Number of ids in each class of delta compared so far.', [
    'class',
  ]);
  const result = await reconcile({
    pool: left,
    ...(right === left ? {} : { paymentsPool: right }),
    ordersSchema: settings.schema,
    paymentsSchema,
    ledgers: paths.map((path) => () => entriesOf(path)),
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    settleMs: settings.settle,
    ...(settings['late-after'] === 0 ? {} : { lateAfterMs: settings['late-after'] }),
    wait: (ms) => waitSettled(context, ms),
    ...(settings['key-ttl'] === undefined ? {} : { keyTtlMs: settings['key-ttl'] }),
    idsMax: settings.ids,
    onEntry: () => {
      throwIfDrained(context);
      progress.add(1);
    },
    onClass: (name) => {
      throwIfDrained(context);
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

async function run(context: Context): Promise<number> {
  const { settings } = context;
  const paymentsSchema = settings['payments-schema'] ?? settings.schema;
  requirePlainSchema(settings.schema);
  requirePlainSchema(paymentsSchema, '-payments-schema');
  const from = timeOf('from', settings.from);
  const to = timeOf('to', settings.to);
  if (from !== undefined && to !== undefined && from > to)
    throw coreError('bad_value', '-from is later than -to', { next: 'swap them' });
  const pairs = await configuredPairs(context);
  if (settings.watch) return watchPairs(context, pairs, paymentsSchema);
  if (pairs !== undefined) return reconcilePairs(context, pairs, paymentsSchema, { from, to });
  return reconcileOrders(context, paymentsSchema, { from, to });
}

export const command = defineCommand({
  name: 'reconcile',
  summary: 'Compare intents, orders and charges as sets, and list the ids that differ',
  description: `
Takes one snapshot of the database and compares what the clients intended (their ledgers), what was ordered and what was
charged, row by row. Exit code 1 when the invariant is broken: an effect lost, done twice, or done with another amount.
During load, orders younger than the start are excluded; -settle sets how long an order may be in flight.

  millrace reconcile -postgres=postgres://me@127.0.0.1/shop -ledger=/tmp/ledger.jsonl

Orders and payments may be in two databases (-inbox-postgres). -outbox-table with -inbox-table, or -pairs, compare
tables of your own service. -watch compares until SIGTERM, and exits with 1 if a delta stands at the end:

  millrace reconcile -watch -postgres=postgres://me@127.0.0.1/shop -listen=127.0.0.1:9108
  millrace reconcile -postgres=postgres://me@127.0.0.1/shop -outbox-table=outbox -inbox-table=inbox
`,
  settings: SETTINGS,
  run,
});
