/** Process environment in memory for the shell's tests. */

import { systemClock } from '../../../src/shell/clock.ts';
import type { Command } from '../../../src/shell/command.ts';
import type { ProcessEnv } from '../../../src/shell/process-env.ts';
import { runCommand } from '../../../src/shell/run.ts';
import { Screen } from '../../../src/shell/terminal/screen.ts';
import { until } from '../../wait.ts';

export interface FakeWorld extends ProcessEnv {
  stdout(): string;
  stderr(): string;
  /** Log lines of stderr, parsed. */
  logged(): ReadonlyArray<Record<string, unknown>>;
  signal(signal: 'SIGTERM' | 'SIGINT'): void;
  uncaught(thrown: unknown): void;
  /** Codes passed to exit(), in order. */
  readonly exits: number[];
}

export function fakeWorld(
  options: { readonly tty?: boolean; readonly env?: Record<string, string> } = {},
): FakeWorld {
  let stdout = '';
  let stderr = '';
  const handlers = new Map<string, () => void>();
  let uncaught: (thrown: unknown) => void = () => {};
  const exits: number[] = [];
  return {
    env: { ...options.env },
    screen: new Screen({ write: (text) => (stderr += text), isTTY: options.tty === true, columns: 100 }),
    clock: systemClock,
    writeData: (text) => {
      stdout += text;
      return Promise.resolve();
    },
    onSignal: (signal, handler) => {
      handlers.set(signal, handler);
    },
    onUncaught: (handler) => {
      uncaught = handler;
    },
    onStall: () => {},
    exit: (code) => {
      exits.push(code);
    },
    stdout: () => stdout,
    stderr: () => stderr,
    logged: () =>
      stderr
        .split('\n')
        .filter((line) => line.startsWith('{'))
        .map((line) => JSON.parse(line) as Record<string, unknown>),
    signal: (signal) => handlers.get(signal)?.(),
    uncaught: (thrown) => uncaught(thrown),
    exits,
  };
}

/** Runs a command in a fake process; `address` waits for its server. */
export function start(command: Command, argv: readonly string[], world: FakeWorld = fakeWorld()) {
  const code = runCommand(command, argv, world);
  const address = (): Promise<string> =>
    until('the address of the command', () => {
      const found = /^listening on (http:\/\/\S+)$/m.exec(world.stderr());
      if (found === null) throw new Error(`no address in: ${world.stderr()}`);
      return found[1] as string;
    });
  return { code, address, world };
}
