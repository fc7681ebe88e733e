/** What Avro brings to a proof. */
import type { AvroSchema } from '../schemas/schema.ts';
import { encodeAvro } from '../serde/avro-encoder.ts';
import type { AvroDatum } from '../serde/datum.ts';
import { avroJson } from './avro-json.ts';
import { avroProjector } from './avro-projection.ts';
import { avroWitnesses } from './avro-witness.ts';
import type { FormatProof } from './witness.ts';

const NO_PATH: readonly number[] = [];

export const avroProof: FormatProof<AvroSchema, AvroDatum> = {
  witnesses: ({ tree }, options) => avroWitnesses(tree, options),
  pathOf: () => NO_PATH,
  encoder:
    ({ tree }) =>
    (event) =>
      encodeAvro(tree, event),
  // A schema reads itself without any resolution.
  projector: (reader, writer) =>
    avroProjector(reader.identity === writer.identity ? writer.tree : reader.tree, writer.tree),
  json: (event, { tree }) => avroJson(event, tree),
};
