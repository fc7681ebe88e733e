/** Projection of a Protobuf event: the value that the specification promises to a reader's program.
 *  Its form is the plain one: field names, bigint, names of enums, null for an absent field with
 *  presence.
 *
 *  Computed from the written values and the two schemas, never from bytes. It shares no code with
 *  the checkers or the decoder. Values are first gathered by the reader's fields, because
 *  separately written values may meet there: items of a list that is read as one message, or two
 *  members of one oneof.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding" and "Application Note: Field
 *  Presence". */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { Projection } from '../trial.ts';
import { cast, implicitDefault, isZero, LENGTH_DELIMITED, wireOfType } from './cast.ts';

/** Most messages inside messages of an event; Protobuf readers stop at 100. */
const DEPTH_MAX = 100;

type Pairs = ReadonlyArray<readonly [ProtoValueDatum, ProtoValueDatum]>;

/** Plain value, or a message that later values may be merged into. */
type Part = { readonly plain: unknown } | Gathered;

/** Values gathered for a message of the reader. */
class Gathered {
  readonly message: ProtoMessage;
  readonly single = new Map<ProtoField, Part>();
  readonly lists = new Map<ProtoField, Part[]>();
  readonly maps = new Map<ProtoField, Map<string, Part>>();
  /** For each oneof, the field with the latest value, and the written message that it comes from.
   */
  readonly chosen = new Map<string, readonly [ProtoField, ProtoDatum]>();
  /** True: the last value was a number that its closed enum does not have. */
  isDropped = false;

  constructor(message: ProtoMessage) {
    this.message = message;
  }
}

/** Written field with the reader's fields of the same number and of the same name. */
interface FieldMatch {
  readonly written: ProtoField;
  /** Reader's field with the same number. */
  readonly reader: ProtoField | undefined;
  /** Reader's field with the same name and another number. */
  readonly renumbered: ProtoField | undefined;
}

const entries = new WeakMap<ProtoField, ProtoMessage>();

/** Map entry as the message that it is on the wire. The names of its fields cannot clash with other
 *  names. */
function entryOf(field: ProtoField): ProtoMessage {
  const held = entries.get(field);
  if (held !== undefined) return held;
  const { at, message, enumeration } = field;
  const plain = { repeated: false, required: false, oneof: undefined, packed: false, delimited: false, at };
  const key = { message: undefined, enumeration: undefined, mapKey: undefined, presence: false };
  const entry: ProtoMessage = {
    name: `an entry of ${field.name}`,
    path: [],
    fields: [
      { ...plain, ...key, name: '<key>', jsonName: '<key>', number: 1, type: field.mapKey as string },
      {
        ...plain,
        name: '<value>',
        jsonName: '<value>',
        number: 2,
        type: field.type,
        message,
        enumeration,
        mapKey: undefined,
        presence: message !== undefined,
      },
    ],
    reserved: { numbers: [], names: [] },
    unknown: false,
    at,
  };
  entries.set(field, entry);
  return entry;
}

const isMap = (field: ProtoField): boolean => field.mapKey !== undefined;
const isSingle = (field: ProtoField): boolean => !field.repeated && !isMap(field);
const holdsMessages = (field: ProtoField): boolean => field.message !== undefined || isMap(field);
const wireOf = (field: ProtoField): string =>
  isMap(field) ? LENGTH_DELIMITED : field.delimited ? 'a group' : wireOfType(field.type);

/** True if a reader of the field also accepts a packed run. */
const mayBePacked = (field: ProtoField): boolean =>
  field.repeated && !holdsMessages(field) && wireOf(field) !== LENGTH_DELIMITED;

/** Returns the values of a field as they are on the wire, one by one. */
function valuesOf(field: ProtoField, written: ProtoFieldDatum | undefined): readonly ProtoValueDatum[] {
  if (written === undefined) return [];
  if (isMap(field)) {
    return (written as Pairs).map(
      ([key, value]) =>
        new Map([
          [1, key],
          [2, value],
        ]),
    );
  }
  return field.repeated ? (written as readonly ProtoValueDatum[]) : [written as ProtoValueDatum];
}

