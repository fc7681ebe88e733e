/** Registry in memory, for tests of outputs whose records have schemas. */
import type { SchemaFormat } from '../../../../src/formats/format.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import type { RegistryClient } from '../../../../src/serde/client.ts';
import { serdeError } from '../../../../src/serde/errors.ts';

/** Registry of one process; `fails` is thrown by each registration of a value. */
export function registry(fails?: Error) {
  const versions = new Map<string, Array<{ id: number; schema: Schema }>>();
  const byId = new Map<number, Schema>();
  const client = {
    register: async (subject: string, format: SchemaFormat, text: string) => {
      if (fails !== undefined && subject.endsWith('-value')) throw fails;
      const schema = parseSchema(format, text);
      const known = versions.get(subject) ?? [];
      const found = known.find((one) => one.schema.identity === schema.identity);
      if (found !== undefined) return found.id;
      const id = byId.size + 1;
      byId.set(id, schema);
      versions.set(subject, [...known, { id, schema }]);
      return id;
    },
    version: async (subject: string) => {
      const latest = versions.get(subject)?.at(-1);
      if (latest === undefined) throw serdeError('subject_not_found', `no subject ${subject}`);
      return latest;
    },
    judge: async () => ({ compatible: true, messages: [] }),
    findVersion: async (subject: string, format: SchemaFormat, text: string) => {
      const { identity } = parseSchema(format, text);
      const known = versions.get(subject);
      if (known === undefined) throw serdeError('subject_not_found', `no subject ${subject}`);
      return known.find(({ schema }) => schema.identity === identity);
    },
    schemaById: async (id: number) => byId.get(id) as Schema,
  } as unknown as RegistryClient;
  return { client, versions };
}
