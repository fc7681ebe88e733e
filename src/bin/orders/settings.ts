/** The flags of `millrace orders`, but for gRPC's. */
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
  migrate: { type: 'bool', default: 'false', help: 'create the tables that are missing, then go on' },
  sql: {
    type: 'string',
    choices: ['auto', 'native', 'pg'],
    default: 'auto',
    help: 'what writes orders: native, libpq through pg-native; pg, JavaScript; auto, native where libpq loads, the address asks for no TLS and -native is not off',
  },
  connections: {
    type: 'int',
    min: 1,
    max: 256,
    help: 'transactions under way at once, one connection each (default 2; 32 with -batch=off, whose transactions share nothing)',
  },
  batch: {
    type: 'string',
    default: 'adaptive',
    help: 'orders that may share one transaction: adaptive follows the measured commit time and -budget, a number is a fixed most, off is the plain transaction of five statements an order',
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
    help: 'after this long without an outcome a request is answered 504; the same key finds out',
  },
  hash: {
    type: 'string',
    choices: ['canonical', 'raw'],
    default: 'canonical',
    help: 'what of a request over HTTP its key guards: canonical, the values of its fields, so that gRPC and another way to write them replay too; raw, the bytes of its body',
  },
  'in-flight-max': {
    type: 'int',
    default: '4096',
    min: 1,
    help: 'requests to create an order under way above which another one is answered 429',
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
    help: 'reads of orders (GET /orders/{id}, Get) under way above which another one is answered 429',
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
    help: 'memory for answers that may be asked again; 0 asks the database each time',
  },
  'key-ttl': {
    type: 'duration',
    min: 1000,
    help: 'how long a key and its answer are kept, at least -deadline + -inflight-wait + 1m; afterwards the key is as good as unused. One for all processes on the database, which the first stores (default 30d); later ones may leave it out, and another one is refused',
  },
  'key-ttl-change': {
    type: 'bool',
    default: 'false',
    help: 'store this -key-ttl in place of the one that the database has; processes that run follow within a -maintenance-interval',
  },
  'outbox-partition-rows': {
    type: 'int',
    default: '2000000',
    min: 10,
    help: 'ids a partition of the outbox',
  },
  'outbox-retention': {
    type: 'duration',
    default: '7d',
    min: 1,
    help: 'how long rows of the outbox are kept after all of their partition are published',
  },
  'maintenance-interval': {
    type: 'duration',
    default: '10s',
    min: 10,
    help: 'how often partitions and old keys are looked after',
  },
  'crash-point': {
    type: 'string',
    choices: ['respond'],
    help: 'end by SIGKILL there: respond, orders are committed and not yet answered',
  },
  'crash-after': {
    type: 'int',
    default: '0',
    min: 0,
    needs: ['crash-point'],
    help: 'orders committed before -crash-point counts',
  },
} as const satisfies SettingTable;
