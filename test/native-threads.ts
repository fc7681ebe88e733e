/** Threads of the addon in tests: batches of tests are small, and the machine may have one core. */
import { loadAddon } from '../src/addon/load.ts';

const THREADS = 3;

/** Makes all states and decoders that the process opens from now on share batches of two rows or
 *  more among several threads. */
export function shareSmallBatches(): void {
  loadAddon().tuneWorkers(2, THREADS);
}
