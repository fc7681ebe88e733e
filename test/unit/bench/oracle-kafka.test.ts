/** The oracle's reader of a topic when its broker disconnects. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { TopicReader } from '../../../bench/peers/oracle/kafka.ts';

const int16 = (value: number): Buffer => Buffer.from([value >> 8, value & 255]);
const int32 = (value: number): Buffer => Buffer.concat([int16(value >> 16), int16(value & 65_535)]);
const text = (value: string): Buffer => Buffer.concat([int16(value.length), Buffer.from(value)]);

/** Metadata of a broker that leads the single partition of `t`, as the answer to the first request
 *  of a connection. */
function metadata(port: number): Buffer {
  const broker = [int32(7), text('127.0.0.1'), int32(port), text('')];
  const partition = [int16(0), int32(0), int32(7), int32(0), int32(0)];
  const topic = [int16(0), text('t'), Buffer.of(0), int32(1), ...partition];
  const body = Buffer.concat([int32(1), int32(1), ...broker, int32(7), int32(1), ...topic]);
  return Buffer.concat([int32(body.length), body]);
}

it('the topic reader fails a request over a connection that ended while no request waited', async () => {
  const served: Socket[] = [];
  const server = createServer((socket) => {
    served.push(socket);
    socket.on('error', () => {});
    socket.once('data', () => void socket.write(metadata((server.address() as AddressInfo).port)));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const reader = await TopicReader.open(`127.0.0.1:${(server.address() as AddressInfo).port}`, 't');
  // One connection for the metadata, one to the leader.
  await expect.poll(() => served.length).toBe(2);
  const closed = Promise.all(served.map((socket) => once(socket, 'close')));
  for (const socket of served) socket.end();
  await closed;
  await expect(reader.end(0)).rejects.toThrow();
  reader.close();
  server.close();
}, 30_000);
