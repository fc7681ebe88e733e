/** Avro's part of the live proof. */

import { encodeAvro } from '../../../formats/avro/codec/encoder.ts';
import type { AvroDatum } from '../../../formats/datum.ts';
import type { AvroSchema } from '../../../formats/schema.ts';
import type { FormatProof } from '../witness.ts';
import { avroJson } from './json.ts';
import { avroProjector } from './projection.ts';
import { avroWitnesses } from './witness.ts';

const NO_PATH: readonly number[] = [];

export const avroProof: FormatProof<AvroSchema, AvroDatum> = {
  witnesses: ({ tree }, options) => avroWitnesses(tree, options),
  pathOf: () => NO_PATH,
  encoder:
    ({ tree }) =>
    (event) =>
      encodeAvro(tree, event),
  // A schema reads itself without schema resolution.
  projector: (reader, writer) =>
    avroProjector(reader.identity === writer.identity ? writer.tree : reader.tree, writer.tree),
  json: (event, { tree }) => avroJson(event, tree),
};