function wordOf(field: ProtoField): string {
  if (isMap(field)) return `map<${field.mapKey}, ${typeWord(field)}>`;
  return field.repeated ? `repeated ${typeWord(field)}` : typeWord(field);
}

const typeWord = ({ type, message, enumeration, delimited }: ProtoField): string =>
  message !== undefined
    ? `${delimited ? 'group' : 'message'} ${message.name}`
    : enumeration !== undefined
      ? `enum ${enumeration.name}`
      : type;

/** Renders a value for a message. */
function shown(value: ProtoValueDatum): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40));
  if (value instanceof Uint8Array) return `the bytes ${Buffer.from(value.subarray(0, 20)).toString('hex')}`;
  return String(value);
}

/** @param writer message of the writer's file that wrote the event */
export function projectProto(datum: ProtoDatum, writer: ProtoMessage, reader: ProtoFile): Projection {
  return protoProjector(reader)(datum, writer);
}

/** Compiles a projection. Caches the matching fields of each pair of message types. */
export function protoProjector(reader: ProtoFile): (datum: ProtoDatum, writer: ProtoMessage) => Projection {
  const matches = new Map<ProtoMessage, Map<ProtoMessage, readonly FieldMatch[]>>();
  return (datum, writer) => {
    const message = reader.byName.get(writer.name);
    if (message === undefined) {
      return { kind: 'none', why: `the reader's schema has no message ${writer.name}`, answer: 'error' };
    }
    return new Reading(matches).read(datum, writer, message);
  };
}

class Reading {
  private readonly matches: Map<ProtoMessage, Map<ProtoMessage, readonly FieldMatch[]>>;
  private readonly fieldPath: string[] = [];
  private why: string | undefined;
  /** Expected behavior of a decoder for an event without a promised value; `open`: the rules do not
   *  define it. */
  private answer: 'left' | 'error' | 'open' = 'left';
  private lossless = true;

  constructor(matches: Map<ProtoMessage, Map<ProtoMessage, readonly FieldMatch[]>>) {
    this.matches = matches;
  }

  read(datum: ProtoDatum, writer: ProtoMessage, message: ProtoMessage): Projection {
    const gathered = new Gathered(message);
    this.gather(gathered, datum, writer);
    const value = this.finish(gathered);
    const { why, answer } = this;
    if (why === undefined) return { kind: 'value', value, lossless: this.lossless };
    if (answer === 'open') return { kind: 'none', why };
    return { kind: 'none', why, answer: answer === 'error' ? answer : { left: value } };
  }

  /** Keeps the first reason. `left`: the value is lost, and the rest is read normally. `open`: the
   *  bytes have another meaning, so the rest is undefined. */
  private refuse(answer: 'left' | 'error' | 'open', why: string): void {
    this.why ??= this.fieldPath.length === 0 ? why : `${this.fieldPath.join('.')}: ${why}`;
    if (this.answer === 'left' || answer === 'open') this.answer = answer;
  }

  private matchesOf(writer: ProtoMessage, reader: ProtoMessage): readonly FieldMatch[] {
    const readers = this.matches.get(writer) ?? new Map<ProtoMessage, readonly FieldMatch[]>();
    this.matches.set(writer, readers);
    const held = readers.get(reader);
    if (held !== undefined) return held;
    const numbers = new Map(reader.fields.map((field) => [field.number, field]));
    const names = new Map(reader.fields.map((field) => [field.name, field]));
    const made = writer.fields.map((written) => {
      const named = names.get(written.name);
      return {
        written,
        reader: numbers.get(written.number),
        renumbered: named?.number === written.number ? undefined : named,
      };
    });
    readers.set(reader, made);
    return made;
  }

