/** Outcome of a live decode, and the values that it compares. OK: the decoded value equals the
 *  promised value, which is the written one. LOSSY: it equals the promised value, and the format's
 *  specification lets that lose a part of the written one. FAIL: an error, a wrong value, or a lost
 *  value of a field that both schemas have. */
import type { MillraceError } from '../../core/errors.ts';

export type Outcome = 'OK' | 'LOSSY' | 'FAIL';

/** Event as its writer encodes it. */
export interface Witness {
  /** Avro's or Protobuf's JSON form, for messages. */
  readonly json: string;
  /** Payload without the frame. */
  readonly bytes: Buffer;
  /** Protobuf: message indexes in the writer's file; empty for Avro. */
  readonly path: readonly number[];
}

/** Value that the specification promises to a reader, in the form that the consumer's program sees.
 *  Computed from the written value and the two schemas, never from bytes. */
export type Projection =
  /** The specification promises no value. `answer`: the decoder behavior that the rules of the
   *  format still define: an error, or the value that is left when a part is lost. */
  | { readonly kind: 'none'; readonly why: string; readonly answer?: 'error' | { readonly left: unknown } }
  /** `lossless`: no written value is changed or lost, except those that the reader does not know.
   */
  | { readonly kind: 'value'; readonly value: unknown; readonly lossless: boolean };

export interface Trial {
  readonly outcome: Outcome;
  readonly witness: Witness;
  readonly projection: Projection;
  /** Result of the consumer's decoder. */
  readonly read:
    | { readonly value: unknown }
    | { readonly error: MillraceError; readonly at: number | undefined };
}
