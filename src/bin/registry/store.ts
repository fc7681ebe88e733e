/** Selects the store of the registry from -store. */
import { coreError } from '../../core/errors.ts';
import { openDisk } from '../../io/disk/node.ts';
import { FileLog } from '../../registry/store/file/log.ts';
import type { RegistryLog } from '../../registry/store/log.ts';
import { MemoryLog } from '../../registry/store/log.ts';
import type { CommandContext } from '../../shell/command.ts';
import { lockDriver } from '../../shell/drivers.ts';
import { checkKafkaSettings, KAFKA_STORE_SETTINGS, kafkaStores, type StoreUse } from './kafka.ts';
import type { Store } from './opened-store.ts';

export const STORE_SETTINGS = {
  store: {
    type: 'string',
    default: 'memory',
    help: 'file:DIR, a folder, each write durable before its answer; kafka:HOST:PORT,…, or kafka with -brokers, a topic that several instances share; memory, lost at exit',
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

interface Place {
  readonly kind: 'memory' | 'file' | 'kafka';
  readonly where: string;
}

/** Brokers of -store=kafka. @throws usage */
function brokersOf({ settings }: Context): string {
  if (settings.brokers !== undefined) return settings.brokers;
  throw coreError('usage', '-store=kafka needs -brokers', {
    next: 'give -brokers=host:port, or bootstrap.servers in -broker-config',
  });
}

/** Parses -store and validates its settings. Call it before a port is opened, so that a wrong
 *  setting is never served.
 *  @throws bad_value, bad_file */
export function checkStore(context: Context): Place {
  const { store } = context.settings;
  checkKafkaSettings(context);
  if (store === 'memory') return { kind: 'memory', where: '' };
  if (store === 'kafka') return { kind: 'kafka', where: brokersOf(context) };
  const [, kind, where] = /^(kafka|file):(.+)$/s.exec(store) ?? [];
  if (where === undefined) {
    throw coreError('bad_value', `-store=${store} is not a store`, {
      next: 'give file:DIR, kafka:HOST:PORT, kafka or memory',
    });
  }
  return { kind: kind === 'file' ? 'file' : 'kafka', where };
}

/** Resolves to a function that opens a new store of -store with each call. @throws bad_value,
 *  bad_file */
export async function storesOf(
  context: Context,
  use: StoreUse = 'serves',
  hasRules = false,
): Promise<() => Store> {
  const { kind, where } = checkStore(context);
  if (kind === 'memory') return () => alone(new MemoryLog());
  if (kind === 'kafka') return kafkaStores(context, where, use, hasRules);
  const parts = { dir: where, openDisk, locks: await lockDriver(context), log: context.log };
  return () => alone(new FileLog(parts));
}
