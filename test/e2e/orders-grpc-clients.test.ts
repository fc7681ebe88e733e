/** A stock gRPC client of another implementation (grpcio, C core) without our proto file: it learns
 *  the service by reflection. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { clientsFolder } from '../clients/kit.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { grpcAddress } from './orders-grpc-kit.ts';
import { createdOf, newKey, ordersKit, type Service } from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

let service: Service;
let python: ChildProcess;
let lines: Interface;
let stderr = '';

beforeAll(async () => {
  const [{ schema }, dir] = await Promise.all([kit.schema(), clientsFolder()]);
  service = await kit.serve(schema);
  const script = join(packageRoot(), 'test', 'clients', 'python', 'orders.py');
  python = spawn(join(dir, 'python', 'bin', 'python'), [script, await grpcAddress(service)]);
  python.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    stderr += chunk;
  });
  lines = createInterface({ input: python.stdout as NodeJS.ReadableStream });
}, 400_000);
afterAll(() => {
  python?.kill('SIGKILL');
});

function ask(request: Readonly<Record<string, unknown>>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    lines.once('line', (line) => resolve(JSON.parse(line)));
    const onEnd = (): void => reject(new Error(`the client ended: ${stderr}`));
    python.once('close', onEnd);
    if (python.exitCode !== null) onEnd();
    python.stdin?.write(`${JSON.stringify(request)}\n`);
  });
}

const create = (metadata: ReadonlyArray<readonly [string, string]>, message: unknown) =>
  ask({ op: 'call', method: 'Create', metadata, message });

it('a grpcio client finds the services and their health by reflection', async () => {
  expect(await ask({ op: 'services' })).toEqual(
    expect.arrayContaining(['grpc.health.v1.Health', 'orders.v1.Orders']),
  );
  expect(await ask({ op: 'health' })).toBe('SERVING');
});

it('a grpcio client creates an order, replays it over the other transport, and reads it back', async () => {
  const key = newKey();
  const message = { accountId: '9007199254740993', amountCents: '1999' };
  const first = (await create([['idempotency-key', key]], message)) as {
    readonly value: { readonly order_id: string };
  };
  expect(first).toMatchObject({
    code: 'OK',
    value: { status: 'created' },
    trailers: { 'idempotency-replayed': 'false' },
  });
  const reply = await service.order(key, { account_id: '9007199254740993', amount_cents: 1999 });
  expect(createdOf(reply, true)).toBe(first.value.order_id);
  expect(await ask({ op: 'call', method: 'Get', message: { orderId: first.value.order_id } })).toMatchObject({
    code: 'OK',
    value: {
      account_id: '9007199254740993',
      amount_cents: '1999',
      status: 'created',
      created_at: expect.stringMatching(/^20\d\d-.*Z$/),
    },
  });
  expect(await create([['idempotency-key', key]], { accountId: '1', amountCents: '2' })).toMatchObject({
    code: 'ALREADY_EXISTS',
    details: [
      {
        type: 'ErrorInfo',
        reason: 'IDEMPOTENCY_KEY_REUSED',
        metadata: { differs: 'account_id,amount_cents' },
      },
      { type: 'RequestInfo' },
    ],
  });
});

it('a grpcio client gets the reason of a refusal', async () => {
  const message = { accountId: '7', amountCents: '1999' };
  for (const metadata of [
    [],
    [['idempotency-key', 'x y']],
    [
      ['idempotency-key', newKey()],
      ['idempotency-key', newKey()],
    ],
  ])
    expect(await create(metadata as [string, string][], message)).toMatchObject({
      code: 'INVALID_ARGUMENT',
      details: [
        { type: 'BadRequest', fieldViolations: [{ field: 'idempotency-key' }] },
        { type: 'ErrorInfo', reason: 'BAD_IDEMPOTENCY_KEY' },
        { type: 'RequestInfo' },
      ],
    });
  expect(await create([['idempotency-key', newKey()]], { accountId: '7' })).toMatchObject({
    code: 'INVALID_ARGUMENT',
    details: [{ type: 'BadRequest', fieldViolations: [{ field: 'amount_cents' }] }, {}, {}],
  });
});
