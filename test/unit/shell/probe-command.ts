/** The command that the shell's tests run. */

import type { SettingTable } from '../../../src/core/settings.ts';
import { type Command, type CommandContext, defineCommand } from '../../../src/shell/command.ts';

const TABLE = {
  count: { type: 'int', default: '3', help: 'how many' },
  wait: { type: 'duration', default: '5s', help: 'how long' },
  token: { type: 'string', default: 'hunter2', secret: true, help: 'hidden' },
  store: { type: 'string', default: 'postgres://me:pass:w@rd@db/x', help: 'where' },
} as const satisfies SettingTable;

export type Context = CommandContext<typeof TABLE>;

export function commandOf(
  run: (context: Context) => Promise<number | undefined>,
  over: Partial<Command<typeof TABLE>> = {},
) {
  return defineCommand({ name: 'probe', summary: 'A command of the tests.', settings: TABLE, run, ...over });
}

export const untilDrain = (context: Context): Promise<void> =>
  new Promise((resolve) => context.drain.addEventListener('abort', () => resolve(), { once: true }));

export async function drained(context: Context): Promise<number> {
  await untilDrain(context);
  return 0;
}
