/** Emulator of the S3 API (moto) as a process of a test file. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '../../src/shell/package.ts';
import { until } from '../wait.ts';

/** Credentials of the emulator, which accepts any. */
const KEYS = { AWS_ACCESS_KEY_ID: 'test', AWS_SECRET_ACCESS_KEY: 'test', AWS_REGION: 'us-east-1' };

export interface S3Emulator {
  /** Environment of a client: endpoint and credentials. */
  readonly env: Readonly<Record<string, string>>;
  /** Stops and continues the emulator, as an outage does. */
  signal(name: 'SIGSTOP' | 'SIGCONT'): void;
  close(): Promise<void>;
}

/** Program of the emulator. Its threads may write between the check of a conditional PUT and its
 *  write (`S3Response.put_object` of moto 5.2.5), so that two of them succeed; S3 does both as one.
 */
const SERVER = `
from threading import Lock
from moto import server
from moto.s3.responses import S3Response

put, lock = S3Response.put_object, Lock()

def put_object(self):
    with lock:
        return put(self)

S3Response.put_object = put_object
server.main()
`;

/** Starts the emulator with one bucket; installs it if it is missing. */
export async function startS3(bucket: string): Promise<S3Emulator> {
  const { s3Dir } = (await import(join(packageRoot(), 'tools', 'clients.mjs'))) as { s3Dir(): string };
  const child = spawn(join(s3Dir(), 'python', 'bin', 'python'), [
    ...['-c', SERVER, '-H', '127.0.0.1', '-p', '0'],
  ]);
  let log = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      log += chunk;
    });
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const endpoint = await until('the address of the emulator of S3', () => {
    if (child.exitCode !== null) throw new Error(log);
    return /Running on (http:\/\/127\.0\.0\.1:\d+)/.exec(log)?.[1];
  });
  const made = await fetch(`${endpoint}/${bucket}`, {
    method: 'PUT',
    headers: { authorization: 'AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request' },
  });
  if (!made.ok) throw new Error(`the emulator of S3 makes no bucket: ${made.status} ${await made.text()}`);
  return {
    env: { ...KEYS, AWS_ENDPOINT_URL: endpoint },
    signal: (name) => void child.kill(name),
    close: async () => {
      child.kill('SIGCONT');
      child.kill('SIGKILL');
      await ended;
    },
  };
}
