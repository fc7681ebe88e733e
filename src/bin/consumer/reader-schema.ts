/** Reader schema of `millrace consumer`. */
import { registryError } from '../../registry/errors.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import type { ConsumerContext } from './settings.ts';

/** Version of a subject, without its schema. */
export type PinnedVersion = Pick<SubjectVersion, 'subject' | 'version' | 'id' | 'context' | 'guid'>;

export const pinned = ({ subject, version, id, context, guid }: SubjectVersion): PinnedVersion => ({
  subject,
  version,
  id,
  context,
  guid,
});

/** Loads the schema of a version from the registry client of the process. */
export async function loadPinned(client: RegistryClient, version: PinnedVersion): Promise<SubjectVersion> {
  return { ...version, schema: await client.schemaById(version.id, version.context) };
}

/** Exports the version of the reader schema. */
export function exportReader({ metrics }: Pick<ConsumerContext, 'metrics'>, reader: PinnedVersion): void {
  const gauge = metrics.gauge(
    'consumer_reader_schema_version',
    'Version of the subject that records are read with.',
    ['subject'],
  );
  gauge.set(reader.version, gauge.series(reader.subject));
}

/** Loads the reader schema of a subject and exports its version as a metric. @throws
 *  invalid_schema if it has another format than the flags name */
export async function readerOfSubject(
  context: ConsumerContext,
  client: RegistryClient,
  subject: string,
): Promise<SubjectVersion> {
  const { format, 'reader-version': version } = context.settings;
  const reader = await client.version(subject, version);
  if (format !== undefined && reader.schema.format !== format.toUpperCase())
    throw registryError(
      'invalid_schema',
      `version ${reader.version} of ${subject} is ${reader.schema.format}, not ${format.toUpperCase()}`,
      { next: 'give the -format of the subject' },
    );
  exportReader(context, reader);
  return reader;
}