  /** Gathers one written message. Earlier values for the same message of the reader stay unless
   *  they are replaced. */
  private gather(into: Gathered, datum: ProtoDatum, writer: ProtoMessage): void {
    if (this.answer === 'open') return;
    if (this.fieldPath.length > DEPTH_MAX) {
      this.refuse('open', `messages are nested more than ${DEPTH_MAX} deep`);
      return;
    }
    for (const { written, reader, renumbered } of this.matchesOf(writer, into.message)) {
      const values = valuesOf(written, datum.get(written.number));
      this.fieldPath.push(written.name);
      if (values.length > 0 && renumbered !== undefined) {
        const becomes = reader === undefined ? 'vanishes' : `is read as "${reader.name}"`;
        this.refuse(
          'left',
          `it has number ${written.number} where it is written and ${renumbered.number} where it is read, so it ${becomes}`,
        );
      }
      if (reader !== undefined) {
        if (values.length === 0) this.absent(written, reader);
        else this.gatherField(into, written, reader, values, datum);
      }
      this.fieldPath.pop();
    }
  }

  /** Handles a field that is not on the wire. This means "absent", "the default" or "an empty
   *  list", depending on the field. */
  private absent(written: ProtoField, reader: ProtoField): void {
    if (!isSingle(reader) || reader.message !== undefined || written.message !== undefined) return;
    if (!isSingle(written)) this.lossless &&= reader.presence;
    else if (written.presence !== reader.presence) this.lossless = false;
  }

  /** Gathers the values of a field in their order. */
  private gatherField(
    into: Gathered,
    written: ProtoField,
    reader: ProtoField,
    values: readonly ProtoValueDatum[],
    datum: ProtoDatum,
  ): void {
    const asMessage = holdsMessages(written);
    if (asMessage !== holdsMessages(reader) || wireOf(written) !== wireOf(reader)) {
      this.other(written, reader, values);
      return;
    }
    if (written.packed && !reader.repeated) {
      if (!this.vanishesUnseen(reader, values))
        this.refuse('left', 'a run of packed values is read as one value');
      return;
    }
    for (const value of values) {
      if (asMessage) this.gatherMessage(into, written, reader, value as ProtoDatum, datum);
      else this.gatherValue(into, written, reader, value, datum);
    }
  }

  /** Handles a value of another wire form: the reader skips it. */
  private other(written: ProtoField, reader: ProtoField, values: readonly ProtoValueDatum[]): void {
    if (!this.vanishesUnseen(reader, values)) {
      const wire = written.packed ? LENGTH_DELIMITED : wireOf(written);
      const isReadable = wire === wireOf(reader) || (wire === LENGTH_DELIMITED && mayBePacked(reader));
      this.refuse(
        isReadable ? 'open' : 'left',
        `${wordOf(written)} is not what a reader of ${wordOf(reader)} looks for`,
      );
    }
  }

  /** True if the skipped value equals the reader's default, so the loss has no effect. */
  private vanishesUnseen(reader: ProtoField, values: readonly ProtoValueDatum[]): boolean {
    const isNumber = reader.message === undefined && reader.type !== 'string' && reader.type !== 'bytes';
    if (!isSingle(reader) || reader.presence || reader.required || !isNumber) return false;
    const last = values.at(-1) as ProtoValueDatum;
    this.lossless = false;
    return isZero(last);
  }

  private gatherValue(
    into: Gathered,
    written: ProtoField,
    reader: ProtoField,
    value: ProtoValueDatum,
    datum: ProtoDatum,
  ): void {
    const read = cast(written, reader, value);
    if (read === undefined) {
      const isFamily =
        reader.enumeration !== undefined && written.type !== 'sint32' && written.type !== 'sint64';
      const answer = reader.type === 'string' ? 'error' : isFamily ? 'left' : 'open';
      this.refuse(answer, `${shown(value)} as ${wordOf(written)} is no value of ${wordOf(reader)}`);
      // An unknown number of a closed enum drops the whole map entry.
      into.isDropped = true;
      return;
    }
    into.isDropped = false;
    if (!read.same) this.lossless = false;
    this.put(into, reader, { plain: read.value }, datum);
  }

