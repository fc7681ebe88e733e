/** Configuration of the Kafka client of a process: brokers and properties from the caller, the
 *  environment and a file of client properties, in this precedence. */
import { readFileSync, statSync } from 'node:fs';
import { coreError } from '../../../core/errors.ts';
import { environmentName, type Properties, parsePropertyText } from '../../../core/settings.ts';
import { brokerError } from '../errors.ts';
import type { BrokerProperties } from '../port.ts';
import { SHOWN_PROPERTIES } from '../properties.ts';
import { parseClientFile } from './file.ts';
import { type PlacedProperty, translate } from './translate.ts';

const FILE_BYTES_MAX = 1024 * 1024;
const NEXT = 'mend this; docs/how-to/secured-kafka.md lists the accepted properties';

/** Brokers and properties that every client of a process shares. */
export interface BrokerConfig {
  /** `host:port` with commas between; undefined when nothing names them. */
  readonly brokers: string | undefined;
  /** By the names of librdkafka. */
  readonly properties: Properties;
  /** Names in the file that concern no connection to Kafka. */
  readonly ignored: readonly string[];
}

function checked(where: string, given: readonly PlacedProperty[], isFile: boolean): BrokerConfig {
  const { problems, ...config } = translate(given, isFile);
  if (problems.length > 0)
    throw brokerError('bad_broker_property', `${where}: ${problems.join('; ')}`, { next: NEXT });
  return config;
}

/** Reads a file with properties of librdkafka or of the Java client.
 *  @throws bad_file, bad_broker_property: one error that names every line that cannot be used */
export function readClientFile(path: string): BrokerConfig {
  let text: string;
  try {
    if (statSync(path).size > FILE_BYTES_MAX) throw new RangeError(`larger than ${FILE_BYTES_MAX} bytes`);
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    const why = (cause as NodeJS.ErrnoException).code ?? (cause as Error).message;
    throw coreError('bad_file', `the file of client properties ${path} cannot be read (${why})`, {
      next: 'give a file with properties of librdkafka or of the Java client, name=value in each line',
      cause,
    });
  }
  const entries = parseClientFile(text);
  const placed = entries.map(({ name, value, line }) => ({ name, value, place: `line ${line}: ` }));
  return checked(path, placed, true);
}

/** Checks and translates properties that were given by name.
 *  @param where the name of their source in an error
 *  @throws bad_broker_property: one error that names every property that cannot be used */
export function checkProperties(where: string, given: BrokerProperties): Properties {
  const placed = Object.entries(given).map(([name, value]) => ({ name, value: String(value), place: '' }));
  return checked(where, placed, false).properties;
}

/** Sources of the configuration of a service that uses the library. */
export interface BrokerConfigOptions {
  readonly brokers?: string;
  /** File with properties of librdkafka or of the Java client. */
  readonly file?: string;
  /** By the names of librdkafka or of the Java client. */
  readonly properties?: BrokerProperties;
  /** Environment with MILLRACE_BROKERS, MILLRACE_BROKER_CONFIG and MILLRACE_BROKER_PROPERTY; none
   *  by default. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** Reads the configuration of the Kafka client. Options win over the environment, and both win over
 *  the file, property by property.
 *  @throws bad_file, bad_value, bad_broker_property
 *  @example
 *  const config = readBrokerConfig({ file: 'client.properties', env: process.env });
 */
export function readBrokerConfig(options: BrokerConfigOptions): BrokerConfig {
  const env = (setting: string): string | undefined => options.env?.[environmentName(setting)] || undefined;
  const path = options.file ?? env('broker-config');
  const file = path === undefined ? undefined : readClientFile(path);
  const variable = environmentName('broker-property');
  const inherited = parsePropertyText(env('broker-property') ?? '', SHOWN_PROPERTIES);
  if (inherited === undefined)
    throw coreError('bad_value', `${variable} is not name=value`, { next: 'give one name=value a line' });
  return {
    brokers: options.brokers ?? env('brokers') ?? file?.brokers,
    properties: Object.freeze({
      ...file?.properties,
      ...checkProperties(variable, inherited),
      ...checkProperties('the properties', options.properties ?? {}),
    }),
    ignored: file?.ignored ?? [],
  };
}
