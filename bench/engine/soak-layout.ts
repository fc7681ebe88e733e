/** Layouts of the events of a soak: what generates them, what the engine reads of them, and how the
 *  key of an account looks. */
import { TEXT_EVENT_AVRO } from '../../src/gen/schemas/events.ts';
import type { World } from '../effects/world.ts';
import { ask, registration } from '../registry-server.ts';
import { fixedKey, type KeyOf } from './recount.ts';

export interface SoakLayout {
  /** Flags of the generator and of the engine; `registry` is the URL of a running registry. */
  readonly source: (registry: string) => readonly string[];
  readonly engine: (registry: string) => readonly string[];
  /** Avro schema of the events, which the engine reads before the first event; absent: none. */
  readonly schema?: string;
  /** Slightly more than the least budget of an engine with the batches of a smoke run. */
  readonly smokeBudget: string;
  /** Record key of an account, which decides the partition of its events. */
  readonly keyOf: KeyOf;
}

/** The fixed layout of 256 bytes with u64 keys. */
export const FIXED: SoakLayout = {
  source: () => [],
  engine: () => ['-format=binary256'],
  smokeBudget: '88MiB',
  keyOf: fixedKey,
};

const TEXT_CHARS = 16;

/** Registered Avro events of some 120 bytes, whose keys are texts of 16 hexadecimal digits. */
export const AVRO_TEXT: SoakLayout = {
  source: (registry) => ['-format=avro', '-key-type=string', `-registry=${registry}`],
  engine: (registry) => [
    ...['-format=avro', '-key=account_id', '-value=value', '-time=event_ts'],
    // Reads the partitions in step: the hottest account makes one twice as large as another, and
    // after a kill it would stay minutes behind.
    ...[`-registry=${registry}`, '-broker-client=direct'],
  ],
  schema: TEXT_EVENT_AVRO,
  smokeBudget: '106MiB',
  keyOf: (account) => Buffer.from(account.toString(16).padStart(TEXT_CHARS, '0')),
};

/** URL of a new registry with the schema of the layout; empty if it has none. The registry ends
 *  with the world. */
export async function registryFor(world: World, { schema }: SoakLayout, topic: string): Promise<string> {
  if (schema === undefined) return '';
  const { address } = await world.start('registry', ['registry', '-store=memory', '-listen=127.0.0.1:0']);
  const url = `http://${address}`;
  await ask({ url }, 'POST', `/subjects/${topic}-value/versions`, registration(schema));
  return url;
}
