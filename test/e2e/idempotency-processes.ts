/** Runs the examples of idempotent endpoints as processes. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { until } from '../wait.ts';

export interface ExampleServer {
  readonly port: number;
  readonly child: ChildProcess;
  /** Sends SIGKILL and waits for the end. */
  kill(): Promise<void>;
}

const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) {
    child.kill('SIGCONT');
    child.kill('SIGKILL');
  }
});

/** Starts an example and waits until it listens. */
export async function startExample(
  name: string,
  postgres: string,
  env: Readonly<Record<string, string>> = {},
): Promise<ExampleServer> {
  const port = await freePort();
  const file = join(packageRoot(), 'examples', 'idempotent-endpoints', `${name}.mjs`);
  const child = spawn(process.execPath, [file, postgres, String(port)], {
    cwd: packageRoot(),
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => {
      out += text;
    });
  const ended = once(child, 'close').then(() => running.delete(child));
  await until(`a listening ${name}, or its end`, () => out.includes('listening') || child.exitCode !== null);
  if (child.exitCode !== null) throw new Error(`${name} ended: ${out}`);
  return {
    port,
    child,
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

/** Runs an example that ends by itself. */
export async function runExample(name: string, postgres: string): Promise<void> {
  const file = join(packageRoot(), 'examples', 'idempotent-endpoints', `${name}.mjs`);
  const child = spawn(process.execPath, [file, postgres], { cwd: packageRoot(), stdio: 'inherit' });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`${name} ended with ${code}`);
}
