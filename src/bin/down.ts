/** `millrace down`: stops the stack of a folder. */
import { join, resolve } from 'node:path';
import { stopStack } from '../devstack/stack.ts';
import { defineCommand } from '../shell/command.ts';
import { lockDriver } from '../shell/drivers.ts';

const DEFAULT_FOLDER = join('.millrace', 'stack');

export const command = defineCommand({
  name: 'down',
  summary: 'End the Kafka and PostgreSQL that millrace up started',
  description: 'Data stays in the folder, and the next `millrace up` finds it. Nothing running is no error.',
  listens: false,
  settings: {
    dir: { type: 'string', help: `folder of the stack (default ${DEFAULT_FOLDER})` },
    'lock-timeout': {
      type: 'duration',
      default: '30s',
      help: 'how long to wait for another process that is starting or stopping this stack',
    },
  },
  async run(context) {
    const folder = resolve(context.settings.dir ?? DEFAULT_FOLDER);
    const { stopped, killed } = await stopStack(
      folder,
      context.settings['lock-timeout'],
      await lockDriver(context),
    );
    const text =
      stopped.length === 0
        ? `nothing is running in ${folder}`
        : `ended ${stopped.join(' and ')} in ${folder}`;
    context.print(killed.length === 0 ? text : `${text}; had to kill ${killed.join(' and ')}`, {
      folder,
      stopped,
      killed,
    });
    return undefined;
  },
});
