/** Reader of this process's stdout: the next command of a pipe. */
import { loadAddon } from '../../addon/load.ts';
import type { Cancel, Timers } from '../../core/clock.ts';

/** Time between two checks, ms. */
const CHECK_MS = 250;
const STDOUT = 1;

/** Runs `act` once when the reader of stdout has closed the pipe. A write reports that too, but a
 *  topic without new records causes none. Needs the addon.
 *  @param hasReader test of the descriptor; default: that of the addon
 */
export function onReaderGone(
  clock: Pick<Timers, 'every'>,
  act: () => void,
  hasReader: (fd: number) => boolean = (fd) => loadAddon().hasReader(fd) !== 0,
): Cancel {
  const cancel = clock.every(
    CHECK_MS,
    () => {
      if (hasReader(STDOUT)) return;
      cancel();
      act();
    },
    'background',
  );
  return cancel;
}
