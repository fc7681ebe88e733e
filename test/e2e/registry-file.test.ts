/** A process that appends to a registry file and compacts it is killed again and again. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { REGISTRY_LOG_FILE } from '../../src/registry/store/file/log.ts';
import { projectRoot } from '../repository/root.ts';

const KEYS = 5;
const KILLS = 10;
const dir = mkdtempSync(join(tmpdir(), 'millrace-kill-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const worker = fileURLToPath(new URL('./registry-file.worker.mjs', import.meta.url));

interface Line {
  readonly found?: Readonly<Record<string, number>>;
  readonly settled?: number;
  readonly text?: string;
  readonly warning?: string;
}

/** Runs the worker, kills it once it has reported `appends` appends, and returns its last
 *  report. */
async function runAndKill(appends: number) {
  const child = spawn(process.execPath, [worker, join(projectRoot, 'dist'), dir, String(KEYS)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  const run = { found: {} as Readonly<Record<string, number>>, settled: 0, compactions: 0, warnings: 0 };
  let seen = 0;
  // Reads all lines that the process wrote before it died.
  for await (const text of createInterface({ input: child.stdout })) {
    const line = JSON.parse(text) as Line;
    if (line.found !== undefined) run.found = line.found;
    if (line.text?.startsWith('compacted') === true) run.compactions++;
    if (line.warning !== undefined) run.warnings++;
    if (line.settled === undefined) continue;
    run.settled = line.settled;
    if (++seen === appends) child.kill('SIGKILL');
  }
  await ended;
  return run;
}

/** Last number of each key after this many appends. */
const heldAfter = (appends: number): Record<string, number> => {
  const held: Record<string, number> = {};
  for (let i = Math.max(1, appends - KEYS + 1); i <= appends; i++) held[`k${i % KEYS}`] = i;
  return held;
};

it('a registry file whose process is killed during appends and compactions holds every settled append', async () => {
  let settled = 0;
  let compactions = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    const run = await runAndKill(20 + ((kill * 37) % 53));
    // The append that was in flight may have been written to its end.
    expect([heldAfter(settled), heldAfter(settled + 1)]).toContainEqual(run.found);
    expect(run.warnings).toBe(0);
    settled = run.settled;
    compactions += run.compactions;
  }
  expect(compactions).toBeGreaterThan(KILLS);
  const left = readdirSync(dir).filter((name) => ![REGISTRY_LOG_FILE, 'lock'].includes(name));
  expect(left.filter((name) => name !== 'registry.log.new')).toEqual([]);
});
