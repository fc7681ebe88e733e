/** Choice of the codecs that write and read records. */
import { COMPILED_CODECS, type RecordCodecs } from './codec.ts';

/** Codecs of records: `compiled` is Millrace's own; `reference` is avsc for Avro and protobufjs for
 *  Protobuf, for comparison. */
export const CODEC_CHOICES = ['compiled', 'reference'] as const;
export type CodecChoice = (typeof CODEC_CHOICES)[number];

/** Loads the codecs of a choice. The modules of the reference codecs are loaded only for it. */
export async function recordCodecs(choice: CodecChoice): Promise<RecordCodecs> {
  if (choice === 'compiled') return COMPILED_CODECS;
  const { REFERENCE_CODECS } = await import('./reference-codec.ts');
  return REFERENCE_CODECS;
}
