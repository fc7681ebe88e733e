/** The event that shows what a finding says: the smallest one that really breaks, or is really changed, when the
 *  consumer's decoder reads it. Nothing is shown that was not run. */
import type { Finding, Route } from '../compatibility/finding.ts';
import type { Schema } from '../schemas/schema.ts';
import { trialsOf } from './live.ts';
import { plainJson } from './same.ts';
import type { Outcome, Trial } from './trial.ts';

export interface Counterexample {
  readonly outcome: Exclude<Outcome, 'OK'>;
  /** The event, cut to EVENT_CHARS_MAX. */
  readonly json: string;
  /** Its payload without the frame, cut to HEX_BYTES_MAX. */
  readonly hex: string;
  readonly bytes: number;
  /** The byte where decoding breaks; undefined where it does not. */
  readonly at: number | undefined;
  /** Why it is refused, or what came back as JSON. */
  readonly got: string;
  /** What a reader is promised as JSON, or why nothing is. */
  readonly promised: string;
}

/** Events tried for one finding. */
const EVENTS_MAX = 300;
const EVENT_CHARS_MAX = 2_000;
const VALUE_CHARS_MAX = 400;
const HEX_BYTES_MAX = 512;

const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text);

function shown({ outcome, witness, projection, read }: Trial): Counterexample {
  const { bytes, json } = witness;
  const hex = bytes.toString('hex', 0, HEX_BYTES_MAX);
  return {
    outcome: outcome === 'OK' ? 'FAIL' : outcome,
    json: cut(json, EVENT_CHARS_MAX),
    hex: bytes.length > HEX_BYTES_MAX ? `${hex}…` : hex,
    bytes: bytes.length,
    at: 'error' in read ? read.at : undefined,
    got: cut('error' in read ? read.error.message : plainJson(read.value), VALUE_CHARS_MAX),
    promised: cut(projection.kind === 'none' ? projection.why : plainJson(projection.value), VALUE_CHARS_MAX),
  };
}

/** Where a finding about a number of the past leads. */
function routeOf({ route, place }: Finding): Route | undefined {
  if (route !== undefined || place === undefined) return route;
  const [, message, number] = /^#\/(.+)\/([0-9]+)$/.exec(place) ?? [];
  if (message === undefined) return undefined;
  const root: Route = { outer: undefined, step: { kind: 'root', message } };
  return { outer: root, step: { kind: 'field', key: Number(number) } };
}

/** Undefined: no event shows it. */
export function counterexampleOf(
  finding: Finding,
  reader: Schema,
  writer: Schema,
): Counterexample | undefined {
  const wanted = finding.severity === 'fail' ? 'FAIL' : finding.severity === 'lossy' ? 'LOSSY' : undefined;
  if (wanted === undefined) return undefined;
  const route = routeOf(finding);
  const options = route === undefined ? { limit: EVENTS_MAX } : { limit: EVENTS_MAX, route };
  let best: Trial | undefined;
  for (const trial of trialsOf(reader, writer, options)) {
    if (trial.outcome !== wanted) continue;
    if (best === undefined || trial.witness.bytes.length < best.witness.bytes.length) best = trial;
  }
  return best === undefined ? undefined : shown(best);
}
