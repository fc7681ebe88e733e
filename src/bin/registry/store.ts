/** Where the registry's log is kept: -store, and what makes it. */
import { coreError } from '../../core/errors.ts';
import { FileLog, MemoryLog, type RegistryLog } from '../../registry/server.ts';
import type { CommandContext } from '../shell/command.ts';
import { KAFKA_STORE_SETTINGS, kafkaStores, type StoreUse } from './kafka.ts';
import type { Store } from './opened-store.ts';

export const STORE_SETTINGS = {
  store: {
    type: 'string',
    default: 'memory',
    help: 'file:DIR keeps everything in a folder, each write on disk before its answer; kafka:HOST:PORT,… in a topic that several instances share; memory forgets at the end',
  },
  ...KAFKA_STORE_SETTINGS,
} as const;

type Context = CommandContext<typeof STORE_SETTINGS>;

const alone = (log: RegistryLog): Store => ({
  log,
  writeAtLeader: (_request, here) => here(),
  masterAvailable: () => true,
  close: () => {},
});

/** Settles with what opens the store of -store, as often as it is called. @throws bad_value */
export async function storesOf(context: Context, use: StoreUse = 'serves'): Promise<() => Store> {
  const { store } = context.settings;
  if (store === 'memory') return () => alone(new MemoryLog());
  const [, kind, where] = /^(kafka|file):(.+)$/s.exec(store) ?? [];
  if (where === undefined) {
    throw coreError('bad_value', `-store=${store} is not a store`, {
      next: 'give file:DIR, kafka:HOST:PORT or memory',
    });
  }
  return kind === 'file' ? () => alone(new FileLog(where)) : kafkaStores(context, where, use);
}
