/** Witness events of a Protobuf schema: each class of values of each field occurs once, while the
 *  rest of the event is the smallest possible. Then pairs of fields are set together, because a
 *  reader may put them into one oneof.
 *
 *  Messages and fields take turns, so that a bounded number of events covers all of them. A
 *  recursive message is entered RECURSION_MAX times. A field without presence is not written at its
 *  default, as in real writers. */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { type Step, stepsOf } from '../../compatibility/finding.ts';
import { inTurns, mapped } from '../turns.ts';
import type { ProtoEvent, WitnessOptions } from '../witness.ts';
import { isZero } from './cast.ts';
import { mapKeyEdges, protoEdges } from './edges.ts';
import { LeastMessages } from './least.ts';

/** Most values of all events together, counted by the values that each event must have. */
const VALUES_MAX = 2_000_000;
/** Times that a message is entered inside itself. */
const RECURSION_MAX = 2;
/** Most messages inside messages that are varied, and most fields of a route; Protobuf readers stop
 *  at 100. */
const VARIED_DEPTH_MAX = 95;
/** Most fields of an event that has all of them, inner ones included. */
const WHOLE_VALUES_MAX = 5_000;
/** Most messages inside messages of such an event that have all their fields too. */
const WHOLE_DEPTH_MAX = 3;
/** Most pairs of fields of one message that are set together. */
const PAIRS_MAX = 1_000;
/** Limits of a random event: messages inside messages, and values. Beyond them it uses the smallest
 *  values. */
const RANDOM_DEPTH_MAX = 6;
const RANDOM_VALUES_MAX = 2_000;
const RANDOM_ITEMS_MAX = 3;

/** Path of messages that leads to a message. */
interface Way {
  readonly depth: number;
  readonly message: ProtoMessage;
  readonly outer: Way | undefined;
}

function timesEntered(message: ProtoMessage, way: Way | undefined): number {
  let times = 0;
  for (let one = way; one !== undefined; one = one.outer) if (one.message === message) times++;
  return times;
}

const isMap = (field: ProtoField): boolean => field.mapKey !== undefined;

/** True for a value that its writer omits. */
const isUnwritten = (field: ProtoField, value: ProtoValueDatum): boolean =>
  !field.presence &&
  !field.required &&
  (isZero(value) || value === '' || (value instanceof Uint8Array && value.length === 0));

/** Wraps a single value as the content of the field. */
function holding(field: ProtoField, value: ProtoValueDatum): ProtoFieldDatum {
  if (isMap(field)) return [[mapKeyEdges(field.mapKey as string)[0] as ProtoValueDatum, value]];
  return field.repeated ? [value] : value;
}

class ProtoWitnesses {
  readonly least: LeastMessages;
  private readonly alls = new Map<ProtoMessage, ProtoDatum>();

  constructor(file: ProtoFile) {
    this.least = new LeastMessages(file);
  }

  /** Yields each class of values of each field: the smallest event first, then events that differ
   *  from it. */
  *variants(message: ProtoMessage, outer: Way | undefined): Generator<ProtoDatum> {
    if (!this.least.has(message)) return;
    yield this.least.of(message);
    const depth = (outer?.depth ?? 0) + 1;
    if (depth > VARIED_DEPTH_MAX || timesEntered(message, outer) > RECURSION_MAX) return;
    const way: Way = { depth, message, outer };
    yield* inTurns([
      ...message.fields.map((field) =>
        mapped(this.values(field, way), (value) => this.least.with(message, field, value)),
      ),
      this.wholes(message),
      this.pairs(message),
    ]);
  }

  /** Yields the values of one field, except absence. */
  private *values(field: ProtoField, way: Way): Generator<ProtoFieldDatum> {
    if (!this.least.holds(field)) return;
    if (isMap(field)) yield* this.maps(field, way);
    else if (field.repeated) yield* this.lists(field, way);
    else if (field.message === undefined) yield* this.singles(field);
    else {
      // The smallest value of a required field is in the smallest event already.
      const inner = this.variants(field.message, way);
      if (field.required) inner.next();
      yield* inner;
    }
  }

  private *singles(field: ProtoField): Generator<ProtoValueDatum> {
    const [first, ...others] = protoEdges(field);
    for (const value of others) if (!isUnwritten(field, value)) yield value;
    if (first !== undefined && !field.required && !isUnwritten(field, first)) yield first;
  }

