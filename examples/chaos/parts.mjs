// Parts that the three processes of the example share.
import { createServer } from 'node:http';
import pg from 'pg';

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Time limits, because a network may lose the answer to a statement.
export const pool = new pg.Pool({
  connectionString: process.env.DATABASE_URL,
  options: `-c search_path=${process.env.SHOP_SCHEMA ?? 'public'}`,
  max: 8,
  connectionTimeoutMillis: 3000,
  query_timeout: 3000,
});
// An idle connection may be lost; the pool opens another one.
pool.on('error', () => {});

// Answers /ready on 127.0.0.1:PORT, and everything else by `handle`.
export const serve = (isReady, handle = (_, response) => response.writeHead(404).end()) =>
  createServer((request, response) => {
    if (request.url === '/ready') response.writeHead(isReady() ? 200 : 503).end();
    else handle(request, response);
  }).listen(Number(process.env.PORT), '127.0.0.1');
