/** The library that some faults preload, for a run whose plan has such a fault. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isPreloaded } from '../../chaos/faults.ts';
import type { PlannedFault } from '../../chaos/schedule.ts';
import { FaultShim } from '../../devstack/fault-shim.ts';
import type { ChaosContext as Context } from './settings.ts';

/** @returns undefined where no planned fault needs it @throws missing_tool */
export function openShim(context: Context, plan: readonly PlannedFault[]): FaultShim | undefined {
  if (!plan.some(({ kind }) => isPreloaded(kind))) return undefined;
  const dir = mkdtempSync(join(tmpdir(), 'millrace-chaos-shim-'));
  context.onClose(() => rmSync(dir, { recursive: true, force: true }));
  // PostgreSQL may run as another user.
  chmodSync(dir, 0o755);
  const shim = new FaultShim(dir, process.env);
  context.onClose(() => shim.close());
  return shim;
}
