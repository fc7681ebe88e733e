/** A PostgreSQL of a test's own, which it may end without warning and start again on the same data and port. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../src/devstack/ports.ts';
import { postgresBinaries } from '../../src/devstack/postgres/binaries.ts';
import {
  formatPostgres,
  postgresUrl,
  postmasterPid,
  writePostgresScript,
} from '../../src/devstack/postgres/server.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import { until } from '../wait.ts';

const PASSWORD = 'own';

export interface OwnPostgres {
  readonly url: string;
  start(): Promise<void>;
  /** As `pg_ctl stop -m immediate`: no checkpoint, no goodbye; resolves when the process has ended. */
  stopImmediately(): Promise<void>;
  /** Ends it and removes its folder. */
  close(): Promise<void>;
}

export async function ownPostgres(): Promise<OwnPostgres> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-own-postgres-'));
  // The server gives up being root.
  chmodSync(folder, 0o755);
  mkdirSync(join(folder, 'run'));
  const options = {
    folder,
    binaries: postgresBinaries(join(folder, 'run')),
    password: PASSWORD,
    ephemeral: true,
  };
  await formatPostgres(options);
  const port = await freePort();
  writePostgresScript(options, port);
  const url = postgresUrl(port, PASSWORD, 'postgres');
  let child: ChildProcess | undefined;
  let ended: Promise<unknown> = Promise.resolve();

  const own: OwnPostgres = {
    url,
    async start() {
      const started = spawn('/bin/sh', [join(folder, 'run', 'postgres.sh')], { stdio: 'ignore', cwd: '/' });
      child = started;
      ended = new Promise((resolve) => started.once('close', resolve));
      const pool = await until('a PostgreSQL that takes connections', () =>
        pgDriver.connect({ url, connectionsMax: 1, applicationName: 'own postgres', connectTimeoutMs: 1000 }),
      );
      await pool.close();
    },
    async stopImmediately() {
      const pid = postmasterPid(folder);
      if (pid !== undefined) process.kill(pid, 'SIGQUIT');
      await ended;
    },
    async close() {
      if (child?.exitCode === null) await own.stopImmediately();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return own;
}
