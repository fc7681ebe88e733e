/** Broker and processes of a benchmark that needs no database. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Processes } from '../src/shell/children/processes.ts';
import { packageRoot } from '../src/shell/package.ts';
import { brokersOf } from './broker.ts';
import { clientEnv, nativeEnv } from './effects/world.ts';
import type { BenchContext } from './harness.ts';

/** Time that the processes get after SIGTERM, ms. */
export const STOP_GRACE_MS = 20_000;

export interface Children {
  readonly processes: Processes;
  readonly brokers: string;
  /** Folder of this run on the file system of the package; removed at the end. */
  readonly dir: string;
}

/** Opens the broker, which is started unless the context names one. Everything ends with the
 *  benchmark. */
export async function openChildren(context: BenchContext, name: string): Promise<Children> {
  const brokers = await brokersOf(context);
  const root = join(packageRoot(), '.millrace', 'bench');
  mkdirSync(root, { recursive: true });
  const dir = mkdtempSync(join(root, `${name}-`));
  const env = { ...process.env, ...nativeEnv(context), ...clientEnv(dir, context.brokerProperties ?? {}) };
  const processes = new Processes({ dir, stay: false, env });
  const killNow = (): void => processes.killNow();
  process.once('exit', killNow);
  context.onClose(async () => {
    await processes.end(STOP_GRACE_MS);
    process.removeListener('exit', killNow);
    rmSync(dir, { recursive: true, force: true });
  });
  return { processes, brokers, dir };
}
