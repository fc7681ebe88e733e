/** Commands before a server that accepts connections and never answers: -connect-timeout limits
 *  their wait. */
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { runConsumer } from '../fixtures/consumer.ts';
import { launcher, type Outcome } from '../fixtures/process.ts';
import { startTool } from '../fixtures/tool.ts';
import { arrival } from '../wait.ts';

const own = launcher();
const sockets = new Set<Socket>();
const silent = createServer((socket) => {
  sockets.add(socket);
  socket.on('error', () => {});
  socket.resume();
});
let address = '';
const schema = join(own.dir, 'order.avsc');

beforeAll(async () => {
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  address = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
  writeFileSync(schema, '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}');
});
afterAll(() => {
  for (const socket of sockets) socket.destroy();
  silent.close();
});

const registry = (): readonly string[] => [
  `-registry=http://${address}`,
  '-subject=orders-value',
  '-connect-timeout=300ms',
];
const brokers = (): string => `-brokers=${address}`;
const records = (): readonly string[] => [brokers(), '-format=avro'];

it.each<readonly [string, () => Promise<Outcome>]>([
  ['compat-check', () => own.run(['compat-check', ...registry(), `-proposed=${schema}`])],
  ['gen types', () => own.run(['gen', 'types', ...registry(), `-out=${join(own.dir, 'order.ts')}`])],
  [
    'gen',
    () =>
      own.run([
        ...['gen', '-kind=orders', '-format=avro', '-count=1', '-out=kafka:orders', brokers()],
        ...[`-registry=http://${address}`, '-connect-timeout=300ms'],
      ]),
  ],
  ['producer', () => own.run(['producer', ...registry(), ...records(), `-schema=${schema}`, '-count=1'])],
  ['consumer', () => runConsumer(own, [...registry(), ...records()])],
])('%s reports the -connect-timeout that a silent registry exceeded', async (_command, ask) => {
  const { code, stderr } = await ask();
  expect(stderr).toContain('no whole answer within 300 ms');
  expect(code).toBe(3);
});

it('gen stops waiting for a silent broker after its -connect-timeout, and not before', async () => {
  const asked = (limit: string, name: string) =>
    startTool(own, 'gen', ['-count=1', '-out=kafka:events', brokers(), `-connect-timeout=${limit}`], name);
  const patient = asked('2m', 'patient');
  const hasty = asked('1s', 'hasty');
  const { code } = await arrival('end of the impatient command', hasty.ended, () => hasty.log());
  expect(code).toBe(3);
  // Fails if the other command has ended by itself.
  await patient.die();
});
