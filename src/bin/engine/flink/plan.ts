/** The settings of `millrace engine` as a job of Flink. */
import { coreError } from '../../../core/errors.ts';
import { formatDuration } from '../../../core/quantity.ts';
import { HIDDEN } from '../../../core/secrets.ts';
import type { Properties, SettingsOf, SettingTable } from '../../../core/settings.ts';
import { unsayable } from '../../../engine/flink/error.ts';
import { demandSayable } from '../../../engine/flink/refuse.ts';
import type { FlinkJob } from '../../../engine/flink/script.ts';
import type { Job } from '../../../engine/job.ts';
import { timeSpec } from '../../../engine/source/input/definition.ts';
import { inferredTime, withKinds } from '../../../engine/source/input/topic-input.ts';
import type { TableOptions } from '../../../formats/flink/sql.ts';
import type { AvroSchema } from '../../../formats/schema.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { credentialsOf } from '../../registry-clients/credentials.ts';
import { parseStart } from '../../registry-clients/start.ts';
import { readerOf, registryOf } from '../input.ts';
import { jobOf } from '../job.ts';
import { postgresSink, type readSink } from '../sinks.ts';
import { windowSpecs } from '../windows/specs.ts';
import { flinkProperties, isSecretProperty, shownProperties } from './properties.ts';
import type { FLINK_SETTINGS } from './settings.ts';

type Settings = SettingsOf<typeof FLINK_SETTINGS> &
  Parameters<typeof jobOf>[0] &
  Parameters<typeof readSink>[0]['settings'] & {
    readonly 'broker-property': Properties;
    readonly start: string;
    readonly 'idle-timeout': number;
    readonly 'checkpoint-interval': number;
    readonly 'exit-at-end': boolean;
    readonly 'late-topic': string | undefined;
    readonly 'sink-format': string;
  };
export type FlinkContext = Omit<CommandContext<SettingTable>, 'settings'> & { readonly settings: Settings };

/** The context of the sink that the Flink job writes. */
export function sinkContext<C extends FlinkContext>(context: C): C {
  const { settings } = context;
  return {
    ...context,
    settings: {
      ...settings,
      sink: settings['flink-sink'] ?? settings.sink,
      'sink-table': settings['flink-table'] ?? settings['sink-table'],
    },
  };
}

/** Name of the job in Flink. @throws usage, bad_value */
export function flinkName({ settings }: FlinkContext): string {
  if (settings['flink-name'] !== undefined) return settings['flink-name'];
  const { window, ...times } = windowSpecs(settings)[0].windows;
  return ['millrace', settings.topic, window, ...Object.values(times).map(formatDuration)].join(' ');
}

/** Builds the job. @param shows true: secrets are hidden
 *  @throws flink_unsupported, usage, bad_value, bad_file, and errors of the registry */
export async function flinkPlan(context: FlinkContext, shows: boolean): Promise<FlinkJob> {
  const { settings } = context;
  const secret = (text: string): string => (shows ? HIDDEN : text);
  const specs = windowSpecs(settings);
  if (specs[0].name !== undefined)
    throw unsayable(
      'window',
      settings.window.join(),
      'names windows, and a Flink job of this command has one without a name',
      'give -window=KIND and its times, and submit each window by itself',
    );
  const asked = jobOf(settings);
  demandSayable(asked, { ...settings, windows: specs.length });
  const { brokers } = settings;
  if (brokers === undefined)
    throw coreError('usage', '-brokers is required', {
      next: 'give -brokers=… as the machines of Flink reach them',
    });
  const { job, schema } = await decidedJob(context, asked);
  const target = targetOf(context);
  const properties = flinkProperties(settings['broker-property']);
  return {
    job,
    name: flinkName(context),
    brokers,
    properties: shows ? shownProperties(properties) : properties,
    ...(schema === undefined ? {} : { registry: { ...registryAccess(context, secret), schema } }),
    startup: startupOf(settings.start),
    isBounded: settings.bounded,
    idleTimeoutMs: settings['idle-timeout'],
    checkpointMs: settings['checkpoint-interval'],
    parallelism: settings['flink-parallelism'],
    from: settings['flink-from'],
    settings: Object.fromEntries(
      Object.entries(settings['flink-set']).map(([name, value]) => [name, secret(value)]),
    ),
    sink: { ...target, password: target.password === '' ? '' : secret(target.password) },
  };
}

