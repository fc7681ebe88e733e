/** Log lines of a restore. */
import type { Logger } from '../core/log.ts';
import type { Restored } from './durability/checkpoint/restore.ts';
import type { ChangedState } from './job-change.ts';

export const restoreText = (saved: Restored | undefined, isPlaced: boolean): string =>
  saved === undefined
    ? `no checkpoint: starting at the ${isPlaced ? 'given position' : 'first record'}`
    : 'restored from a checkpoint';

/** Fields that describe a restore in the log. */
export const restoreFields = (saved: Restored | undefined) => ({
  checkpoint: saved?.manifest.id ?? null,
  refused: saved?.refused ?? [],
  replayed: saved?.replayed ?? 0,
});

/** Notes since when the added aggregates exist. */
export function logAdded(
  log: Pick<Logger, 'info' | 'warn'>,
  { added, since }: ChangedState,
  nowMs: number,
): void {
  log.info({ added, since }, 'aggregates were added: windows that start after this event time have them');
  if (since === undefined || since <= nowMs) return;
  log.warn(
    { added, since },
    'an event from the future was read before the change: until its time, windows do not have the added aggregates',
  );
}
