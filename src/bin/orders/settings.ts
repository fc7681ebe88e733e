/** Settings of `millrace orders`, except gRPC. */
import type { SettingTable } from '../../core/settings.ts';

export const ORDERS_SETTINGS = {
  listen: {
    type: 'listen',
    default: '127.0.0.1:8080',
    help: 'host:port of POST /orders, GET /orders/{id}, /openapi.json and /metrics /health /ready /version',
  },
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: {
    type: 'string',
    default: 'public',
    help: 'schema of the tables orders, idempotency_keys and outbox',
  },
  migrate: { type: 'bool', default: 'false', help: 'create missing tables, then run' },
  sql: {
    type: 'string',
    choices: ['auto', 'native', 'pg'],
    default: 'auto',
    help: 'driver that writes orders: native, libpq through pg-native; pg, JavaScript; auto, native if libpq loads, -postgres does not ask for TLS and -native is not off',
  },
  connections: {
    type: 'int',
    min: 1,
    max: 256,
    help: 'concurrent transactions, each on its own connection (default 2; 32 with -batch=off)',
  },
  batch: {
    type: 'string',
    default: 'adaptive',
    help: 'orders that may share one transaction: adaptive adapts to the measured commit time and -budget, a number is a fixed maximum, off runs one transaction of five statements for each order',
  },
  budget: {
    type: 'duration',
    default: '25ms',
    min: 1,
    max: 10_000,
    needs: ['batch=adaptive'],
    help: 'time from request to answer that -batch=adaptive aims at for nearly all requests',
  },
  deadline: {
    type: 'duration',
    default: '10s',
    min: 100,
    help: 'after this long without an outcome a request is answered 504; a repeat with the same key returns the outcome',
  },
  hash: {
    type: 'string',
    choices: ['canonical', 'raw'],
    default: 'canonical',
    help: 'what a repeat of a key must match: canonical, the field values, so that gRPC and differently formatted bodies replay too; raw, the bytes of the HTTP body',
  },
  'in-flight-max': {
    type: 'int',
    default: '4096',
    min: 1,
    help: 'create requests in flight above which another one is answered 429',
  },
  'queue-wait-max': {
    type: 'duration',
    default: '1s',
    min: 1,
    help: 'expected wait for a transaction above which a request is answered 429',
  },
  'reads-max': {
    type: 'int',
    default: '256',
    min: 1,
    help: 'reads of orders (GET /orders/{id}, Get) in flight above which another one is answered 429',
  },
  'inflight-wait': {
    type: 'duration',
    default: '5s',
    min: 1,
    help: 'how long a request waits for another process that is writing the same key, then 503',
  },
  'replay-cache': {
    type: 'size',
    default: '64MiB',
    min: 0,
    help: 'memory for answers to repeated keys; 0: query the database each time',
  },
  'key-ttl': {
    type: 'duration',
    min: 1000,
    help: 'how long a key and its answer are kept, at least -deadline + -inflight-wait + 1m; afterwards the key counts as unused. All processes on a database share one value: the first process stores it (default 30d), later ones may omit it, and a different value is refused',
  },
  'key-ttl-change': {
    type: 'bool',
    default: 'false',
    help: 'replace the -key-ttl stored in the database; running processes adopt it within a -maintenance-interval',
  },
  'outbox-partition-rows': {
    type: 'int',
    default: '2000000',
    min: 10,
    help: 'ids in a partition of the outbox',
  },
  'outbox-retention': {
    type: 'duration',
    default: '7d',
    min: 1,
    help: 'how long a partition of the outbox is kept after all its rows are published',
  },
  'maintenance-interval': {
    type: 'duration',
    default: '10s',
    min: 10,
    help: 'interval of the maintenance of partitions and expired keys',
  },
  'crash-point': {
    type: 'string',
    choices: ['respond'],
    help: 'where to end by SIGKILL: respond, when orders are committed and not yet answered',
  },
  'crash-after': {
    type: 'int',
    default: '0',
    min: 0,
    needs: ['crash-point'],
    help: 'committed orders before -crash-point takes effect',
  },
} as const satisfies SettingTable;