  /** Yields each class of one item. */
  private items(field: ProtoField, way: Way): Generator<ProtoValueDatum> | readonly ProtoValueDatum[] {
    return field.message === undefined ? protoEdges(field) : this.variants(field.message, way);
  }

  private *lists(field: ProtoField, way: Way): Generator<readonly ProtoValueDatum[]> {
    const [first, second = first] = this.items(field, way);
    if (first === undefined || second === undefined) return;
    yield [second];
    yield [first, second];
    yield [second, first];
    yield* this.sameKeys(field);
    for (const value of this.items(field, way)) if (value !== second) yield [value];
  }

  /** Yields lists that a reader may treat as map entries: one key, two values. */
  private *sameKeys({ message }: ProtoField): Generator<readonly ProtoValueDatum[]> {
    const [key, value] = [1, 2].map((number) => message?.fields.find((field) => field.number === number));
    if (message === undefined || key === undefined || value === undefined) return;
    if (excludeEachOther(key, value)) return;
    const [same, before, after] = [
      this.sample(key, 0, 0),
      this.sample(value, 0, 0),
      this.sample(value, 1, 0),
    ];
    if (same === undefined) return;
    const entry = (held: ProtoFieldDatum | undefined): ProtoDatum => {
      const made = this.least.with(message, key, same);
      return held === undefined ? made : changed(made, message, value, held);
    };
    yield [entry(undefined), entry(undefined)];
    if (before !== undefined) yield [entry(before), entry(after)];
  }

  private *maps(field: ProtoField, way: Way): Generator<ProtoFieldDatum> {
    const keys = mapKeyEdges(field.mapKey as string);
    const [first, second = first] = this.items(field, way);
    const [key, other] = keys;
    if (first === undefined || second === undefined || key === undefined || other === undefined) return;
    yield [[key, second]];
    yield [
      [key, first],
      [other, second],
    ];
    yield keys.map((one) => [one, second] as const);
    for (const one of keys.slice(1)) yield [[one, first]];
    for (const value of this.items(field, way)) if (value !== second) yield [[key, value]];
  }

  /** Yields events with two of a message's fields set, and no other optional field. */
  private *pairs(message: ProtoMessage): Generator<ProtoDatum> {
    const samples = message.fields.flatMap((field) => {
      const value = this.sample(field, 0, 0);
      return value === undefined ? [] : [{ field, value }];
    });
    let left = PAIRS_MAX;
    // Neighbors come first: they are the likeliest to be moved into one oneof.
    for (let apart = 1; apart < samples.length; apart++) {
      for (let i = 0; i + apart < samples.length; i++) {
        const [a, b] = [samples[i], samples[i + apart]] as [Sample, Sample];
        if (excludeEachOther(a.field, b.field)) continue;
        if (left-- <= 0) return;
        yield this.both(message, a, b);
      }
    }
  }

  private both(message: ProtoMessage, a: Sample, b: Sample): ProtoDatum {
    return new Map<number, ProtoFieldDatum>(this.least.of(message))
      .set(a.field.number, a.value)
      .set(b.field.number, b.value);
  }

  /** Yields events with this field and each other field set. */
  private *pairsOf(message: ProtoMessage, field: ProtoField): Generator<ProtoDatum> {
    const value = this.sample(field, 0, 0);
    if (value === undefined) return;
    let left = PAIRS_MAX;
    for (const other of message.fields) {
      if (other === field || excludeEachOther(field, other)) continue;
      const second = this.sample(other, 0, 0);
      if (second === undefined) continue;
      if (left-- <= 0) return;
      yield this.both(message, { field, value }, { field: other, value: second });
    }
  }

  /** Yields events with all fields set, one event for each member of a oneof. */
  private *wholes(message: ProtoMessage): Generator<ProtoDatum> {
    const sizes = new Map<string, number>();
    for (const { oneof } of message.fields)
      if (oneof !== undefined) sizes.set(oneof, (sizes.get(oneof) ?? 0) + 1);
    let turns = 2;
    for (const size of sizes.values()) turns = Math.max(turns, size);
    for (let turn = 0; turn < turns; turn++) {
      const whole = this.whole(message, turn, 0, { left: WHOLE_VALUES_MAX });
      // An event with one field more was yielded for that field already.
      if (whole.size > this.least.of(message).size + 1) yield whole;
    }
  }

