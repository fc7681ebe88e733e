/** What Protobuf's specification promises of an event that one schema writes and another reads, in the form that the
 *  consumer's program sees: field names, bigint, names of enums, null for what is absent and has presence.
 *
 *  Made from the written values and the two schemas, never from bytes; the checkers and the decoder are not asked. The
 *  value is gathered by the reader's fields first, because what is written apart may come together there: the items of
 *  a list that is read as one message, two members of one oneof.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding" and "Application Note: Field Presence".
 */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { Projection } from '../trial.ts';
import { cast, implicitDefault, isZero, LENGTH_DELIMITED, wireOfType } from './cast.ts';

/** Messages inside messages of an event; readers of Protobuf stop at 100. */
const DEPTH_MAX = 100;

type Pairs = ReadonlyArray<readonly [ProtoValueDatum, ProtoValueDatum]>;

/** A value as the program sees it, or a message that more may come to. */
type Part = { readonly plain: unknown } | Gathered;

/** What has come of a message. */
class Gathered {
  readonly message: ProtoMessage;
  readonly single = new Map<ProtoField, Part>();
  readonly lists = new Map<ProtoField, Part[]>();
  readonly maps = new Map<ProtoField, Map<string, Part>>();
  /** Of each oneof the field that has come, and with which written message. */
  readonly chosen = new Map<string, readonly [ProtoField, ProtoDatum]>();
  /** The last value that came is one that its closed enum does not have. */
  isDropped = false;

  constructor(message: ProtoMessage) {
    this.message = message;
  }
}

/** How the fields of one message type become those of another. */
interface Meeting {
  readonly written: ProtoField;
  /** With the same number. */
  readonly reader: ProtoField | undefined;
  /** With its name, under another number. */
  readonly renumbered: ProtoField | undefined;
}

const entries = new WeakMap<ProtoField, ProtoMessage>();

/** The entry of a map, as the message that it is on the wire. Its fields have names that no other field can have. */
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
      { ...plain, ...key, name: '<key>', number: 1, type: field.mapKey as string },
      {
        ...plain,
        name: '<value>',
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

/** A list of numbers is looked for as a run as well. */
const mayBePacked = (field: ProtoField): boolean =>
  field.repeated && !holdsMessages(field) && wireOf(field) !== LENGTH_DELIMITED;

/** What is on the wire for a field, each value by itself. */
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

/** For a sentence, not for a machine. */
function shown(value: ProtoValueDatum): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40));
  if (value instanceof Uint8Array) return `the bytes ${Buffer.from(value.subarray(0, 20)).toString('hex')}`;
  return String(value);
}

/** @param writer a message of the writer's file, which wrote the event */
export function projectProto(datum: ProtoDatum, writer: ProtoMessage, reader: ProtoFile): Projection {
  return protoProjector(reader)(datum, writer);
}

/** Keeps how the types of the two schemas meet. */
export function protoProjector(reader: ProtoFile): (datum: ProtoDatum, writer: ProtoMessage) => Projection {
  const meetings = new Map<ProtoMessage, Map<ProtoMessage, readonly Meeting[]>>();
  return (datum, writer) => {
    const message = reader.byName.get(writer.name);
    if (message === undefined) {
      return { kind: 'none', why: `the reader's schema has no message ${writer.name}`, answer: 'error' };
    }
    return new Reading(meetings).read(datum, writer, message);
  };
}

class Reading {
  private readonly meetings: Map<ProtoMessage, Map<ProtoMessage, readonly Meeting[]>>;
  private readonly way: string[] = [];
  private why: string | undefined;
  /** What a decoder must make of an event that has no reading; `open`: the rules do not say. */
  private answer: 'left' | 'error' | 'open' = 'left';
  private lossless = true;

