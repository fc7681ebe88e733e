/** The orders process with access rules, on a real database: the same rules apply to HTTP and
 *  gRPC. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { hashPassword } from '../../src/access/index.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until } from '../wait.ts';
import { grpcAddress, type OrdersClient, ordersClient } from './orders-grpc-kit.ts';
import {
  createdOf,
  logOf,
  metric,
  newKey,
  ORDER,
  ordersKit,
  post,
  problemOf,
  type Reply,
  rowCounts,
  type Service,
} from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

const file = (name: string, text: string): string => {
  const path = join(own.dir, name);
  writeFileSync(path, text);
  return path;
};

const PASSWORD = 'a password: with colons, blanks and ü';
const basic = (user: string, password = PASSWORD): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });

/** Creates a token of the issuer that the service trusts. */
function bearer(claims: object): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const exp = Math.floor(realClock.wallNowMs() / 1000) + 3600;
  const text = `${part({ alg: 'ES256', kid: 'one' })}.${part({ iss: 'issuer', aud: 'orders', exp, ...claims })}`;
  const signature = sign('sha256', Buffer.from(text), { key: key.privateKey, dsaEncoding: 'ieee-p1363' });
  return `Bearer ${text}.${signature.toString('base64url')}`;
}
const TILL = bearer({ client: 'till' });

let pool: SqlPool;
let service: Service;
let grpc: OrdersClient;
beforeAll(async () => {
  const world = await kit.schema();
  pool = world.pool;
  const rules = ['basic:shop write orders', 'basic:support read orders', 'jwt:till read,write orders'];
  const hashed = await hashPassword(PASSWORD);
  const jwk = { ...key.publicKey.export({ format: 'jwk' }), kid: 'one' };
  service = await kit.serve(world.schema, [
    `-auth-rules=${file('rules', rules.join('\n'))}`,
    `-auth-basic=${file('users', `shop:${hashed}\nsupport:${hashed}\n`)}`,
    `-auth-jwks=${file('keys.json', JSON.stringify({ keys: [jwk] }))}`,
    '-auth-jwt-issuer=issuer',
    '-auth-jwt-audience=orders',
    '-auth-jwt-algorithms=ES256',
    '-auth-jwt-name=client',
    '-auth-jwt-leeway=5s',
    '-auth-failure-rate=1000',
    '-client-rate=1000',
  ]);
  grpc = ordersClient(await grpcAddress(service));
});

const order = (authorization?: string): Promise<Reply> => {
  const asked = post(newKey());
  return service.ask({ ...asked, headers: { ...asked.headers, ...(authorization && { authorization }) } });
};
const call = (authorization?: string) =>
  grpc.create(
    newKey(),
    { account_id: '7', amount_cents: '1999' },
    authorization === undefined ? {} : { metadata: { authorization } },
  );

describe('orders process with access rules', () => {
  it('orders creates orders for an allowed password and token, over HTTP and gRPC', async () => {
    const before = await rowCounts(pool);
    for (const authorization of [basic('shop'), TILL]) {
      createdOf(await order(authorization), false);
      expect(await call(authorization)).toMatchObject({ code: 'OK' });
    }
    expect(await rowCounts(pool)).toEqual(before.map((count) => count + 4));
    expect(logOf(service)).not.toContain('audit: allowed');
  });

  it('load sends a user or a token, and shows neither', async () => {
    const token = `-target-token-file=${file('till.token', TILL.slice('Bearer '.length))}`;
    const run = async (...flags: readonly string[]) => {
      const bounds = ['-count=5', '-rate=50', '-retry-rate=0', '-json'];
      const { code, stdout, stderr } = await own.run(['load', ...bounds, ...flags]);
      expect(code, stderr).toBe(0);
      expect(stdout + stderr).not.toContain(PASSWORD);
      return JSON.parse(stdout) as { acknowledged: number; refused: number };
    };
    const target = `-target=http://${service.address}`;
    for (const flags of [[`-target-user=shop:${PASSWORD}`], [token]])
      expect(await run(target, ...flags)).toMatchObject({ acknowledged: 5, refused: 0 });
    const inAddress = `-target=http://shop:${encodeURIComponent(PASSWORD)}@${service.address}`;
    expect(await run(inAddress)).toMatchObject({ acknowledged: 5 });
    expect(await run(target)).toMatchObject({ acknowledged: 0, refused: 5 });
    const { code, stderr } = await own.run(['load', target, token, '-target-user=shop:x']);
    expect(code).toBe(2);
    expect(stderr).toContain('more than one kind of credentials is given for the target');
  });

  it('orders refuses every other caller over HTTP and gRPC, and writes nothing for it', async () => {
    const before = await rowCounts(pool);
    const foreign = bearer({ client: 'till', aud: 'registry' });
    for (const authorization of [undefined, basic('shop', 'wrong'), foreign]) {
      const refused = await order(authorization);
      problemOf(refused, 401, 'unauthenticated');
      expect(refused.headers['www-authenticate']).toContain('Bearer');
      expect(await call(authorization)).toMatchObject({ code: 'UNAUTHENTICATED' });
    }
    problemOf(await order(basic('support')), 403, 'forbidden');
    expect(await call(basic('support'))).toMatchObject({ code: 'PERMISSION_DENIED' });
    expect(await rowCounts(pool)).toEqual(before);
    expect(await metric(service, 'orders_auth_decisions_total')).toBeGreaterThanOrEqual(8);
    expect(logOf(service)).not.toContain(PASSWORD);
  });

  it('only a caller with the right to read can read an order', async () => {
    const orderId = createdOf(await order(TILL), false);
    const read = (authorization: string): Promise<Reply> =>
      service.ask({ path: `/orders/${orderId}`, headers: { authorization } });
    expect(JSON.parse((await read(basic('support'))).body.toString())).toMatchObject(ORDER);
    problemOf(await read(basic('shop')), 403, 'forbidden');
  });

  it('orders reloads its files on SIGHUP, and counts it', async () => {
    process.kill(service.process.pid, 'SIGHUP');
    const reloads = async () =>
      (await metric(service, 'orders_auth_reloads_total')) >= 3 ? true : undefined;
    await until('the reload of three files', reloads);
    createdOf(await order(TILL), false);
  });

  it('orders does not start with -auth-mtls where no client certificates are requested', async () => {
    const rules = `-auth-rules=${file('some-rules', 'mtls:CN=* write orders')}`;
    await kit.fails(2, /-auth-mtls needs -tls-client-ca/, [rules, '-auth-mtls']);
  });
});
