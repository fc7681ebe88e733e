/** `millrace registry import`: loads a file written by export into a store. */
import { defineCommand } from '../../shell/command.ts';
import { checkStore, STORE_SETTINGS, storesOf } from './store.ts';
import { TRANSFER_SETTINGS, transfer } from './transfer.ts';

export const command = defineCommand({
  name: 'registry import',
  summary: 'Fill an empty registry store from a file that registry export wrote.',
  description: 'Example: millrace registry import -store=file:./registry -in=schemas.jsonl',
  settings: { ...STORE_SETTINGS, in: TRANSFER_SETTINGS.in },
  routes: (context) => {
    checkStore(context);
    return [];
  },
  async run(context) {
    const { store } = context.settings;
    const open = await storesOf(context, 'transfers');
    return transfer('import', {
      store,
      out: '-',
      in: context.settings.in,
      log: context.log,
      clock: context.clock,
      openLog: () => open().log,
    });
  },
});