  constructor(meetings: Map<ProtoMessage, Map<ProtoMessage, readonly Meeting[]>>) {
    this.meetings = meetings;
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

  /** Keeps the first reason. `left`: the value vanishes, and the rest is read as ever. `open`: its bytes mean something
   *  else, so that nothing is said of what follows. */
  private refuse(answer: 'left' | 'error' | 'open', why: string): void {
    this.why ??= this.way.length === 0 ? why : `${this.way.join('.')}: ${why}`;
    if (this.answer === 'left' || answer === 'open') this.answer = answer;
  }

  private meetingsOf(writer: ProtoMessage, reader: ProtoMessage): readonly Meeting[] {
    const readers = this.meetings.get(writer) ?? new Map<ProtoMessage, readonly Meeting[]>();
    this.meetings.set(writer, readers);
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

  /** One written message; what came before it for the same one of the reader's stays where nothing replaces it. */
  private gather(into: Gathered, datum: ProtoDatum, writer: ProtoMessage): void {
    if (this.answer === 'open') return;
    if (this.way.length > DEPTH_MAX) {
      this.refuse('open', `messages stand in one another more than ${DEPTH_MAX} deep`);
      return;
    }
    for (const { written, reader, renumbered } of this.meetingsOf(writer, into.message)) {
      const values = valuesOf(written, datum.get(written.number));
      this.way.push(written.name);
      if (values.length > 0 && renumbered !== undefined) {
        const becomes = reader === undefined ? 'vanishes' : `is taken for "${reader.name}"`;
        this.refuse(
          'left',
          `it has number ${written.number} where it is written and ${renumbered.number} where it is read, so it ${becomes}`,
        );
      }
      if (reader !== undefined) {
        if (values.length === 0) this.absent(written, reader);
        else this.take(into, written, reader, values, datum);
      }
      this.way.pop();
    }
  }

  /** Nothing is on the wire. That may say "absent", "the default" or "an empty list". */
  private absent(written: ProtoField, reader: ProtoField): void {
    if (!isSingle(reader) || reader.message !== undefined || written.message !== undefined) return;
    if (!isSingle(written)) this.lossless &&= reader.presence;
    else if (written.presence !== reader.presence) this.lossless = false;
  }

  /** Values that are on the wire, in their order. */
  private take(
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
      if (asMessage) this.takeMessage(into, written, reader, value as ProtoDatum, datum);
      else this.takeValue(into, written, reader, value, datum);
    }
  }

  /** Another kind of value on the wire: the reader passes over it. */
  private other(written: ProtoField, reader: ProtoField, values: readonly ProtoValueDatum[]): void {
    if (!this.vanishesUnseen(reader, values)) {
      const wire = written.packed ? LENGTH_DELIMITED : wireOf(written);
      const isTaken = wire === wireOf(reader) || (wire === LENGTH_DELIMITED && mayBePacked(reader));
      this.refuse(
        isTaken ? 'open' : 'left',
        `${wordOf(written)} is not what a reader of ${wordOf(reader)} looks for`,
      );
    }
  }

  /** The reader's default takes the place of the last value, and is the same. */
  private vanishesUnseen(reader: ProtoField, values: readonly ProtoValueDatum[]): boolean {
    const isNumber = reader.message === undefined && reader.type !== 'string' && reader.type !== 'bytes';
    if (!isSingle(reader) || reader.presence || reader.required || !isNumber) return false;
    const last = values.at(-1) as ProtoValueDatum;
    this.lossless = false;
    return isZero(last);
  }

  private takeValue(
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
      // A closed enum's unknown number takes the entry of a map along.
      into.isDropped = true;
      return;
    }
    into.isDropped = false;
    if (!read.same) this.lossless = false;
    this.put(into, reader, { plain: read.value }, datum);
  }

  private takeMessage(
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
      this.refuse('open', `nothing is known of ${writer.unknown ? writer.name : message.name}`);
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
    // The last of several stays, or several messages become one.
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

  /** A oneof holds one field. Of two that were written together one would vanish; of two that a merge brings together
   *  the last one stays, as merging says. */
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
