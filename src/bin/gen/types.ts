/** `millrace gen types`: TypeScript types of a schema from a file or a registry. */
import { writeFileSync } from 'node:fs';
import { coreError, EXIT, findMillraceError } from '../../core/errors.ts';
import { guidOf } from '../../formats/guid.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import { schemaTypes } from '../../formats/typescript/types.ts';
import { registryError } from '../../registry/errors.ts';
import { type CommandContext, defineCommand } from '../../shell/command.ts';
import { formatOf, readSchemaFile, referenceFiles } from '../compat-check/files.ts';
import { readReferences } from '../compat-check/sources.ts';
import { CREDENTIAL_SETTINGS } from '../registry-clients/credentials.ts';
import { CLIENT_SETTINGS, registryClient } from '../registry-clients/shared.ts';

const SETTINGS = {
  schema: {
    type: 'string',
    excludes: ['subject'],
    help: 'file with the schema; - reads standard input',
  },
  format: {
    type: 'string',
    choices: ['avro', 'protobuf'],
    needs: ['schema'],
    help: 'format of -schema (default: by the name of the file, else by its content)',
  },
  reference: {
    type: 'list',
    needs: ['schema'],
    help: 'NAME=FILE of a schema that -schema refers to, after the files that it refers to itself',
  },
  subject: { type: 'string', help: 'subject of the schema in -registry' },
  'schema-version': {
    type: 'string',
    default: 'latest',
    needs: ['subject'],
    help: 'version of -subject: a number or latest',
  },
  registry: { ...CLIENT_SETTINGS.registry, needs: ['subject'] },
  'registry-user': { ...CREDENTIAL_SETTINGS['registry-user'], needs: ['subject'] },
  'registry-token-file': { ...CREDENTIAL_SETTINGS['registry-token-file'], needs: ['subject'] },
  'connect-timeout': {
    type: 'duration',
    default: '10s',
    min: 100,
    needs: ['subject'],
    help: 'timeout of a request to the registry',
  },
  out: { type: 'string', default: '-', help: 'file to write the types to; - is stdout' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

interface Source {
  readonly schema: Schema;
  /** Description of the source in the header. */
  readonly name: string;
  /** Undefined where the content that determines it is not known. */
  readonly guid: string | undefined;
  readonly origin: Readonly<Record<string, unknown>>;
}

/** A file that cannot be parsed has an exit code of its own in compat-check, and here that of any
 *  invalid schema. */
function withInvalidSchema<T>(work: () => T): T {
  try {
    return work();
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error?.code !== 'gate_unparsable') throw thrown;
    throw registryError('invalid_schema', error.message, {
      next: error.next ?? 'correct the schema',
      details: error.details,
      cause: thrown,
    });
  }
}

/** @throws bad_file, bad_value, invalid_schema */
function fromFile({ settings }: Context, path: string): Source {
  const names = referenceFiles(settings.reference);
  return withInvalidSchema(() => {
    const file = readSchemaFile(path, 'schema');
    const format = formatOf(file, settings.format);
    const references = readReferences(names, format);
    let schema: Schema;
    try {
      schema = parseSchema(format, file.text, { references });
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      throw registryError('invalid_schema', `${file.name}: ${error.message}`, {
        next: error.next ?? 'correct the schema',
        details: error.details,
        cause: thrown,
      });
    }
    // The guid covers the subjects and versions of references, which files do not have.
    const guid = references.length > 0 ? undefined : guidOf({ format, text: schema.text, references: [] });
    return { schema, name: `the schema file ${file.name}`, guid, origin: { file: file.name } };
  });
}

/** @throws bad_value, subject_not_found, version_not_found, registry_unavailable */
async function fromRegistry(context: Context, subject: string): Promise<Source> {
  const wanted = context.settings['schema-version'];
  if (wanted !== 'latest' && !/^[1-9]\d{0,9}$/.test(wanted))
    throw coreError('bad_value', `-schema-version=${wanted} is not a version`, {
      next: 'give a number from 1, or latest',
    });
  const client = registryClient(context);
  const { schema, version, id } = await client.version(subject, wanted);
  const guid = await client.guidOf(id);
  return {
    schema,
    name: `subject ${subject}, version ${version}, schema id ${id}`,
    guid,
    origin: { subject, version, schemaId: id },
  };
}

async function sourceOf(context: Context): Promise<Source> {
  const { schema, subject } = context.settings;
  if (schema !== undefined) return fromFile(context, schema);
  if (subject !== undefined) return fromRegistry(context, subject);
  throw coreError('usage', 'gen types needs a schema', {
    next: 'give -schema=FILE, or -registry=URL and -subject=SUBJECT',
  });
}

/** @throws bad_value for a JSON Schema */
function typesOf({ schema, name, guid }: Source): string {
  if (schema.format === 'JSON')
    throw coreError('bad_value', `${name} is a JSON Schema, which the codecs do not read or write`, {
      next: 'give an Avro or a Protobuf schema',
    });
  return schemaTypes(schema, [
    `Types of ${name}.`,
    guid === undefined
      ? 'Schema guid: unknown, because it depends on the subjects of the references.'
      : `Schema guid: ${guid}.`,
    'Generated by `millrace gen types`; the next run replaces this file.',
  ]);
}

export const command = defineCommand({
  name: 'gen types',
  summary: 'Write the TypeScript types of a schema.',
  description: [
    'The types are those of the values that the serializers and deserializers of millrace/registry accept and return.',
    'Examples: millrace gen types -schema=order.avsc -out=src/order.ts',
    '          millrace gen types -registry=http://127.0.0.1:8081 -subject=orders-value -out=src/order.ts',
  ].join('\n'),
  settings: SETTINGS,
  listens: false,
  async run(context) {
    const { out } = context.settings;
    const source = await sourceOf(context);
    const types = typesOf(source);
    const { guid = null, origin } = source;
    if (out === '-') {
      context.print(types.trimEnd(), { ...origin, guid, out, types });
      return EXIT.done;
    }
    try {
      writeFileSync(out, types);
    } catch (cause) {
      throw coreError('not_writable', `cannot write -out=${out}: ${(cause as Error).message}`, {
        next: 'give a path in a folder that exists and can be written',
        cause,
      });
    }
    context.print(`types of ${source.name} written to ${out}`, { ...origin, guid, out });
    return EXIT.done;
  },
});
