/** Test kit of idempotent endpoints: a schema with its tables, and one application on each
 *  framework. */
import 'reflect-metadata';
import { randomBytes } from 'node:crypto';
import { createServer, type OutgoingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import { Controller, Post, Req, Res, UseInterceptors } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import express from 'express';
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { type Context, Hono } from 'hono';
import pg from 'pg';
import { afterAll } from 'vitest';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { type IdempotencyOptions, idempotency, idempotencyTableSql } from '../../src/outbox/index.ts';
import { sharedStack } from '../fixtures/stack.ts';

const ends: (() => unknown)[] = [];
afterAll(async () => {
  for (const end of ends.reverse()) await end();
});

/** Registers an action for the end of the test file; the last one runs first. */
export const atEnd = (end: () => unknown): void => void ends.push(end);

export interface Shop {
  readonly url: string;
  readonly schema: string;
  readonly pool: pg.Pool;
  /** Number of payments of a key. */
  payments(key: string): Promise<number>;
  /** Rows of the table of keys. */
  records(key: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

/** Creates a schema with the table of keys and a table of payments. */
export async function openShop(): Promise<Shop> {
  const { postgres } = await sharedStack();
  const schema = `idem_${randomBytes(5).toString('hex')}`;
  const url = withSettings(postgres, { schema });
  const pool = new pg.Pool({ connectionString: url, max: 6 });
  // A test ends some of its sessions.
  pool.on('error', () => {});
  await pool.query(`CREATE SCHEMA ${schema}`);
  await pool.query(idempotencyTableSql());
  await pool.query('CREATE TABLE payments (id bigserial PRIMARY KEY, key text NOT NULL, cents int NOT NULL)');
  atEnd(async () => {
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.end();
  });
  return {
    url,
    schema,
    pool,
    async payments(key) {
      const { rows } = await pool.query('SELECT count(*)::int AS n FROM payments WHERE key = $1', [key]);
      return rows[0].n;
    },
    async records(key) {
      return (await pool.query('SELECT * FROM idempotency WHERE key = $1 ORDER BY scope', [key])).rows;
    },
  };
}

/** Answer of the application; the adapters of the frameworks write it. */
interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly text: string;
}

/** The application: pays, and answers with a number that no second execution repeats. The body
 *  chooses faults. */
export async function pay(
  tx: Pick<pg.PoolClient, 'query'>,
  key: string,
  body: { readonly cents: number; readonly fault?: string },
): Promise<Reply> {
  const { rows } = await tx.query('INSERT INTO payments (key, cents) VALUES ($1, $2) RETURNING id', [
    key,
    body.cents,
  ]);
  const { id } = rows[0];
  if (body.fault === 'throws') throw new Error('the handler failed');
  // The blank and the order of the members show that the bytes are replayed, not an equal value.
  const text = body.fault === 'large' ? 'x'.repeat(5000) : `{"z": 1, "id":"${id}","ü":"€"}`;
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    location: `/payments/${id}`,
    'set-cookie': ['a=1', 'b=2'],
    'x-internal': 'yes',
  };
  return { status: body.fault === 'refuses' ? 503 : 201, headers, text };
}

export type Framework = 'node:http' | 'express' | 'fastify' | 'hono' | 'nest';
export const FRAMEWORKS: readonly Framework[] = ['node:http', 'express', 'fastify', 'hono', 'nest'];

export interface Started {
  readonly url: string;
  readonly close: () => Promise<void>;
}

type Options = Partial<IdempotencyOptions<pg.PoolClient>>;

export const DAY_MS = 86_400_000;

const tenantOf = (headers: Readonly<Record<string, unknown>>): string =>
  String(headers['x-tenant'] ?? 'shared');

async function listening(server: Server): Promise<Started> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Starts the application on a framework; it is closed after the test file. */
export async function startShop(
  framework: Framework,
  shop: Shop,
  options: Options = {},
  app: typeof pay = pay,
): Promise<Started> {
  const common = { sql: shop.pool, ttlMs: DAY_MS, answerBytesMax: 4096, bodyBytesMax: 1000, ...options };
  const started = await STARTERS[framework](common, app);
  atEnd(started.close);
  return started;
}

type Common = Options & Pick<IdempotencyOptions<pg.PoolClient>, 'sql' | 'ttlMs'>;
type Starter = (options: Common, app: typeof pay) => Promise<Started>;

const STARTERS: Readonly<Record<Framework, Starter>> = {
  'node:http': async (options, app) => {
    const idem = idempotency({ scope: (req) => tenantOf(req.headers), ...options });
    const handler = idem.http(async (_req, res, { tx, key, body }) => {
      const reply = await app(tx, key, JSON.parse(String(body)));
      res.writeHead(reply.status, reply.headers as OutgoingHttpHeaders);
      res.write(reply.text.slice(0, 3));
      res.end(reply.text.slice(3));
    });
    return listening(createServer(handler));
  },
  express: async (options, app) => {
    const idem = idempotency({ scope: (req: express.Request) => tenantOf(req.headers), ...options });
    const server = express();
    server.post(
      '/payments',
      express.json(),
      idem.express(async (req: express.Request, res: express.Response, { tx, key }) => {
        const reply = await app(tx, key, req.body);
        res
          .status(reply.status)
          .set(reply.headers as Record<string, string>)
          .send(reply.text);
      }),
    );
    server.use(((_error, _req, res, _next) =>
      res.status(500).send('by express')) as express.ErrorRequestHandler);
    return listening(createServer(server));
  },
  fastify: async (options, app) => {
    const idem = idempotency({ scope: (req) => tenantOf(req.headers), ...options });
    const server = fastify();
    server.post(
      '/payments',
      idem.fastify(async (request: FastifyRequest, reply: FastifyReply, { tx, key }) => {
        const answer = await app(tx, key, request.body as { cents: number });
        return reply
          .code(answer.status)
          .headers(answer.headers as Record<string, string>)
          .send(answer.text);
      }),
    );
    const url = await server.listen({ port: 0, host: '127.0.0.1' });
    return { url, close: () => server.close() };
  },
  hono: async (options, app) => {
    const idem = idempotency({ scope: (c) => c.req.header('x-tenant') ?? 'shared', ...options });
    const hono = new Hono();
    hono.post(
      '/payments',
      idem.hono(async (c: Context, { tx, key }) => {
        const reply = await app(tx, key, await c.req.json());
        const headers = new Headers();
        for (const [name, values] of Object.entries(reply.headers))
          for (const value of [values].flat()) headers.append(name, String(value));
        return new Response(reply.text, { status: reply.status, headers });
      }),
    );
    return new Promise((resolve) => {
      const server = serve({ fetch: hono.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) =>
        resolve({
          url: `http://127.0.0.1:${port}`,
          close: () => new Promise<void>((done) => void server.close(() => done())),
        }),
      );
    });
  },
  nest: async (options, app) => {
    const idem = idempotency({ scope: (req: express.Request) => tenantOf(req.headers), ...options });
    class Payments {
      async create(req: express.Request, res: express.Response): Promise<unknown> {
        const { tx, key } = idem.of(req);
        const reply = await app(tx, key, req.body);
        res.status(reply.status).set(reply.headers as Record<string, string>);
        return reply.text;
      }
    }
    const descriptor = Object.getOwnPropertyDescriptor(Payments.prototype, 'create') as PropertyDescriptor;
    Post('payments')(Payments.prototype, 'create', descriptor);
    UseInterceptors(idem.nest())(Payments.prototype, 'create', descriptor);
    Req()(Payments.prototype, 'create', 0);
    Res({ passthrough: true })(Payments.prototype, 'create', 1);
    Controller()(Payments);
    class Shop {}
    Reflect.defineMetadata('controllers', [Payments], Shop);
    const nest = await NestFactory.create(Shop, { logger: false });
    await nest.listen(0, '127.0.0.1');
    const { port } = nest.getHttpServer().address() as AddressInfo;
    return { url: `http://127.0.0.1:${port}`, close: () => nest.close() };
  },
};

export interface Seen {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Body as a problem document. */
  readonly problem: () => Readonly<Record<string, unknown>>;
}

/** Sends one request. `undefined` as the key sends none. */
export async function post(
  url: string,
  key: string | undefined,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Seen> {
  const response = await fetch(`${url}/payments`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(key === undefined ? {} : { 'idempotency-key': key }),
      ...headers,
    },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, problem: () => JSON.parse(text) };
}

let keys = 0;
/** Key that no other request of the run has. */
export const newKey = (): string => `key-${++keys}-${randomBytes(4).toString('hex')}`;
