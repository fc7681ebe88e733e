/** The process a command runs in, as the shell sees it. */
import type { Timers } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { systemClock } from './clock.ts';
import { failureOf } from './terminal/report.ts';
import { Screen } from './terminal/screen.ts';

/** What a run needs of its process, so that a test can hand in another one. */
export interface World {
  readonly env: Record<string, string | undefined>;
  readonly screen: Screen;
  readonly clock: Timers;
  /** Writes data to stdout and resolves when it has left. */
  writeData(text: string): Promise<void>;
  onSignal(signal: 'SIGTERM' | 'SIGINT', handler: () => void): void;
  /** For failures outside any promise of the command. */
  onUncaught(handler: (thrown: unknown) => void): void;
  /** When nothing is left that could go on: whatever still waits waits for ever. */
  onStall(handler: () => void): void;
  /** Ends the process at once. */
  exit(code: number): void;
}

/** This process. A reader of stdout that has seen enough ends it with 0. */
export function processWorld(): World {
  const screen = new Screen(process.stderr);
  process.stderr.on('error', () => {});
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // A command that knows its answer has set it: whoever stops reading does not change it.
    if (error.code === 'EPIPE') process.exit(process.exitCode ?? EXIT.done);
    const { line, exit } = failureOf(
      coreError('not_writable', `cannot write stdout: ${error.code ?? error.message}`, {
        next: 'free space there, or send the output elsewhere',
      }),
    );
    screen.clear();
    screen.line(line);
    process.exit(exit);
  });
  return {
    env: process.env,
    screen,
    clock: systemClock,
    writeData: (text) => new Promise((resolve) => process.stdout.write(text, () => resolve())),
    onSignal: (signal, handler) => {
      process.on(signal, handler);
    },
    onUncaught: (handler) => {
      process.on('uncaughtException', handler);
      process.on('unhandledRejection', handler);
    },
    onStall: (handler) => {
      process.once('beforeExit', handler);
    },
    exit: (code) => process.exit(code),
  };
}
