/** Settings of every command that uses Kafka: brokers and the properties of its clients. */
import { environmentName, type Properties, type SettingTable } from '../core/settings.ts';
import { type BrokerConfig, checkProperties, readClientFile } from '../io/kafka/config/client.ts';
import { SHOWN_PROPERTIES } from '../io/kafka/properties.ts';

/** The group for a command that also runs without a broker. */
export const BROKER_SETTINGS = {
  brokers: {
    type: 'string',
    hasParts: true,
    help: 'host:port of the brokers, with commas between; default: bootstrap.servers of -broker-config',
  },
  'broker-config': {
    type: 'string',
    help: 'file with properties of the Kafka client, by the names of librdkafka or of the Java client; -broker-property and the environment override it',
  },
  'broker-property': {
    type: 'properties',
    default: '',
    shown: SHOWN_PROPERTIES,
    help: 'property of the Kafka client as name=value, by the name of librdkafka or of the Java client (security.protocol=sasl_ssl): one a flag, or one a line in the environment. Values are secret but for harmless names, and a secret value reaches to the end, commas and blanks included',
  },
} as const satisfies SettingTable;

/** The group for a command that never runs without a broker. */
export const REQUIRED_BROKER_SETTINGS = {
  ...BROKER_SETTINGS,
  brokers: { ...BROKER_SETTINGS.brokers, required: true },
} as const satisfies SettingTable;

/** Name of the setting that marks the group in a table. */
const FILE = 'broker-config';
const PROPERTY = 'broker-property';

/** Reads the file of -broker-config.
 *  @param path undefined: none is given
 *  @throws bad_file, bad_broker_property */
export function brokerFileOf(path: unknown): BrokerConfig | undefined {
  return typeof path === 'string' && path !== '' ? readClientFile(path) : undefined;
}

/** Returns the table in which -brokers may be left out, because the file names them. */
export function withBrokersOf(table: SettingTable, file: BrokerConfig | undefined): SettingTable {
  const brokers = table['brokers'];
  if (file?.brokers === undefined || brokers === undefined) return table;
  return { ...table, brokers: { ...brokers, default: file.brokers } };
}

/** Adds the properties of the file to those that were given, which win, and checks all.
 *  @throws bad_broker_property */
export function withPropertiesOf(
  table: SettingTable,
  values: Readonly<Record<string, unknown>>,
  file: BrokerConfig | undefined,
): Readonly<Record<string, unknown>> {
  if (!Object.hasOwn(table, FILE)) return values;
  const given = checkProperties(
    `-${PROPERTY} or ${environmentName(PROPERTY)}`,
    (values[PROPERTY] ?? {}) as Properties,
  );
  return Object.freeze({ ...values, [PROPERTY]: Object.freeze({ ...file?.properties, ...given }) });
}

/** Environment of a child command with the same properties of its Kafka clients; they may be
 *  secret, and other users can see arguments. */
export function brokerEnvironment(properties: Properties): Readonly<Record<string, string>> {
  const lines = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
  return lines.length === 0 ? {} : { [environmentName(PROPERTY)]: lines.join('\n') };
}
