/** What a live decode of one event is held against.
 *
 *  OK: it comes back equal to what the format promises. LOSSY: equal but for a loss that the format's specification
 *  allows. FAIL: an error, or a value that is wrong, or gone though its field stands in both schemas.
 */
import type { MillraceError } from '../../core/errors.ts';

export type Outcome = 'OK' | 'LOSSY' | 'FAIL';

/** One event as its writer writes it. */
export interface Witness {
  /** For a person: Avro's or Protobuf's JSON form. */
  readonly json: string;
  /** The payload, without the frame. */
  readonly bytes: Buffer;
  /** Protobuf: message indexes in the writer's file; empty for Avro. */
  readonly path: readonly number[];
}

/** What a reader should get of an event, in the form that the consumer's program sees. Made from the written value and
 *  the two schemas by the rules of the specification, never from bytes. */
export type Projection =
  /** The specification allows no reading of it. `answer`: what a decoder makes of it all the same, where the rules of
   *  the format say that: an error, or what is left when a value vanishes. */
  | { readonly kind: 'none'; readonly why: string; readonly answer?: 'error' | { readonly left: unknown } }
  /** `lossless`: nothing of what was written is changed or lost but what the reader does not know. */
  | { readonly kind: 'value'; readonly value: unknown; readonly lossless: boolean };

export interface Trial {
  readonly outcome: Outcome;
  readonly witness: Witness;
  readonly projection: Projection;
  /** What the consumer's decoder answered. */
  readonly read:
    | { readonly value: unknown }
    | { readonly error: MillraceError; readonly at: number | undefined };
}
