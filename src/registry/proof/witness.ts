/** What a format brings to a proof: events of a writer's schema, their bytes and text, and what a reader should get.
 *
 *  `avroProof` (proof/avro-proof.ts) and `protoProof` (proof/proto-proof.ts) are the two that proof/live.ts drives.
 */

import type { ProtoDatum } from '../../formats/datum.ts';
import type { Route } from '../compatibility/finding.ts';
import type { Projection } from './trial.ts';

export interface WitnessOptions {
  /** Aim: only events that pass along it, with the smallest rest; what varies is what is at its end. */
  readonly route?: Route;
  /** At most so many events. */
  readonly limit: number;
  /** In [0, 1): after the planned events, random mixes up to the limit. Absent: the planned ones alone. */
  readonly random?: () => number;
}

/** A message of Protobuf, and which one of its file it is. */
export interface ProtoEvent {
  /** Message indexes in the writer's file. */
  readonly path: readonly number[];
  readonly datum: ProtoDatum;
}

export interface FormatProof<FormatSchema, Event> {
  /** The same events each time. Nothing where the writer's type holds no finite event. Every class of values of every
   *  leaf occurs in some event while the rest is smallest; classes are not multiplied with each other. */
  witnesses(writer: FormatSchema, options: WitnessOptions): Generator<Event>;
  /** For Protobuf; empty for Avro. */
  pathOf(event: Event): readonly number[];
  /** Compiled once a schema. The payload without the frame. */
  encoder(writer: FormatSchema): (event: Event) => Buffer;
  /** Compiled once a pair. What the specification promises; knows neither the checker nor the decoder. */
  projector(reader: FormatSchema, writer: FormatSchema): (event: Event) => Projection;
  /** For a person. */
  json(event: Event, writer: FormatSchema): string;
}
