/** Counterexample event of a finding: the smallest event that the consumer's decoder really fails
 *  on, or changes. Every counterexample is found by live decode.
 *
 *  A reused Protobuf number with its old type breaks no decoder. The event then shows the old value
 *  under the new name. */

import type { AvroNode } from '../../formats/avro/syntax/tree.ts';
import type { AvroSchema, Schema } from '../../formats/schema.ts';
import type { EventRoute, Finding } from '../compatibility/finding.ts';
import { readersAlone } from './avro/alone.ts';
import { cpuMs } from './effort.ts';
import { trialsOf } from './live.ts';
import { plainJson } from './same.ts';
import type { Outcome, Trial } from './trial.ts';

export interface Counterexample {
  readonly outcome: Outcome;
  /** The event, cut to EVENT_CHARS_MAX. */
  readonly json: string;
  /** Payload without the frame, cut to HEX_BYTES_MAX. */
  readonly hex: string;
  readonly bytes: number;
  /** Byte offset of the decoding error; undefined without an error. */
  readonly at: number | undefined;
  /** Decoder's error, or the decoded value as JSON. */
  readonly got: string;
  /** Promised value as JSON, or the reason why none is promised. */
  readonly promised: string;
  /** True: the event was read by a reader schema without the other fields of the records around the
   *  place. With them, such an event shows another finding first. */
  readonly alone: boolean;
}

/** Most events tried for one finding, and the processor time of a search; the best event so far is
 *  then used. A hostile pair of schemas makes events slow, by defaults of many values. */
const EVENTS_MAX = 300;
const SEARCH_MS_MAX = 250;
const EVENT_CHARS_MAX = 2_000;
const VALUE_CHARS_MAX = 400;
const HEX_BYTES_MAX = 512;

const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text);

function toCounterexample({ outcome, witness, projection, read }: Trial, alone = false): Counterexample {
  const { bytes, json } = witness;
  const hex = bytes.toString('hex', 0, HEX_BYTES_MAX);
  return {
    outcome,
    json: cut(json, EVENT_CHARS_MAX),
    hex: bytes.length > HEX_BYTES_MAX ? `${hex}…` : hex,
    bytes: bytes.length,
    at: 'error' in read ? read.at : undefined,
    got: cut('error' in read ? read.error.message : plainJson(read.value), VALUE_CHARS_MAX),
    promised: cut(projection.kind === 'none' ? projection.why : plainJson(projection.value), VALUE_CHARS_MAX),
    alone,
  };
}

/** Returns the trial with the smallest event among those that `isWanted` accepts. */
function smallest(
  route: EventRoute | undefined,
  reader: Schema,
  writer: Schema,
  isWanted: (trial: Trial) => boolean,
  searchMs = SEARCH_MS_MAX,
): Trial | undefined {
  const options = route === undefined ? { limit: EVENTS_MAX } : { limit: EVENTS_MAX, route };
  const until = cpuMs() + searchMs;
  let best: Trial | undefined;
  for (const trial of trialsOf(reader, writer, options)) {
    if (cpuMs() > until) break;
    if (!isWanted(trial)) continue;
    if (best === undefined || trial.witness.bytes.length < best.witness.bytes.length) best = trial;
  }
  return best;
}

/** Copies a schema with another tree. */
const withTree = (schema: AvroSchema, tree: AvroNode, name: string): AvroSchema => ({
  ...schema,
  tree,
  identity: `${schema.identity} ${name}`,
});

const isSameRead = (one: Trial, other: Trial): boolean =>
  one.outcome === other.outcome &&
  ('error' in one.read
    ? 'error' in other.read && one.read.error.message === other.read.error.message
    : !('error' in other.read));

/** Finds the event with a reader schema that has only the finding's fields. Uses the whole schema
 *  instead if its result is the same. */
function alone(
  finding: Finding,
  reader: AvroSchema,
  writer: Schema,
  wanted: Outcome,
  searchMs: number,
): Counterexample | undefined {
  for (const [index, tree] of readersAlone(reader.tree, finding).entries()) {
    const cut = withTree(reader, tree, `alone ${index}`);
    const own = smallest(finding.route, cut, writer, ({ outcome }) => outcome === wanted, searchMs);
    if (own === undefined) continue;
    const { bytes } = own.witness;
    const whole = smallest(
      finding.route,
      reader,
      writer,
      (trial) => trial.witness.bytes.equals(bytes) && isSameRead(trial, own),
      searchMs,
    );
    return whole === undefined ? toCounterexample(own, true) : toCounterexample(whole);
  }
  return undefined;
}

/** Finds the counterexample of a finding about two schemas; undefined: no event shows it.
 *  @param searchMs processor time of the search; with an infinite one the result does not depend on
 *  the speed of the machine */
export function counterexampleOf(
  finding: Finding,
  reader: Schema,
  writer: Schema,
  searchMs = SEARCH_MS_MAX,
): Counterexample | undefined {
  const wanted = finding.severity === 'fail' ? 'FAIL' : finding.severity === 'lossy' ? 'LOSSY' : undefined;
  if (wanted === undefined) return undefined;
  const own = reader.format === 'AVRO' ? alone(finding, reader, writer, wanted, searchMs) : undefined;
  if (own !== undefined) return own;
  const best = smallest(finding.route, reader, writer, ({ outcome }) => outcome === wanted, searchMs);
  return best === undefined ? undefined : toCounterexample(best);
}

/** Returns the message and field number of a finding of the number history. The path has the
 *  message and the field, the place ends in the number. */
export function historyField({ path, place }: Finding): { message: string; number: number } | undefined {
  const number = Number(/[0-9]+$/.exec(place ?? '')?.[0]);
  const end = path.endsWith(']') ? path.lastIndexOf('.[') : path.lastIndexOf('.');
  return end <= 0 || !(number > 0) ? undefined : { message: path.slice(0, end), number };
}

/** Finds the counterexample of a finding of the number history.
 *  @param ever oldest first; the latest schema that shows the finding is used */
export function historyCounterexample(
  finding: Finding,
  proposed: Schema,
  ever: readonly Schema[],
): { readonly counterexample: Counterexample; readonly writer: Schema } | undefined {
  const field = historyField(finding);
  if (field === undefined || finding.severity === 'note') return undefined;
  const root: EventRoute = { outer: undefined, step: { kind: 'root', message: field.message } };
  const route: EventRoute = { outer: root, step: { kind: 'field', key: field.number } };
  for (const writer of ever.toReversed()) {
    const broken = smallest(route, proposed, writer, ({ outcome }) => outcome === 'FAIL');
    const best = broken ?? smallest(route, proposed, writer, ({ witness }) => witness.bytes.length > 0);
    if (best !== undefined) return { counterexample: toCounterexample(best), writer };
  }
  return undefined;
}
