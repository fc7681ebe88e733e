/** Registries under load: Millrace as a child process, or another registry at a URL, and requests
 *  to both. */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { invariant } from '../src/core/errors.ts';
import { freePort } from '../src/devstack/ports.ts';
import { packageRoot } from '../src/shell/package.ts';

const WRITABLE_MS_MAX = 120_000;
const KNOCK_MS = 2;
const STDERR_CHARS = 4000;

export const HEADERS = {
  accept: 'application/vnd.schemaregistry.v1+json',
  'content-type': 'application/vnd.schemaregistry.v1+json',
} as const;

/** A running registry. */
export interface Target {
  readonly name: string;
  /** Base URL, with the path of its interface. */
  readonly url: string;
}

export interface Started extends Target {
  readonly pid: number;
  /** Time from spawn to the first accepted registration. */
  readonly writableMs: number;
  /** SIGTERM, then SIGKILL after a timeout. */
  stop(): Promise<void>;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), 20_000);
  await ended;
  clearTimeout(late);
}

/** Record with one field; distinct by its name, like its subject. */
export const smallSchema = (name: string): string =>
  JSON.stringify({ type: 'record', name, fields: [{ name: 'a', type: 'long' }] });

export const registration = (schema: string): string => JSON.stringify({ schema });

/** @throws Error unless the answer is one of `statuses` */
export async function ask(
  target: Pick<Target, 'url'>,
  method: string,
  path: string,
  body?: string,
  statuses: readonly number[] = [200],
): Promise<unknown> {
  const answer = await fetch(`${target.url}${path}`, {
    method,
    headers: HEADERS,
    ...(body === undefined ? {} : { body }),
  });
  const text = await answer.text();
  if (!statuses.includes(answer.status)) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/** Starts Millrace's registry and measures the time until it accepts a write. */
export async function startOurs(
  store: string,
  settings: readonly string[] = [],
  marker = 'first',
  env: Readonly<Record<string, string>> = {},
): Promise<Started> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const started = performance.now();
  const child = spawn(
    process.execPath,
    [
      join(packageRoot(), 'bin', 'millrace'),
      'registry',
      `-store=${store}`,
      `-listen=127.0.0.1:${port}`,
      '-log-level=warn',
      ...settings,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...env } },
  );
  return untilWritable('millrace', url, child, started, marker);
}

/** Repeats a registration until it is accepted. @throws Error if the process ends or the timeout
 *  expires */
export async function untilWritable(
  name: string,
  url: string,
  child: ChildProcess,
  started: number,
  marker: string,
): Promise<Started> {
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    stderr = (stderr + chunk).slice(-STDERR_CHARS);
  });
  const body = registration(smallSchema(`W${marker}`));
  for (;;) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`${name} ended: ${stderr}`);
    const accepted = await fetch(`${url}/subjects/writable-${marker}/versions`, {
      method: 'POST',
      headers: HEADERS,
      body,
    }).then(
      async (answer) => {
        await answer.text();
        return answer.ok;
      },
      () => false,
    );
    if (accepted) break;
    if (performance.now() - started > WRITABLE_MS_MAX) {
      child.kill('SIGKILL');
      throw new Error(`${name} was not writable within ${WRITABLE_MS_MAX} ms: ${stderr}`);
    }
    await sleep(KNOCK_MS);
  }
  return {
    name,
    url,
    pid: child.pid as number,
    writableMs: performance.now() - started,
    stop: () => end(child),
  };
}

export type HttpBackend = 'uws' | 'node';

/** HTTP backend of Millrace's registry. */
export async function backendOf(target: Target): Promise<HttpBackend> {
  const metrics = await (await fetch(new URL('/metrics', target.url))).text();
  const uses = /^http_backend_uws(?:\{[^}]*\})? ([01])$/m.exec(metrics)?.[1];
  invariant(uses !== undefined, 'the registry has the metric http_backend_uws');
  return uses === '1' ? 'uws' : 'node';
}

/** HTTP server of the same backend with an empty handler. */
export async function startEmpty(
  backend: HttpBackend,
): Promise<{ readonly url: string; stop(): Promise<void> }> {
  const child = fork(join(packageRoot(), 'dist', 'bench', 'registry-empty-child.js'), [backend], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  });
  const [port] = (await once(child, 'message')) as [number];
  return { url: `http://127.0.0.1:${port}`, stop: () => end(child) };
}

/** Resident memory in bytes. */
export function residentBytes(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  invariant(kib !== undefined, '/proc/PID/status has VmRSS');
  return Number(kib) * 1024;
}
