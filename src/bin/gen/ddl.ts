/** `millrace gen ddl`: the definition of a Flink SQL table over a topic of a registered Avro
 *  schema, or of JSON objects. */
import { writeFileSync } from 'node:fs';
import { coreError, EXIT } from '../../core/errors.ts';
import { HIDDEN } from '../../core/secrets.ts';
import { coordinatesOf, FLINK_JARS, FLINK_VERSION, type FlinkJar } from '../../engine/flink/jars.ts';
import { flinkAvro } from '../../formats/flink/avro.ts';
import { quotedName, tableText } from '../../formats/flink/sql.ts';
import { type AvroSchema, type Schema, schemaText } from '../../formats/schema.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import { type CommandContext, defineCommand } from '../../shell/command.ts';
import { flinkProperties, isSecretProperty, shownProperties } from '../engine/flink/properties.ts';
import { credentialsOf } from '../registry-clients/credentials.ts';
import { registryClient, topicOfSubject } from '../registry-clients/shared.ts';
import { SUBJECT_SETTINGS } from './subject.ts';

/** Type of Flink SQL: words, digits, parentheses, angle brackets and names in backquotes. */
const COLUMN_TYPE = /^[A-Za-z][A-Za-z0-9_<>(), `]{0,1000}$/;

const SETTINGS = {
  flink: {
    type: 'bool',
    default: 'false',
    help: 'print Flink SQL, the only language so far',
  },
  topic: { type: 'string', help: 'topic of the records (default: -subject without -value)' },
  ...BROKER_SETTINGS,
  brokers: {
    ...BROKER_SETTINGS.brokers,
    help: 'host:port of the brokers as Flink reaches them, with commas between',
  },
  table: { type: 'string', help: 'name of the table (default: -topic)' },
  ...SUBJECT_SETTINGS,
  column: {
    type: 'properties',
    default: '',
    excludes: ['subject'],
    help: 'column of plain JSON objects as NAME=TYPE with a type of Flink SQL, such as price=DECIMAL(10,2); one a flag',
  },
  out: { type: 'string', default: '-', help: 'file to write the definition to; - is stdout' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

interface Definition {
  readonly topic: string;
  /** Lines of the head. */
  readonly head: readonly string[];
  readonly columns: readonly string[];
  readonly format: Readonly<Record<string, string>>;
  readonly jars: readonly FlinkJar[];
  readonly origin: Readonly<Record<string, unknown>>;
}

/** @throws bad_value for a schema that no table has, subject_not_found, version_not_found,
 *  registry_unavailable */
async function fromRegistry(context: Context, subject: string): Promise<Definition> {
  const { settings } = context;
  const wanted = settings['schema-version'];
  if (wanted !== 'latest' && !/^[1-9]\d{0,9}$/.test(wanted))
    throw coreError('bad_value', `-schema-version=${wanted} is not a version`, {
      next: 'give a number from 1, or latest',
    });
  const { schema, version, id } = await registryClient(context).version(subject, wanted);
  const avro = demandAvro(subject, schema);
  const { columns, obstacles, reader, unwritable } = flinkAvro(avro.tree);
  const [first] = obstacles;
  if (first !== undefined)
    throw coreError(
      'bad_value',
      `${subject} has ${first.path === '' ? 'no columns' : `the field ${first.path}`}: ${first.why}`,
      {
        next: 'give Flink a topic of its own whose schema has no such field',
        details: { obstacles },
      },
    );
  const { url } = credentialsOf({ ...settings, registry: settings.registry as string });
  const hasCredentials =
    settings['registry-user'] !== undefined || settings['registry-token-file'] !== undefined;
  return {
    topic: settings.topic ?? topicOfSubject(subject),
    head: [
      `Records of subject ${subject}, version ${version}, schema id ${id}.`,
      ...columns.flatMap(({ notes }) => notes),
      ...unwritable.map((why) => `For reading only: ${why}.`),
      ...(hasCredentials
        ? [
            "The registry asks for credentials: add 'avro-confluent.basic-auth.user-info' or 'avro-confluent.bearer-auth.token'.",
          ]
        : []),
    ],
    columns: columns.map(({ name, type }) => `${quotedName(name)} ${type}`),
    format: {
      format: 'avro-confluent',
      'avro-confluent.url': url,
      'avro-confluent.subject': subject,
      'avro-confluent.schema': reader ?? schemaText(schema, 'resolved'),
    },
    jars: [FLINK_JARS.kafka, FLINK_JARS.avro],
    origin: { subject, version, schemaId: id, readOnly: unwritable },
  };
}

/** @throws bad_value for a format of frames that Flink does not read */
function demandAvro(subject: string, schema: Schema): AvroSchema {
  if (schema.format !== 'AVRO')
    throw coreError(
      'bad_value',
      `${subject} is ${schema.format === 'JSON' ? 'JSON Schema' : 'Protobuf'} framed with a schema id, and Flink has no format for it`,
      { next: 'write the records as Avro, or as JSON without a frame (-column)' },
    );
  if (schema.tree.kind === 'record') return schema;
  throw coreError('bad_value', `${subject} has values that are no records, and a table has columns`, {
    next: 'give the subject of a record',
  });
}

/** @throws usage, bad_value */
function fromColumns({ settings }: Context): Definition {
  const { topic } = settings;
  if (topic === undefined)
    throw coreError('usage', 'gen ddl needs -topic for plain JSON', { next: 'give -topic=TOPIC' });
  const columns = Object.entries(settings.column).map(([name, type]) => {
    if (COLUMN_TYPE.test(type)) return `${quotedName(name)} ${type}`;
    throw coreError('bad_value', `-column=${name}=${type.slice(0, 200)} is not a type of Flink SQL`, {
      next: 'give a type such as BIGINT, DOUBLE, STRING, BOOLEAN, TIMESTAMP_LTZ(3) or ROW<a STRING>',
    });
  });
  return {
    topic,
    head: ['Records are JSON objects without a frame.'],
    columns,
    format: { format: 'json', 'json.timestamp-format.standard': 'ISO-8601' },
    jars: [FLINK_JARS.kafka],
    origin: {},
  };
}

/** @throws usage */
function definitionOf(context: Context): Promise<Definition> | Definition {
  const { subject, column } = context.settings;
  if (subject !== undefined) return fromRegistry(context, subject);
  if (Object.keys(column).length > 0) return fromColumns(context);
  throw coreError('usage', 'gen ddl needs a schema', {
    next: 'give -registry=URL and -subject=SUBJECT, or the columns of plain JSON: -topic=TOPIC -column=NAME=TYPE',
  });
}

/** Options of a table for properties of its Kafka client. */
const optionsOf = (properties: Readonly<Record<string, string>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(properties).map(([name, value]) => [`properties.${name}`, value]));

/** A definition is kept in files, so it has no secret. */
function secretsNote(properties: Readonly<Record<string, string>>): readonly string[] {
  const hidden = Object.keys(properties).filter((name) => isSecretProperty(name));
  return hidden.length === 0 ? [] : [`Replace ${HIDDEN} by the values of ${hidden.join(', ')}.`];
}

/** @throws not_writable */
function write(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (cause) {
    throw coreError('not_writable', `cannot write -out=${path}: ${(cause as Error).message}`, {
      next: 'give a path in a folder that exists and can be written',
      cause,
    });
  }
}

export const command = defineCommand({
  name: 'gen ddl',
  summary: 'Write the definition of a Flink SQL table over a topic.',
  description: [
    'The table reads, and where no comment says otherwise writes, the records of a registered Avro schema as Apache Flink',
    `${FLINK_VERSION} does with the jars that the first lines name. Framed Protobuf and JSON have no format in Flink.`,
    'Examples: millrace gen ddl -flink -registry=http://127.0.0.1:8081 -subject=orders-value -brokers=localhost:9092',
    '          millrace gen ddl -flink -topic=clicks -column=user_id=BIGINT -column=at=TIMESTAMP_LTZ(3) -brokers=localhost:9092',
  ].join('\n'),
  settings: SETTINGS,
  listens: false,
  async run(context) {
    const { settings } = context;
    const { flink, brokers, out } = settings;
    if (!flink) throw coreError('usage', 'gen ddl needs a language', { next: 'give -flink' });
    if (brokers === undefined)
      throw coreError('usage', 'gen ddl needs -brokers', {
        next: 'give -brokers=host:port as Flink reaches them',
      });
    const { topic, head, columns, format, jars, origin } = await definitionOf(context);
    const table = settings.table ?? topic;
    const properties = shownProperties(flinkProperties(settings['broker-property']));
    const ddl = tableText(table, columns, {
      connector: 'kafka',
      topic,
      'properties.bootstrap.servers': brokers,
      ...optionsOf(properties),
      'properties.isolation.level': 'read_committed',
      'scan.startup.mode': 'earliest-offset',
      ...format,
    });
    const comments = [
      `Generated by \`millrace gen ddl\` for Apache Flink ${FLINK_VERSION} with ${jars.map(coordinatesOf).join(', ')}.`,
      ...head,
      ...secretsNote(properties),
    ];
    const text = [...comments.map((line) => `-- ${line}`), `${ddl};`].join('\n');
    const document = { ...origin, topic, table, jars: jars.map(coordinatesOf), out };
    if (out === '-') {
      context.print(text, { ...document, ddl });
      return EXIT.done;
    }
    write(out, `${text}\n`);
    context.print(`definition of ${table} written to ${out}`, document);
    return EXIT.done;
  },
});
