/** Endpoints whose body only the handler reads, as it does for a streamed upload: the fingerprint
 *  selects what else identifies the request. */
import 'reflect-metadata';
import type { AddressInfo } from 'node:net';
import type { Readable } from 'node:stream';
import { Controller, Post, Req, Res, UseInterceptors } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type express from 'express';
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import { type IdempotencyOptions, idempotency, type SelectedRequest } from '../../src/outbox/index.ts';
import { atEnd, DAY_MS, newKey, openShop, post, type Shop } from './idempotency-kit.ts';

let shop: Shop;
beforeAll(async () => {
  shop = await openShop();
});

type Fingerprint = IdempotencyOptions<pg.PoolClient>['fingerprint'];

const optionsOf = (fingerprint: Fingerprint) => ({
  ...{ sql: shop.pool, scope: () => 'one', ttlMs: DAY_MS },
  ...(fingerprint === undefined ? {} : { fingerprint }),
});

/** Reads an upload to its end, and records its length as a payment. */
async function receive(tx: pg.PoolClient, key: string, upload: Readable): Promise<string> {
  let bytes = 0;
  for await (const chunk of upload) bytes += (chunk as Buffer).length;
  const { rows } = await tx.query('INSERT INTO payments (key, cents) VALUES ($1, $2) RETURNING id', [
    key,
    bytes,
  ]);
  return JSON.stringify({ id: rows[0].id, bytes });
}

async function startFastify(fingerprint: Fingerprint): Promise<string> {
  const idem = idempotency(optionsOf(fingerprint));
  const server = fastify();
  // As a plugin for streamed uploads does it: the body stays in the raw stream.
  server.addContentTypeParser('multipart/form-data', (_request, _payload, done) => done(null));
  server.post(
    '/payments',
    idem.fastify(async (request: FastifyRequest, reply: FastifyReply, { tx, key, body }) => {
      expect(body).toBeUndefined();
      return reply.code(201).send(await receive(tx, key, request.raw));
    }),
  );
  atEnd(() => server.close());
  return server.listen({ port: 0, host: '127.0.0.1' });
}

async function startNest(fingerprint: Fingerprint): Promise<string> {
  const idem = idempotency(optionsOf(fingerprint));
  class Uploads {
    async create(req: express.Request, res: express.Response): Promise<string> {
      const { tx, key } = idem.of(req);
      res.status(201);
      return receive(tx, key, req);
    }
  }
  const descriptor = Object.getOwnPropertyDescriptor(Uploads.prototype, 'create') as PropertyDescriptor;
  Post('payments')(Uploads.prototype, 'create', descriptor);
  UseInterceptors(idem.nest())(Uploads.prototype, 'create', descriptor);
  Req()(Uploads.prototype, 'create', 0);
  Res({ passthrough: true })(Uploads.prototype, 'create', 1);
  Controller()(Uploads);
  class App {}
  Reflect.defineMetadata('controllers', [Uploads], App);
  const nest = await NestFactory.create(App, { logger: false });
  atEnd(() => nest.close());
  await nest.listen(0, '127.0.0.1');
  return `http://127.0.0.1:${(nest.getHttpServer().address() as AddressInfo).port}`;
}

const UPLOAD = `--x\r\ncontent-disposition: form-data; name="f"; filename="f"\r\n\r\n${'é'.repeat(50_000)}\r\n--x--\r\n`;
const send = (url: string, key: string, digest: string) =>
  post(url, key, UPLOAD, { 'content-type': 'multipart/form-data; boundary=x', 'x-digest': digest });

// biome-ignore lint/suspicious/noExplicitAny: the request of either framework
const byDigest = ({ request, method, path }: SelectedRequest<any>) => [
  method,
  path,
  request.headers['x-digest'],
];

describe.each([
  ['fastify', startFastify],
  ['nest', startNest],
] as const)('a streamed upload to an idempotent endpoint of %s', (framework, start) => {
  it('a fingerprint without the body identifies the request, and the handler reads the whole stream once', async () => {
    const url = await start(byDigest);
    const key = newKey();
    const first = await send(url, key, 'a');
    expect([first.status, JSON.parse(first.text).bytes]).toEqual([201, Buffer.byteLength(UPLOAD)]);
    const again = await send(url, key, 'a');
    expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([
      201,
      first.text,
      'true',
    ]);
    expect((await send(url, key, 'b')).status).toBe(409);
    expect(await shop.payments(key)).toBe(1);
  });

  it.each([
    ['without a fingerprint', undefined],
    ['with a fingerprint of the body', ({ body }: SelectedRequest<unknown>) => [body]],
  ])('a request %s is refused before its handler runs', async (_, fingerprint) => {
    const url = await start(fingerprint);
    const key = newKey();
    const refused = await send(url, key, 'a');
    expect([refused.status, await shop.payments(key), await shop.records(key)]).toEqual([500, 0, []]);
    if (framework === 'fastify')
      expect(refused.problem()['message']).toContain(
        'a body that neither this endpoint nor a parser before it has read',
      );
  });
});
