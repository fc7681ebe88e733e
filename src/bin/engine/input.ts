/** Settings of the input of `millrace engine`: the format of the records and the fields of an
 *  event. */
import { loadColumnKernels } from '../../addon/codec.ts';
import { loadJsonKernels } from '../../addon/json.ts';
import type { Kernels } from '../../addon/surface.ts';
import { sleep } from '../../core/clock.ts';
import { coreError, findMillraceError } from '../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import type { Job } from '../../engine/job.ts';
import { BINARY256 } from '../../engine/source/input/binary256.ts';
import {
  INPUT_FORMATS,
  type InputDefinition,
  type InputFormat,
} from '../../engine/source/input/definition.ts';
import { TopicInput, type TopicInputParts } from '../../engine/source/input/topic-input.ts';
import type { Schema } from '../../formats/schema.ts';
import type { RegistryClient } from '../../serde/client.ts';
import type { CommandContext } from '../../shell/command.ts';
import { CREDENTIAL_SETTINGS } from '../registry-clients/credentials.ts';
import { registryClient } from '../registry-clients/shared.ts';

const FRAMED = 'registry';

export const INPUT_SETTINGS = {
  format: {
    type: 'string',
    choices: INPUT_FORMATS,
    help: 'format of the records; avro and protobuf are framed with a schema id of -registry, json with or without a frame, binary256 is the fixed layout of 256 bytes (default: judged by the first records: framed, else json, else binary256)',
  },
  registry: { type: 'string', help: 'address of the schema registry of framed records' },
  ...CREDENTIAL_SETTINGS,
  'registry-user': { ...CREDENTIAL_SETTINGS['registry-user'], needs: [FRAMED] },
  'registry-token-file': { ...CREDENTIAL_SETTINGS['registry-token-file'], needs: [FRAMED] },
  key: {
    type: 'string',
    hasParts: true,
    help: 'field that is the key, with dots into nested records (customer.id) and [] behind the name of a list, each of whose elements is then an event (items[].sku), or several with commas between them (country,user_id): 64-bit integers, strings, bytes and uuids, up to 1 KiB together. JSON kinds are judged by the first records, or given: FIELD:i64, u64 (integers up to 2^64 - 1), string, uuid, bytes (base64). Of the record key: @key:text for decimal digits, @key:string, @key:uuid (text), @key:bytes, @key:long and @key:int for 8 or 4 bytes, big-endian (default: the record key)',
  },
  time: {
    type: 'string',
    help: 'field that is the event time, rounded down to ms: a timestamp type, or an integer with its unit (FIELD:s, ms, us, ns), or a text in ISO 8601 (FIELD:iso); @timestamp: the timestamp of the record (default: the only field of a timestamp type, else @timestamp)',
  },
  value: {
    type: 'string',
    help: 'field that is aggregated, a 64-bit integer, or a decimal with its decimal places (price:decimal2), of each element of a list with [] (items[].qty) (default: none; events are counted, and sum, min and max are 0)',
  },
  aggregate: {
    type: 'string',
    hasParts: true,
    help: 'what the results have, with commas: count, count(FIELD), sum, min, max, avg, first and last of fields, percentiles such as p99(latency), distinct(user), and topk(sku,10), the most frequent values, each with an optional name, such as count,sum(amount),avg(price:double) as price. A field is a 64-bit integer, with :double any number, with :decimal2 an exact number with up to 2 decimal places; null is ignored. Sums of doubles have the same bits in any order (default: count, sum, min and max of -value)',
  },
  where: {
    type: 'string',
    help: 'condition on fields of the value, such as status = "PAID" and amount_cents > 0, where price:decimal > 9.99 reads a text or a number as an exact decimal; other events advance the watermark and are in no window',
  },
  dedup: {
    type: 'string',
    help: 'field that identifies an event among those of its key: an integer, a text, bytes or a uuid of up to 1 KiB; an event whose identifier is in an open window that would contain it is not folded (default: none)',
  },
} as const satisfies SettingTable;

type Settings = SettingsOf<typeof INPUT_SETTINGS>;
type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: Settings & { readonly topic: string; readonly 'sink-format': string };
};

/** Time limit of one request of the registry. */
const REQUEST_TIMEOUT_MS = 10_000;

/** Definition that the flags give. */
export function askedInput(settings: Settings): InputDefinition {
  const { format, key, time, value, where, dedup, aggregate } = settings;
  return {
    format: (format as InputFormat | undefined) ?? 'undecided',
    ...(key === undefined ? {} : { key }),
    ...(time === undefined ? {} : { time }),
    ...(value === undefined ? {} : { value }),
    ...(where === undefined ? {} : { where }),
    ...(dedup === undefined ? {} : { dedup }),
    ...(aggregate === undefined ? {} : { aggregate }),
  };
}

/** Opens the input of a job. Loads the latest schema of the topic's subject, which resolves fields
 *  that a writer's schema lacks.
 *  @throws bad_value, bad_setting, registry_unavailable, unauthenticated, forbidden */
export async function openInput(
  context: Context,
  job: Job,
  kernels: Kernels,
  keys: TopicInputParts['keys'],
  onDecided: (definition: InputDefinition) => void,
): Promise<TopicInput> {
  const { settings, clock, log, drain } = context;
  const client = clientOf(context);
  const asked = job.input ?? BINARY256;
  const reader = client === undefined ? undefined : await readerOf(client, settings.topic);
  if (reader !== undefined)
    log.info(
      { subject: reader.subject, version: reader.version, schemaId: reader.id },
      'reader schema loaded',
    );
  return new TopicInput({
    ...{ asked, kernels, client, clock, log, onDecided },
    ...(keys === undefined ? {} : { keys }),
    columns: loadColumnKernels(kernels.name),
    json: loadJsonKernels(kernels.name),
    reader: reader?.schema,
    signal: drain,
    sleep: (ms) => sleep(clock, ms, drain),
  });
}

function clientOf(context: Context): RegistryClient | undefined {
  const { registry, format, 'sink-format': sinkFormat } = context.settings;
  if (format !== 'binary256' || registry === undefined) return registryOf(context);
  // The environment may name the registry of other commands; results may have schemas too.
  if (context.isFlag('registry') && sinkFormat === 'binary')
    throw coreError('usage', '-registry has no meaning for -format=binary256', {
      next: 'leave -registry out',
    });
  return undefined;
}

/** Client of -registry; undefined if it is not given. @throws bad_value */
export function registryOf({
  settings,
  clock,
  metrics,
}: Pick<Context, 'clock' | 'metrics'> & {
  readonly settings: Pick<Settings, 'registry' | 'registry-user' | 'registry-token-file'>;
}): RegistryClient | undefined {
  const { registry } = settings;
  if (registry === undefined) return undefined;
  let client = clients.get(metrics);
  if (client === undefined) {
    const options = { ...settings, registry, 'connect-timeout': REQUEST_TIMEOUT_MS };
    client = registryClient({ clock, metrics, settings: options });
    clients.set(metrics, client);
  }
  return client;
}

/** Client of each run, by its metrics: input and results share one. */
const clients = new WeakMap<object, RegistryClient>();

/** Latest version of the topic's subject; undefined if the registry has no such subject. */
export async function readerOf(
  client: RegistryClient,
  topic: string,
): Promise<
  | { readonly subject: string; readonly version: number; readonly id: number; readonly schema: Schema }
  | undefined
> {
  try {
    return await client.version(`${topic}-value`, 'latest');
  } catch (thrown) {
    const code = findMillraceError(thrown)?.code;
    if (code === 'subject_not_found' || code === 'version_not_found') return undefined;
    throw thrown;
  }
}