  private whole(message: ProtoMessage, turn: number, depth: number, budget: Budget): ProtoDatum {
    const datum = new Map<number, ProtoFieldDatum>(this.least.of(message));
    const members = new Map<string, ProtoField[]>();
    for (const field of message.fields) {
      if (field.oneof === undefined || !this.least.holds(field)) continue;
      const held = members.get(field.oneof);
      if (held === undefined) members.set(field.oneof, [field]);
      else held.push(field);
    }
    for (const field of message.fields) {
      const inOneof = field.oneof === undefined ? undefined : members.get(field.oneof);
      if (inOneof !== undefined && inOneof[turn % inOneof.length] !== field) continue;
      if (budget.left <= 0) break;
      const value = this.sample(field, turn, depth, budget);
      if (value !== undefined) datum.set(field.number, value);
    }
    return datum;
  }

  /** Returns a value that is on the wire and not the default; different turns get different values
   *  if there are two. */
  private sample(
    field: ProtoField,
    turn: number,
    depth: number,
    budget: Budget = { left: 0 },
  ): ProtoFieldDatum | undefined {
    const { message } = field;
    if (!this.least.holds(field)) return undefined;
    if (message === undefined) {
      const bare = { ...field, presence: false, required: false };
      const values = protoEdges(field).filter((value) => !isUnwritten(bare, value));
      const [value, other] = [values[turn % values.length], values[(turn + 1) % values.length]];
      // This happens for an enum whose only value is zero.
      if (value === undefined || other === undefined) return this.defaultSample(field);
      budget.left--;
      return field.repeated ? [value, other] : holding(field, value);
    }
    budget.left -= this.least.valuesOf(message);
    const isWhole = depth < WHOLE_DEPTH_MAX && budget.left > 0;
    const inner = isWhole ? this.whole(message, turn, depth + 1, budget) : this.least.of(message);
    return holding(field, inner);
  }

  private defaultSample(field: ProtoField): ProtoFieldDatum | undefined {
    const [value] = protoEdges(field);
    if (value === undefined) return undefined;
    if (field.repeated || isMap(field)) return holding(field, value);
    return isUnwritten(field, value) ? undefined : value;
  }

  /** Follows the steps, and yields the events of `ends` for the message or field at their end.
   *  `rest` supplies the other fields on the way. */
  *along(
    message: ProtoMessage,
    steps: readonly Step[],
    rest: (message: ProtoMessage) => ProtoDatum,
    ends: Ends,
  ): Generator<ProtoDatum> {
    if (!this.least.has(message)) return;
    const [step, ...after] = steps;
    if (step === undefined) {
      yield* ends.message(message);
      return;
    }
    const field =
      step.kind === 'field' ? message.fields.find(({ number }) => number === step.key) : undefined;
    if (field === undefined) return;
    // Steps through lists and maps follow from the schema.
    const inner = after.filter(({ kind }) => kind === 'field');
    if (inner.length === 0) yield* ends.field(message, field);
    else if (field.message !== undefined)
      yield* mapped(this.along(field.message, inner, rest, ends), (value) =>
        changed(rest(message), message, field, holding(field, value)),
      );
  }

  /** Varies the field at the end of a route: absent, with each value, and with each other field. */
  *around(message: ProtoMessage, field: ProtoField): Generator<ProtoDatum> {
    yield this.least.of(message);
    yield* inTurns([
      mapped(this.valuesAlone(message, field), (value) => this.least.with(message, field, value)),
      this.pairsOf(message, field),
    ]);
  }

  /** Varies the same field while all other fields are set. */
  *amid(message: ProtoMessage, field: ProtoField): Generator<ProtoDatum> {
    const whole = this.all(message);
    if (!field.required) yield changed(whole, message, field, undefined);
    yield* mapped(this.valuesAlone(message, field), (value) => changed(whole, message, field, value));
  }

  private valuesAlone(message: ProtoMessage, field: ProtoField): Generator<ProtoFieldDatum> {
    return this.values(field, { depth: 1, message, outer: undefined });
  }

  all(message: ProtoMessage): ProtoDatum {
    const held = this.alls.get(message) ?? this.whole(message, 0, 0, { left: WHOLE_VALUES_MAX });
    this.alls.set(message, held);
    return held;
  }

