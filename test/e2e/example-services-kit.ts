/** Runs the example services of examples/ as their readers do: copied into a project in which the
 *  packed Millrace is unpacked, and started by the scripts of their package.json.
 *
 *  All other packages are links to those of the repository, in the versions that each example pins
 *  (test/repository/examples.test.ts). npm would take minutes to install them;
 *  test/e2e/package-install.test.ts installs the package with it. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { kafkajsFolder } from '../clients/kit.ts';
import { until } from '../wait.ts';
import { link, unpackPackage } from './package-kit.ts';

export const EXAMPLES = ['express-drizzle', 'fastify-knex', 'nestjs-typeorm'] as const;
export type ExampleName = (typeof EXAMPLES)[number];
/** Scripts of an example that run until they are stopped. */
type Role = 'provider' | 'server' | 'worker';

interface Manifest {
  readonly scripts: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

/** Installs Millrace and copies the examples into this empty folder. */
export async function installExamples(project: string): Promise<void> {
  unpackPackage(project);
  const modules = join(project, 'node_modules');
  const ours = join(packageRoot(), 'node_modules');
  link(await kafkajsFolder(), join(modules, 'kafkajs'));
  link(join(ours, 'typescript/bin/tsc'), join(modules, '.bin/tsc'));
  for (const name of EXAMPLES) {
    cpSync(join(packageRoot(), 'examples', name), join(project, name), { recursive: true });
    const { dependencies, devDependencies } = manifestOf(join(project, name));
    for (const one of Object.keys({ ...dependencies, ...devDependencies }))
      link(join(ours, one), join(modules, one));
  }
}

const manifestOf = (folder: string): Manifest =>
  JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest;

const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) child.kill('SIGKILL');
});

/** Process of an example. */
export interface ExampleProcess {
  /** Sends SIGKILL and waits for the end. */
  kill(): Promise<void>;
  /** Sends SIGTERM. Returns the exit code and the output. */
  stop(): Promise<readonly [code: number | null, output: string]>;
}

/** Runs an npm script of an example that ends by itself. Returns its output. @throws its failure */
export async function runScript(
  folder: string,
  script: string,
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const options = { cwd: folder, env: { ...process.env, ...env }, encoding: 'utf8' } as const;
  return (await promisify(execFile)('npm', ['run', '--silent', script], options)).stdout;
}

/** Starts a script of an example without npm, which would not pass on SIGKILL, and waits until it
 *  reports that it is ready. */
export async function startScript(
  folder: string,
  role: Role,
  env: Readonly<Record<string, string>>,
): Promise<ExampleProcess> {
  const [program, ...args] = (manifestOf(folder).scripts[role] as string).split(' ');
  if (program !== 'node') throw new Error(`the script ${role} of ${folder} does not start with node`);
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  const ended = once(child, 'close').then(() => running.delete(child));
  const ready = /^(listening|working)$/m;
  await until(`a ready ${role}, or its end`, () => ready.test(output) || child.exitCode !== null);
  if (child.exitCode !== null) throw new Error(`${role} of ${folder} ended: ${output}`);
  return {
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
    async stop() {
      child.kill('SIGTERM');
      await ended;
      return [child.exitCode, output];
    },
  };
}

/** Payment provider that charges each idempotency key once. */
export interface ChargeProvider {
  readonly url: string;
  /** Number of calls. */
  calls(): number;
  /** Amounts that were charged, by idempotency key. */
  readonly charges: ReadonlyMap<string, number>;
  /** Behaviour after the charge of a call: answers, cuts the connection, or stays silent. */
  after: () => 'answer' | 'cut' | 'silence';
}

export async function startChargeProvider(): Promise<ChargeProvider> {
  const charges = new Map<string, number>();
  let calls = 0;
  const provider: { -readonly [K in keyof ChargeProvider]: ChargeProvider[K] } = {
    url: '',
    calls: () => calls,
    charges,
    after: () => 'answer',
  };
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk;
    const key = String(request.headers['idempotency-key']);
    const { cents } = JSON.parse(text) as { readonly cents: number };
    calls++;
    if (!charges.has(key)) charges.set(key, cents);
    const what = provider.after();
    if (what === 'answer') response.end(JSON.stringify({ id: `charge of ${key}` }));
    if (what === 'cut') request.socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });
  provider.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return provider;
}

/** Answer to a request for an order. */
export interface Placed {
  readonly status: number;
  readonly text: string;
  readonly isReplay: boolean;
}

/** Sends an order. @throws without an answer */
export async function place(port: number, key: string, cents: number): Promise<Placed> {
  const response = await fetch(`http://127.0.0.1:${port}/orders`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify({ customer: 'ann', cents }),
  });
  return {
    status: response.status,
    text: await response.text(),
    isReplay: response.headers.get('idempotency-replayed') === 'true',
  };
}

/** Sends an order again and again until it is answered for good. */
export const persist = (port: number, key: string, cents: number): Promise<Placed> =>
  until('the answer to an order', async () => {
    const placed = await place(port, key, cents);
    return placed.status === 503 ? undefined : placed;
  });
