/** Number of worker threads of a run. */
import { availableParallelism } from 'node:os';
import { coreError } from '../../core/errors.ts';
import type { SettingTable } from '../../core/settings.ts';
import { runsNative } from '../drivers.ts';

export const THREAD_SETTINGS = {
  threads: {
    type: 'int',
    min: 1,
    max: 256,
    help: 'worker threads that carry the work (default: one a core, at most one for each part of the work; one without the addon); 1: the main thread carries all',
  },
} as const satisfies SettingTable;

interface Counted {
  readonly settings: { readonly native: string; readonly threads: number | undefined };
  isFlag(name: string): boolean;
}

/** @param parts parts of the work, each of which one thread carries
 *  @returns 1: no worker threads
 *  @throws usage for several threads without the addon */
export function threadCount(context: Counted, parts: number): number {
  const { threads } = context.settings;
  if (!runsNative(context)) {
    if (threads !== undefined && threads > 1 && context.isFlag('threads'))
      throw coreError(
        'usage',
        `-threads=${threads} needs the addon: node-rdkafka works on the main thread only`,
        {
          next: 'leave -threads out, or run with -native=on',
        },
      );
    return 1;
  }
  return Math.max(1, Math.min(threads ?? availableParallelism(), parts));
}

/** Splits `parts` parts over threads, as evenly as possible. Returns the parts of each thread. */
export function shares(parts: number, threads: number): readonly (readonly number[])[] {
  return Array.from({ length: threads }, (_, thread) =>
    Array.from({ length: parts }, (_part, part) => part).filter(
      (part) => Math.floor((part * threads) / parts) === thread,
    ),
  );
}

/** Names a share in messages. */
export function partsName(unit: string, parts: readonly number[]): string {
  const [first] = parts;
  return parts.length === 1 ? `${unit} ${first}` : `${unit}s ${first} to ${parts.at(-1)}`;
}
