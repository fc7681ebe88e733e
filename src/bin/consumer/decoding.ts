/** Reader schema, decoder and keys of a run of `millrace consumer`. */
import { AnyDecoder } from '../../registry/consumer/any.ts';
import { BatchDecoder, type RecordDecoder } from '../../registry/consumer/decoder.ts';
import { type KeyForm, RecordKeys } from '../../registry/consumer/line.ts';
import { WriterSchemas } from '../../registry/consumer/writers.ts';
import { registryError } from '../../registry/errors.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import { kernels as chooseKernels } from '../../shell/drivers.ts';
import type { ConsumerContext } from './settings.ts';

/** Loads the reader schema that the flags name and exports its version as a metric. @throws
 *  invalid_schema if it has another format */
export async function readerOf(
  context: ConsumerContext,
  client: RegistryClient,
): Promise<SubjectVersion | undefined> {
  const { subject, format, 'reader-version': version } = context.settings;
  if (subject === undefined) return undefined;
  const reader = await client.version(subject, version);
  if (format !== undefined && reader.schema.format !== format.toUpperCase())
    throw registryError(
      'invalid_schema',
      `version ${reader.version} of ${subject} is ${reader.schema.format}, not ${format.toUpperCase()}`,
      { next: 'give the -format of the subject' },
    );
  const gauge = context.metrics.gauge(
    'consumer_reader_schema_version',
    'Version of the subject that records are read with.',
    ['subject'],
  );
  gauge.set(reader.version, gauge.series(subject));
  return reader;
}

/** Decoder and keys of one reader of records.
 *  @param reader undefined: each record is read with the schema of its writer */
export async function recordDecoding(
  context: ConsumerContext,
  client: RegistryClient,
  reader: SubjectVersion | undefined,
  { keyForm, namedUnions }: { readonly keyForm: KeyForm; readonly namedUnions: boolean },
): Promise<{ readonly decoder: RecordDecoder; readonly keys: RecordKeys }> {
  const { settings } = context;
  const print = { namedUnions };
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  const keys = new RecordKeys(keyForm, new WriterSchemas(client, codecs, print));
  const decoder =
    reader === undefined
      ? new AnyDecoder(new WriterSchemas(client, codecs, print))
      : new BatchDecoder(
          client,
          await chooseKernels(context),
          reader.schema,
          settings['batch-rows'],
          codecs,
          print,
        );
  return { decoder, keys };
}
