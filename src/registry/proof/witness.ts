/** Interface of a format to the live proof: events of a writer's schema, their bytes and text, and
 *  the promised values.
 *  `avroProof` (proof/avro/format.ts) and `protoProof` (proof/protobuf/format.ts) implement it for
 *  proof/live.ts. */

import type { ProtoDatum } from '../../formats/datum.ts';
import type { EventRoute } from '../compatibility/finding.ts';
import type { Projection } from './trial.ts';

export interface WitnessOptions {
  /** Yields only events along this route, the rest of the event being the smallest; only the part
   *  at its end varies. */
  readonly route?: EventRoute;
  /** Most events. */
  readonly limit: number;
  /** Returns numbers in [0, 1). After the planned events, random mixes follow up to the limit.
   *  Absent: only the planned events. */
  readonly random?: () => number;
  /** True: only the random mixes, and no other limit than `limit`. */
  readonly onlyRandom?: boolean;
}

/** Protobuf message, and its position in the file. */
export interface ProtoEvent {
  /** Message indexes in the writer's file. */
  readonly path: readonly number[];
  readonly datum: ProtoDatum;
}

export interface FormatProof<FormatSchema, Event> {
  /** Yields the same events each time; none if the writer's type has no finite event. Each class of
   *  values of each leaf occurs in some event while the rest is smallest; classes are not
   *  multiplied with each other. */
  witnesses(writer: FormatSchema, options: WitnessOptions): Generator<Event>;
  /** Message indexes of the event for Protobuf; empty for Avro. */
  pathOf(event: Event): readonly number[];
  /** Compiles the encoder of a schema. It returns the payload without the frame. */
  encoder(writer: FormatSchema): (event: Event) => Buffer;
  /** Compiles the projection of a pair. It shares no code with the checker or the decoder. */
  projector(reader: FormatSchema, writer: FormatSchema): (event: Event) => Projection;
  /** Renders an event for messages. */
  json(event: Event, writer: FormatSchema): string;
}
