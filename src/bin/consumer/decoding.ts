/** Reader schema, decoder and keys of a run of `millrace consumer`. */
import { AnyDecoder } from '../../registry/consumer/any.ts';
import { BatchDecoder, type RecordDecoder } from '../../registry/consumer/decoder.ts';
import { type KeyForm, RecordKeys } from '../../registry/consumer/line.ts';
import { WriterSchemas } from '../../registry/consumer/writers.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import { kernels as chooseKernels } from '../../shell/drivers.ts';
import { readerOfSubject } from './reader-schema.ts';
import type { ConsumerContext } from './settings.ts';

/** Loads the reader schema that the flags name and exports its version as a metric. @throws
 *  invalid_schema if it has another format */
export async function readerOf(
  context: ConsumerContext,
  client: RegistryClient,
): Promise<SubjectVersion | undefined> {
  const { subject } = context.settings;
  return subject === undefined ? undefined : readerOfSubject(context, client, subject);
}

/** Decoder and keys of one reader of records. The ids of the records belong to the context of the
 *  reader schema.
 *  @param reader undefined: each record is read with the schema of its writer */
export async function recordDecoding(
  context: Pick<ConsumerContext, 'settings' | 'log' | 'metrics'>,
  client: RegistryClient,
  reader: SubjectVersion | undefined,
  { keyForm, namedUnions }: { readonly keyForm: KeyForm; readonly namedUnions: boolean },
): Promise<{ readonly decoder: RecordDecoder; readonly keys: RecordKeys }> {
  const { settings } = context;
  const print = { namedUnions };
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  const writers = (): WriterSchemas => new WriterSchemas(client, codecs, print, reader?.context);
  const keys = new RecordKeys(keyForm, writers());
  const decoder =
    reader === undefined
      ? new AnyDecoder(writers())
      : new BatchDecoder(
          client,
          chooseKernels(context),
          reader.schema,
          settings['batch-rows'],
          codecs,
          print,
          reader.context,
        );
  return { decoder, keys };
}
