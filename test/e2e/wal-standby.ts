/** Simulated standby: tells its primary through a physical stream which rows it still needs. */
import type { Socket } from 'node:net';
import pg from 'pg';
import { queryMessage } from '../../src/io/postgres/replication/frames.ts';

const COPY_BOTH = 0x57;
const FEEDBACK_BYTES = 25;

export interface Standby {
  readonly pid: number;
  /** Sends hot_standby_feedback: rows changed by this transaction and later ones are still
   *  needed. */
  feedback(xmin: bigint): void;
  close(): Promise<void>;
}

export async function standbyOf(url: string, applicationName: string, slot?: string): Promise<Standby> {
  const config: pg.ClientConfig & { readonly replication: string } = {
    connectionString: url,
    application_name: applicationName,
    replication: 'true',
  };
  const client = new pg.Client(config);
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query<{ xlogpos: string }>('IDENTIFY_SYSTEM');
  const inside = client as unknown as {
    readonly connection: { readonly stream: Socket };
    readonly processID: number;
  };
  const { stream } = inside.connection;
  stream.removeAllListeners('data');
  const started = new Promise<void>((resolve, reject) => {
    stream.once('data', (chunk: Buffer) =>
      chunk[0] === COPY_BOTH ? resolve() : reject(new Error(chunk.toString('latin1'))),
    );
  });
  stream.on('data', () => {});
  const from = slot === undefined ? '' : `SLOT ${slot} `;
  stream.write(queryMessage(`START_REPLICATION ${from}PHYSICAL ${rows[0]?.xlogpos}`));
  await started;
  return {
    pid: inside.processID,
    feedback(xmin) {
      const frame = Buffer.alloc(5 + FEEDBACK_BYTES);
      frame[0] = 0x64;
      frame.writeUInt32BE(4 + FEEDBACK_BYTES, 1);
      frame[5] = 0x68;
      frame.writeUInt32BE(Number(xmin & 0xffff_ffffn), 14);
      frame.writeUInt32BE(Number(xmin >> 32n), 18);
      stream.write(frame);
    },
    close: () =>
      new Promise((resolve) => {
        stream.once('close', () => resolve());
        stream.destroy();
      }),
  };
}