  /** Returns a random mix of edge values. */
  mix(message: ProtoMessage, random: () => number): ProtoDatum {
    const budget = { left: RANDOM_VALUES_MAX };
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
    const mix = (message: ProtoMessage, depth: number): ProtoDatum => {
      const datum = new Map<number, ProtoFieldDatum>(this.least.of(message));
      budget.left -= this.least.valuesOf(message);
      if (depth > RANDOM_DEPTH_MAX) return datum;
      const taken = new Set<string>();
      const value = (field: ProtoField): ProtoValueDatum =>
        field.message === undefined ? pick(protoEdges(field)) : mix(field.message, depth + 1);
      for (const field of message.fields) {
        if (budget.left-- < 0 || !this.least.holds(field) || (!field.required && random() < 0.5)) continue;
        if (field.oneof !== undefined && taken.has(field.oneof)) continue;
        if (field.oneof !== undefined) taken.add(field.oneof);
        if (isMap(field)) {
          const keys = mapKeyEdges(field.mapKey as string).filter(() => random() < 0.4);
          datum.set(
            field.number,
            keys.map((key) => [key, value(field)] as const),
          );
        } else if (field.repeated) {
          const length = Math.floor(random() * (RANDOM_ITEMS_MAX + 1));
          datum.set(
            field.number,
            Array.from({ length }, () => value(field)),
          );
        } else {
          const one = value(field);
          if (field.message !== undefined || !isUnwritten(field, one)) datum.set(field.number, one);
        }
      }
      return datum;
    };
    return mix(message, 0);
  }
}

/** Copies a message with another value of one field, and without the fields that exclude it. */
function changed(
  datum: ProtoDatum,
  message: ProtoMessage,
  field: ProtoField,
  value: ProtoFieldDatum | undefined,
): ProtoDatum {
  const made = new Map(datum);
  for (const other of message.fields) if (excludeEachOther(field, other)) made.delete(other.number);
  if (value === undefined) made.delete(field.number);
  else made.set(field.number, value);
  return made;
}

/** Generators of the events at the end of a route. */
interface Ends {
  readonly message: (message: ProtoMessage) => Generator<ProtoDatum>;
  readonly field: (message: ProtoMessage, field: ProtoField) => Generator<ProtoDatum>;
}

interface Budget {
  left: number;
}

interface Sample {
  readonly field: ProtoField;
  readonly value: ProtoFieldDatum;
}

const excludeEachOther = (a: ProtoField, b: ProtoField): boolean =>
  a.oneof !== undefined && a.oneof === b.oneof;

const known = new WeakMap<ProtoFile, ProtoWitnesses>();

function witnessesOf(file: ProtoFile): ProtoWitnesses {
  const held = known.get(file) ?? new ProtoWitnesses(file);
  known.set(file, held);
  return held;
}

/** See FormatProof.witnesses. Every message of the file itself is a root. */
export function* protoWitnesses(
  writer: ProtoFile,
  { route, limit, random, onlyRandom = false }: WitnessOptions,
): Generator<ProtoEvent> {
  const witnesses = witnessesOf(writer);
  const [root, ...steps] = stepsOf(route);
  if (steps.length > VARIED_DEPTH_MAX) return;
  const roots = writer.messages.filter(
    (message) =>
      witnesses.least.has(message) &&
      (root === undefined || (root.kind === 'root' && root.message === message.name)),
  );
  let values = VALUES_MAX;
  const events = (rest: (message: ProtoMessage) => ProtoDatum, ends: Ends): Generator<ProtoEvent> =>
    inTurns(
      roots.map((message) =>
        mapped(witnesses.along(message, steps, rest, ends), (datum) => {
          values -= witnesses.least.valuesOf(message) + datum.size;
          return { path: message.path, datum };
        }),
      ),
    );
  const least = (message: ProtoMessage): ProtoDatum => witnesses.least.of(message);
  const whole = (message: ProtoMessage): ProtoDatum => witnesses.all(message);
  const passes = [
    events(least, {
      message: (message) => witnesses.variants(message, undefined),
      field: (message, field) => witnesses.around(message, field),
    }),
  ];
  // A reader may require fields that the writer may omit. Then an event that is small around the
  // end of the route only shows that failure.
  if (steps.length > 0) {
    passes.push(
      events(whole, {
        message: (message) => witnesses.variants(message, undefined),
        field: (message, field) => witnesses.amid(message, field),
      }),
    );
  }
  if (random !== undefined) {
    const mixes = function* (message: ProtoMessage): Generator<ProtoDatum> {
      for (;;) yield witnesses.mix(message, random);
    };
    passes.push(events(least, { message: mixes, field: mixes }));
  }
  let left = limit;
  for (const pass of onlyRandom ? passes.slice(-1) : passes) {
    for (const event of pass) {
      if (left-- <= 0 || (values < 0 && !onlyRandom)) return;
      yield event;
    }
  }
}
