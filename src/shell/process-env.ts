/** The process in which a command runs: arguments, environment, standard streams and signals. */
import type { Timers } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { systemClock } from './clock.ts';
import { failureOf } from './terminal/report.ts';
import { Screen } from './terminal/screen.ts';

/** Parts of a process that a command needs. A test passes its own. */
export interface ProcessEnv {
  readonly env: Record<string, string | undefined>;
  readonly screen: Screen;
  readonly clock: Timers;
  /** Writes to stdout. Resolves when the data has been written. */
  writeData(text: string): Promise<void>;
  onSignal(signal: 'SIGTERM' | 'SIGINT', handler: () => void): void;
  /** Registers a handler of failures outside any promise of the command. */
  onUncaught(handler: (thrown: unknown) => void): void;
  /** Registers a handler that runs when the event loop has drained: a pending promise can no longer
   *  resolve. */
  onStall(handler: () => void): void;
  /** Ends the process immediately. */
  exit(code: number): void;
}

/** The running process. It exits with 0 when the reader of its stdout closes the pipe. */
export function processEnv(): ProcessEnv {
  const screen = new Screen(process.stderr);
  process.stderr.on('error', () => {});
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // A command that knows its answer has set the exit code; a closed pipe does not change it.
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
