/** Schema of a command from a file, with the files that it refers to. */
import { findMillraceError } from '../../core/errors.ts';
import { namedContext, subjectWithin } from '../../core/subject.ts';
import type { Reference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import { registryError } from '../../registry/errors.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { formatOf, readSchemaFile, referenceFiles } from '../compat-check/files.ts';
import { type NamedFile, readReferences } from '../compat-check/sources.ts';

export interface GivenSchema {
  readonly schema: Schema;
  readonly format: SchemaFormat;
  /** Path of the file, for messages. */
  readonly name: string;
  readonly references: readonly NamedFile[];
}

/** A file that cannot be parsed has an exit code of its own in compat-check, and elsewhere that of
 *  any invalid schema. */
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

/** Reads a schema file.
 *  @param flag name of the flag that gives the path
 *  @param format value of -format; absent: by the name of the file, else by its content
 *  @param references values of -reference
 *  @throws bad_file, bad_value, invalid_schema */
export function schemaFromFile(
  path: string,
  flag: string,
  format: string | undefined,
  references: readonly string[] | undefined,
): GivenSchema {
  const names = referenceFiles(references);
  return withInvalidSchema(() => {
    const file = readSchemaFile(path, flag);
    const known = formatOf(file, format);
    const resolved = readReferences(names, known);
    try {
      const schema = parseSchema(known, file.text, { references: resolved });
      return { schema, format: known, name: file.name, references: names };
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      throw registryError('invalid_schema', `${file.name}: ${error.message}`, {
        next: error.next ?? 'correct the schema',
        details: error.details,
        cause: thrown,
      });
    }
  });
}

/** Registers the files that a schema refers to, each under the subject of its name in the context
 *  of the schema's subject. Returns the references of the schema.
 *  @throws incompatible, invalid_schema, registry_unavailable, registry_protocol */
export async function registerReferences(
  client: RegistryClient,
  subject: string,
  { schema, format, references }: GivenSchema,
): Promise<readonly Reference[]> {
  const context = namedContext(subject);
  const registered: Reference[] = [];
  for (const { name } of references) {
    const text = schema.references.find((reference) => reference.name === name)?.text ?? '';
    const own = subjectWithin(context, name);
    await client.register(own, format, text, registered);
    const version = (await client.findVersion(own, format, text, registered))?.version ?? 1;
    registered.push({ name, subject: name, version });
  }
  return registered;
}

/** Registers a schema, after the files that it refers to. Returns its id.
 *  @throws incompatible, invalid_schema, registry_unavailable, registry_protocol */
export async function registerSource(
  client: RegistryClient,
  subject: string,
  source: GivenSchema,
): Promise<number> {
  const references = await registerReferences(client, subject, source);
  return client.register(subject, source.format, source.schema.source, references);
}