/** Texts that no message may show. */
export function secretsOfPlan({ properties, registry, settings, sink }: FlinkJob): readonly string[] {
  return [
    ...Object.entries(properties).flatMap(([name, value]) =>
      isSecretProperty(name) ? [value, value.replaceAll('"', '\\"')] : [],
    ),
    ...Object.entries(registry?.options ?? {}).flatMap(([name, value]) =>
      /user-info|token$/.test(name) ? [value ?? ''] : [],
    ),
    ...Object.values(settings).filter((value) => value.length >= 8),
    sink.password,
  ].filter((text) => text !== '');
}

/** Decides the format, the kinds of the key and the time by the schema of the topic's subject. */
async function decidedJob(
  context: FlinkContext,
  asked: Job,
): Promise<{ readonly job: FlinkJob['job']; readonly schema: AvroSchema | undefined }> {
  const { settings } = context;
  const input = asked.input ?? { format: 'undecided' as const };
  if (input.format === 'json') {
    const found = settings.registry === undefined ? undefined : await latest(context, asked.topic);
    if (found !== undefined)
      throw unsayable(
        'format',
        'json',
        `is framed, because the registry has the subject ${asked.topic}-value, and Flink has no format for it`,
        'write Avro, or leave -registry out if the records have no frame',
      );
    return {
      job: { ...asked, input: { ...input, key: input.key ?? '@key', time: input.time ?? '@timestamp' } },
      schema: undefined,
    };
  }
  if (settings.registry === undefined)
    throw unsayable(
      'format',
      input.format,
      'cannot be decided without records',
      'give -format=json with the types of key and time, or -format=avro with -registry',
    );
  const schema = await latest(context, asked.topic);
  if (schema === undefined)
    throw coreError('bad_value', `the registry has no subject ${asked.topic}-value`, {
      next: 'name the topic whose value schema is registered, or give -format=json',
      details: { setting: 'topic' },
    });
  if (schema.format !== 'AVRO')
    throw unsayable(
      'format',
      schema.format.toLowerCase(),
      'is framed with a schema id, and Flink has no format for it',
      'write the events as Avro, or as JSON without a frame',
    );
  const time = input.time ?? inferredTime(schema, undefined) ?? '@timestamp';
  timeSpec(time);
  const known = withKinds({ ...input, format: 'avro', time }, schema, undefined, []);
  return { job: { ...asked, input: known }, schema };
}

async function latest(context: FlinkContext, topic: string) {
  const client = registryOf(context);
  return client === undefined ? undefined : (await readerOf(client, topic))?.schema;
}

/** Address and credentials with which Flink reaches the registry. */
function registryAccess(
  { settings }: FlinkContext,
  secret: (text: string) => string,
): { readonly url: string; readonly options: TableOptions } {
  const { url, authorization } = credentialsOf({ ...settings, registry: settings.registry as string });
  const [kind, text = ''] = (authorization() ?? '').split(' ');
  const prefix = 'value.avro-confluent';
  if (kind === 'Basic')
    return {
      url,
      options: {
        [`${prefix}.basic-auth.credentials-source`]: 'USER_INFO',
        [`${prefix}.basic-auth.user-info`]: secret(Buffer.from(text, 'base64').toString('utf8')),
      },
    };
  if (kind === 'Bearer')
    return {
      url,
      options: {
        [`${prefix}.bearer-auth.credentials-source`]: 'STATIC_TOKEN',
        [`${prefix}.bearer-auth.token`]: secret(text),
      },
    };
  return { url, options: {} };
}

function startupOf(text: string): TableOptions {
  const start = parseStart(text);
  switch (start.kind) {
    case 'earliest':
      return { 'scan.startup.mode': 'earliest-offset' };
    case 'latest':
      return { 'scan.startup.mode': 'latest-offset' };
    case 'timestamp':
      return { 'scan.startup.mode': 'timestamp', 'scan.startup.timestamp-millis': String(start.ms) };
    default:
      throw unsayable(
        'start',
        text,
        'is an offset of every partition, which Flink SQL takes for each by itself',
        'give earliest, latest or a time',
      );
  }
}

/** Database and table of the results. @throws flink_unsupported for another sink; bad_value */
function targetOf(context: FlinkContext): FlinkJob['sink'] {
  const own = sinkContext(context);
  const found = postgresSink(own);
  if (found === undefined) {
    const setting = context.settings['flink-sink'] === undefined ? 'sink' : 'flink-sink';
    throw unsayable(
      setting,
      own.settings.sink.split(':', 1)[0] as string,
      'is no sink that a Flink job of this command writes',
      'give -flink-sink=postgres:URL, or -sink=postgres:URL',
    );
  }
  const url = new URL(found.url);
  const { username, password } = url;
  url.username = '';
  url.password = '';
  return {
    url: url.href,
    table: found.table,
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
  };
}
