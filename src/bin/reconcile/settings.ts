/** Flags of `millrace reconcile`. */
import type { CommandContext } from '../../shell/command.ts';

const IDS_MAX = 100_000;

export const SETTINGS = {
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database of the orders or of the outbox, postgres://user:password@host:port/name',
  },
  'inbox-postgres': {
    type: 'string',
    secret: true,
    help: 'database of inbox and charges, if it is another one than -postgres',
  },
  schema: { type: 'string', default: 'public', help: 'schema of orders, idempotency_keys and outbox' },
  'payments-schema': { type: 'string', help: 'schema of inbox and charges, if not -schema' },
  'outbox-table': {
    type: 'string',
    needs: ['inbox-table'],
    excludes: ['pairs'],
    help: 'compare this outbox of the library, name or schema.name, with -inbox-table instead of orders with payments',
  },
  'inbox-table': {
    type: 'string',
    needs: ['outbox-table'],
    help: 'inbox of the library, name or schema.name, that processes the messages of -outbox-table',
  },
  pairs: {
    type: 'string',
    help: 'JSON file with pairs of an outbox and an inbox table, and their columns, that are compared instead of orders with payments',
  },
  ledger: {
    type: 'list',
    excludes: ['watch', 'pairs', 'outbox-table'],
    help: 'ledger files of all runs of millrace load; without it, the stored idempotency keys are the intents',
  },
  'key-ttl': {
    type: 'duration',
    min: 1000,
    excludes: ['pairs', 'outbox-table'],
    help: 'age after which idempotency keys may have expired; set it if the orders service formerly had a shorter -key-ttl. Older orders are not compared with keys (default: the -key-ttl stored in the database)',
  },
  settle: {
    type: 'duration',
    default: '15s',
    max: 3_600_000,
    help: 'how long an order may be in flight: if younger rows differ, they are compared again after this time; with -watch, rows are first compared at this age; 0: compare all rows once',
  },
  'late-after': {
    type: 'duration',
    default: '15s',
    max: 86_400_000,
    help: 'effects that came later than this after their intent are listed as late, which breaks nothing; 0: lateness is not judged',
  },
  from: {
    type: 'string',
    excludes: ['watch'],
    help: 'judge rows from this time on, such as 2026-11-21T09:30:00Z',
  },
  to: { type: 'string', excludes: ['watch'], help: 'judge rows up to this time' },
  ids: { type: 'int', default: '20', min: 0, max: IDS_MAX, help: 'ids listed for each class of delta' },
  watch: {
    type: 'bool',
    default: 'false',
    help: 'compare until SIGTERM: each bucket once its rows have settled, and buckets that differ until they are equal',
  },
  bucket: {
    type: 'duration',
    default: '30s',
    min: 1000,
    max: 3_600_000,
    needs: ['watch'],
    help: 'with -watch: span of the rows whose digests are compared together',
  },
  'pass-every': {
    type: 'duration',
    default: '24h',
    min: 1000,
    needs: ['watch'],
    help: 'with -watch: how often a pass over all older buckets begins',
  },
  'pass-share': {
    type: 'number',
    default: '2',
    min: 0.01,
    max: 100,
    needs: ['watch'],
    help: 'with -watch: percentage of the time that passes and repeated comparisons may take, over all pairs',
  },
} as const;

export type Context = CommandContext<typeof SETTINGS>;