  private gatherMessage(
    into: Gathered,
    written: ProtoField,
    reader: ProtoField,
    value: ProtoDatum,
    datum: ProtoDatum,
  ): void {
    const writer = isMap(written) ? entryOf(written) : (written.message as ProtoMessage);
    if (isMap(reader)) {
      const entry = new Gathered(entryOf(reader));
      this.gather(entry, value, writer);
      if (!entry.isDropped) this.putEntry(into, reader, entry);
      return;
    }
    const message = reader.message as ProtoMessage;
    if (writer.unknown || message.unknown) {
      this.refuse('open', `${writer.unknown ? writer.name : message.name} is unknown`);
      return;
    }
    const held = isSingle(reader) ? into.single.get(reader) : undefined;
    const gathered = held instanceof Gathered ? held : new Gathered(message);
    this.gather(gathered, value, writer);
    this.put(into, reader, gathered, datum);
  }

  private put(into: Gathered, reader: ProtoField, part: Part, datum: ProtoDatum): void {
    if (reader.repeated) {
      const list = into.lists.get(reader);
      if (list === undefined) into.lists.set(reader, [part]);
      else list.push(part);
      return;
    }
    this.choose(into, reader, datum);
    // Only the last value stays, or several messages are merged.
    if (into.single.has(reader)) this.lossless = false;
    into.single.set(reader, part);
  }

  private putEntry(into: Gathered, reader: ProtoField, entry: Gathered): void {
    const [key, value] = entry.message.fields as [ProtoField, ProtoField];
    const heldKey = entry.single.get(key) as { readonly plain: unknown } | undefined;
    const name = String(heldKey === undefined ? implicitDefault(key) : heldKey.plain);
    let part = entry.single.get(value);
    if (part === undefined && value.message !== undefined) {
      part = new Gathered(value.message);
      this.lossless = false;
    }
    const map = into.maps.get(reader) ?? new Map<string, Part>();
    into.maps.set(reader, map);
    if (map.has(name)) this.lossless = false;
    map.set(name, part ?? { plain: implicitDefault(value) });
  }

  /** A oneof holds one field. If one written message has two members, one is lost, so there is no
   *  promised value. If a merge joins them, the last one stays, as merging specifies. */
  private choose(into: Gathered, reader: ProtoField, datum: ProtoDatum): void {
    if (reader.oneof === undefined) return;
    const held = into.chosen.get(reader.oneof);
    into.chosen.set(reader.oneof, [reader, datum]);
    if (held === undefined || held[0] === reader) return;
    const [other, from] = held;
    if (from === datum) {
      this.refuse('left', `it excludes "${other.name}" where it is read, and both are written`);
    }
    into.single.delete(other);
    this.lossless = false;
  }

  private finish(gathered: Gathered): unknown {
    if (this.answer === 'open') return undefined;
    const out = Object.create(null) as Record<string, unknown>;
    for (const field of gathered.message.fields) out[field.name] = this.finishField(gathered, field);
    return out;
  }

  private finishField(gathered: Gathered, field: ProtoField): unknown {
    if (isMap(field)) {
      const out = Object.create(null) as Record<string, unknown>;
      for (const [key, part] of gathered.maps.get(field) ?? []) out[key] = this.plain(part);
      return out;
    }
    if (field.repeated) return (gathered.lists.get(field) ?? []).map((part) => this.plain(part));
    const part = gathered.single.get(field);
    if (part !== undefined) return this.plain(part);
    if (field.required)
      this.refuse('error', `${gathered.message.name}.${field.name} is required and not written`);
    return field.presence || field.required ? null : implicitDefault(field);
  }

  private plain(part: Part): unknown {
    return part instanceof Gathered ? this.finish(part) : part.plain;
  }
}
