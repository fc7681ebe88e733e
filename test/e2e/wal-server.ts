/** A PostgreSQL of a test's own, with settings of its own, that may be killed and started again. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../src/devstack/ports.ts';
import { postgresBinaries } from '../../src/devstack/postgres/binaries.ts';
import {
  askSystemId,
  ensureDatabase,
  formatPostgres,
  postgresUrl,
  postmasterPid,
  writePostgresScript,
} from '../../src/devstack/postgres/server.ts';
import { until } from '../wait.ts';

const PASSWORD = 'wal-test';

export interface OwnServer {
  readonly url: string;
  readonly folder: string;
  start(settings?: Readonly<Record<string, string>>): Promise<void>;
  /** Ends it: QUIT at once as after a power cut, INT in order. */
  stop(signal: 'SIGQUIT' | 'SIGINT'): Promise<void>;
  close(): Promise<void>;
}

export async function ownServer(): Promise<OwnServer> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-wal-'));
  chmodSync(folder, 0o755);
  mkdirSync(join(folder, 'run'), { mode: 0o755 });
  const binaries = postgresBinaries(join(folder, 'run'));
  const options = { folder, binaries, password: PASSWORD, ephemeral: true };
  await formatPostgres(options);
  const port = await freePort();
  const script = join(folder, 'run', 'postgres.sh');
  let server: ChildProcess | undefined;
  const stop = async (signal: 'SIGQUIT' | 'SIGINT'): Promise<void> => {
    const running = server;
    if (running === undefined || running.exitCode !== null) return;
    const pid = postmasterPid(folder);
    if (pid !== undefined) process.kill(pid, signal);
    await new Promise<void>((resolve) => running.once('exit', () => resolve()));
    server = undefined;
  };
  return {
    url: postgresUrl(port, PASSWORD),
    folder,
    async start(settings = {}) {
      writePostgresScript(options, port);
      const flags = Object.entries({ shared_buffers: '32MB', ...settings }).map(
        ([name, value]) => ` -c ${name}=${value}`,
      );
      // The last of two settings of one name wins.
      writeFileSync(script, `${readFileSync(script, 'utf8').trimEnd()}${flags.join('')}\n`);
      server = spawn('sh', [script], { stdio: 'ignore' });
      await until('a server', () => askSystemId(port, PASSWORD, 1000), 60_000);
      await ensureDatabase(port, PASSWORD, 60_000);
    },
    stop,
    async close() {
      await stop('SIGQUIT');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
