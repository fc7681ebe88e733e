/** `millrace registry export`: writes a whole store to a file. */
import { defineCommand } from '../../shell/command.ts';
import { checkStore, STORE_SETTINGS, storesOf } from './store.ts';
import { TRANSFER_SETTINGS, transfer } from './transfer.ts';

export const command = defineCommand({
  name: 'registry export',
  summary: 'Write every record of a registry store to a file.',
  description:
    'Example: millrace registry export -store=kafka:127.0.0.1:9092 -out=schemas.jsonl\nIds, versions, deletions and settings are preserved; registry import loads the file into any store.',
  settings: { ...STORE_SETTINGS, out: TRANSFER_SETTINGS.out },
  routes: (context) => {
    checkStore(context);
    return [];
  },
  async run(context) {
    const { store, out } = context.settings;
    const open = await storesOf(context, 'reads');
    return transfer('export', {
      store,
      out,
      in: undefined,
      log: context.log,
      clock: context.clock,
      openLog: () => open().log,
    });
  },
});
