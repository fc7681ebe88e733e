/** Worth of the second core of this machine, measured without the engine: steps of a fixed loop on
 *  two threads beside one. Two cores of a virtual machine may be one core of its host, or be shared
 *  with others. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { type BenchContext, type BenchResult, result, takeTurns } from '../harness.ts';

const RUN_MS = 400;
const RUN_MS_SMOKE = 20;

/** Integer arithmetic, and loads and stores in a table that fits the second-level cache. It waits
 *  at the gate, so that all threads run at the same time. */
const LOOP = `
const { parentPort, workerData } = require('node:worker_threads');
const { gate, runMs } = workerData;
const STEPS = 1 << 16;
const table = new Int32Array(1 << 16);
let word = 1;
const run = () => {
  for (let step = 0; step < STEPS; step++) {
    word = Math.imul(word ^ (word >>> 15), 0x85ebca6b);
    word = ((word ^ (word >>> 13)) + step) | 0;
    const at = word & (table.length - 1);
    table[at] = (table[at] + word) | 0;
    word ^= table[at] << 1;
  }
};
for (let i = 0; i < 20; i++) run();
parentPort.postMessage('ready');
Atomics.wait(gate, 0, 0);
const from = performance.now();
let rounds = 0;
do {
  run();
  rounds++;
} while (performance.now() - from < runMs);
parentPort.postMessage((rounds * STEPS * 1000) / (performance.now() - from));
`;

/** @returns the steps per second of all threads together */
async function stepsPerSecond(threads: number, runMs: number): Promise<number> {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const workers = Array.from(
    { length: threads },
    () => new Worker(LOOP, { eval: true, workerData: { gate, runMs } }),
  );
  try {
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    const rates = workers.map((worker) => once(worker, 'message'));
    Atomics.store(gate, 0, 1);
    Atomics.notify(gate, 0);
    return (await Promise.all(rates)).reduce((sum, [rate]) => sum + (rate as number), 0);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
}

/** The row that shows it. */
export async function twoThreads({ smoke, repeats }: BenchContext): Promise<BenchResult> {
  const runMs = smoke ? RUN_MS_SMOKE : RUN_MS;
  const { one, two } = await takeTurns(
    { one: () => stepsPerSecond(1, runMs), two: () => stepsPerSecond(2, runMs) },
    repeats,
  );
  return result({
    metric: 'fixed loop on two threads: what the second core of the machine is worth',
    unit: 'steps/s',
    ours: two,
    against: { name: 'one thread', series: one },
    better: 'more',
  });
}
