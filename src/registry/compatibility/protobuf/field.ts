/** Compares two fields of one number: the effect on the values of the field.
 *
 *  Checks in this order: presence of a required field; wire form (message, group, scalar, packed);
 *  number of values (repeated, map); the single value (values.ts); absent against default.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding" and "Field Presence". */
import type { ProtoEnum, ProtoField, ProtoMessage, ProtoPlace } from '../../../formats/protobuf/tree.ts';
import { type FieldKind, type Severity, someOf } from '../finding.ts';
import { entryOf, type FieldPair, inward, isEntry, labelOf, type MessagePair, stepInto } from './trail.ts';
import { isZeroUnread, readingOf, wordOf, writesOnlyZero } from './values.ts';

export interface FieldVerdict {
  readonly severity: Severity;
  readonly rule: string;
  readonly message: string;
  readonly kind?: FieldKind;
  /** Place of the finding, if it is not the field itself. */
  readonly reader?: ProtoPlace;
  readonly writer?: ProtoPlace;
}

interface Walk {
  /** Counts steps. False: the comparison has ended. */
  spend(steps: number, pair: MessagePair): boolean;
  report(pair: FieldPair, reported: FieldVerdict): void;
  /** Queues a pair of messages that the values of one field hold. */
  enter(pair: MessagePair): void;
}

const isMap = (field: ProtoField): boolean => field.mapKey !== undefined;
const isMany = (field: ProtoField): boolean => field.repeated || isMap(field);
const holdsMessages = (field: ProtoField): boolean => field.message !== undefined || isMap(field);

/** True for maps of scalars whose types are equal. */
const isSameMap = (a: ProtoField, b: ProtoField): boolean =>
  isMap(a) && a.mapKey === b.mapKey && a.type === b.type && !isNamed(a) && !isNamed(b);
const isNamed = (field: ProtoField): boolean =>
  field.message !== undefined || field.enumeration !== undefined;

function kindOf({ type }: ProtoField): FieldKind {
  if (type === 'string' || type === 'bytes') return 'text';
  return type === 'message' ? 'other' : 'numeric';
}

export class FieldRules {
  private readonly walk: Walk;
  private readonly readEntries = new Map<ProtoField, ProtoMessage>();
  private readonly writtenEntries = new Map<ProtoField, ProtoMessage>();
  private readonly enums = new Map<ProtoEnum, Map<ProtoEnum, readonly FieldVerdict[]>>();

  constructor(walk: Walk) {
    this.walk = walk;
  }

  compare(pair: FieldPair): void {
    const { reader, writer, owner } = pair;
    if (reader.name !== writer.name && !isEntry(owner.reader) && !isEntry(owner.writer)) this.renamed(pair);
    this.required(pair);
    if (!this.arrives(pair)) return;
    this.several(pair);
    if (holdsMessages(writer)) this.messages(pair);
    else this.value(pair);
    this.presence(pair);
  }

  private renamed(pair: FieldPair): void {
    const { reader, writer } = pair;
    this.note(
      pair,
      'PROTO_FIELD_RENAMED',
      `number ${reader.number} is "${writer.name}" where it is written and "${reader.name}" where it is read; the number decides`,
    );
  }

  /** Finding of a map entry without a value: it is read with an empty message. */
  emptyValue(message: ProtoMessage): readonly FieldVerdict[] {
    const required = message.fields.find((field) => field.required);
    if (required !== undefined) {
      return [
        {
          severity: 'fail',
          rule: 'PROTO_REQUIRED_ADDED',
          message: `an entry without a value is read as one with an empty ${message.name}, which lacks its required field "${required.name}"`,
        },
      ];
    }
    return [
      {
        severity: 'lossy',
        rule: 'PROTO_PRESENCE_CHANGED',
        message: `an entry without a value is read as one with an empty ${message.name}`,
      },
    ];
  }

  private required(pair: FieldPair): void {
    const { reader, writer } = pair;
    if (!reader.required || writer.required) return;
    const why = isMany(writer) ? 'may be empty where it is written' : 'may be left out where it is written';
    this.fail(
      pair,
      'PROTO_REQUIRED_ADDED',
      `${labelled(reader)} is required where it is read and ${why}, so reading such an event ends with an error`,
    );
  }

  /** True if the reader recognizes the wire form of the values. Reports the finding otherwise. */
  private arrives(pair: FieldPair): boolean {
    const { reader, writer } = pair;
    if (reader.message?.unknown === true || writer.message?.unknown === true) {
      const { name } = (reader.message?.unknown === true ? reader : writer).message as ProtoMessage;
      this.walk.report(pair, {
        severity: 'unjudged',
        rule: 'PROTO_TYPE_UNKNOWN',
        message: `${name}, the type of ${labelled(reader)}, is unknown: the import that defines it is missing`,
      });
      return false;
    }
    if (holdsMessages(reader) !== holdsMessages(writer)) {
      const rule = isMap(reader) || isMap(writer) ? 'PROTO_MAP_CHANGED' : 'PROTO_TYPE_CHANGED';
      this.otherType(pair, rule, 'other', 'its values are lost or refused');
      return false;
    }
    if (holdsMessages(reader)) {
      if (reader.delimited === writer.delimited) return true;
      this.fail(
        pair,
        'PROTO_ENCODING_CHANGED',
        `${labelled(reader)} is written ${writer.delimited ? 'between group tags' : 'behind its length'} and read ${reader.delimited ? 'between group tags' : 'behind its length'}, so its value is lost without an error`,
      );
      return false;
    }
    const reading = readingOf(writer, reader);
    const isRun = writer.packed && !reader.repeated;
    if ((isRun || reading.kind === 'wrong') && writesOnlyZero(writer) && isZeroUnread(reader)) {
      this.lossy(
        pair,
        'PROTO_PRESENCE_CHANGED',
        `${labelled(reader)} is ${wordOf(writer)} where it is written and ${wordOf(reader)} where it is read: the reader does not find the value, but the writer can write only zero`,
      );
      return false;
    }
    if (reading.kind === 'wrong') {
      const becomes = reading.sameWire
        ? 'the same bytes mean another value'
        : 'the reader does not find its value, which is lost without an error';
      this.otherType(pair, 'PROTO_TYPE_CHANGED', 'scalar', becomes);
      return false;
    }
    if (!isRun) return true;
    this.walk.report(pair, {
      severity: 'fail',
      rule: 'PROTO_LABEL_CHANGED',
      message: `${labelled(reader)} is repeated and packed where it is written and single where it is read: a reader of one value skips a packed run, so all its values are lost without an error`,
      kind: kindOf(reader),
    });
    return false;
  }

  private otherType(pair: FieldPair, rule: string, kind: FieldKind, becomes: string): void {
    const { reader, writer } = pair;
    this.walk.report(pair, {
      severity: 'fail',
      rule,
      message: `${labelled(reader)} is ${wordOf(writer)} where it is written and ${wordOf(reader)} where it is read: ${becomes}`,
      kind,
    });
  }

  /** Reports readers that keep fewer values than were written. */
  private several(pair: FieldPair): void {
    const { reader, writer } = pair;
    if (!isMany(writer)) return;
    if (!isMany(reader)) {
      const rest = holdsMessages(reader) ? 'they are merged into one' : 'the last one wins';
      this.walk.report(pair, {
        severity: 'lossy',
        rule: 'PROTO_LAST_VALUE_WINS',
        message: `${labelled(reader)} is ${wordOf(writer)} where it is written and single where it is read: of several values ${rest}`,
        kind: kindOf(reader),
      });
    } else if (isMap(reader) && !isMap(writer)) {
      this.lossy(
        pair,
        'PROTO_MAP_KEYS_MERGED',
        `${labelled(reader)} is a list of entries where it is written and a map where it is read: of entries with one key the last one wins`,
      );
    }
  }

  private messages({ owner, reader, writer }: FieldPair): void {
    if (isSameMap(reader, writer)) return;
    const inMap = isEntry(owner.writer);
    let route = inMap ? owner.route : stepInto(owner.route, { kind: 'field', key: writer.number });
    if (inMap) route = stepInto(route, { kind: 'value' });
    else if (writer.repeated) route = stepInto(route, { kind: 'item' });
    const label = `${labelOf(owner.reader, reader)}${reader.repeated ? '[]' : ''}`;
    const read = isMap(reader) ? this.entry(owner.reader, reader, false) : reader.message;
    const written = isMap(writer) ? this.entry(owner.writer, writer, true) : writer.message;
    this.walk.enter(
      inward(owner, { reader: read as ProtoMessage, writer: written as ProtoMessage, label, route }),
    );
  }

  /** Caches one entry message for each field and side, because seen pairs are compared by identity.
   */
  private entry(owner: ProtoMessage, field: ProtoField, written: boolean): ProtoMessage {
    const entries = written ? this.writtenEntries : this.readEntries;
    const held = entries.get(field) ?? entryOf(owner, field, written);
    entries.set(field, held);
    return held;
  }

  private value(pair: FieldPair): void {
    const { reader, writer } = pair;
    const reading = readingOf(writer, reader);
    switch (reading.kind) {
      case 'cast':
        this.lossy(
          pair,
          'PROTO_INTEGER_CAST',
          `${labelled(reader)} is ${wordOf(writer)} where it is written and ${wordOf(reader)} where it is read: values are cast, so ${reading.example} becomes ${reading.result}`,
        );
        return;
      case 'text':
        this.fail(
          pair,
          'PROTO_BYTES_AS_STRING',
          `${labelled(reader)} is bytes where it is written and string where it is read: bytes that are no UTF-8 end with an error`,
        );
        return;
      case 'dropped':
        this.dropped(pair, reading.numbers);
        return;
      default:
        if (reader.enumeration === undefined || writer.enumeration === undefined) return;
        for (const reported of this.names(pair, reader.enumeration, writer.enumeration))
          this.walk.report(pair, reported);
    }
  }

  private dropped(pair: FieldPair, numbers: readonly number[] | undefined): void {
    const reader = pair.reader.enumeration as ProtoEnum;
    const written = pair.writer.enumeration;
    const what =
      numbers === undefined
        ? `any number may come from ${wordOf(pair.writer)}`
        : `it has no ${someOf(numbers.map((number) => numberName(number, written)))}`;
    const [first] = numbers ?? [];
    this.walk.report(pair, {
      severity: 'fail',
      rule: 'PROTO_ENUM_VALUE_DROPPED',
      message: `${labelled(pair.reader)}: the reader's ${reader.name} is a closed enum, which drops a number that it does not know as if the field had not been written, and ${what}`,
      ...(first === undefined || written === undefined
        ? {}
        : { reader: reader.at, writer: written.placeOf(first) }),
    });
  }

  /** Findings of enum numbers with another name or none. Computed once for each pair of enums. */
  private names(pair: FieldPair, reader: ProtoEnum, writer: ProtoEnum): readonly FieldVerdict[] {
    const others = this.enums.get(reader) ?? new Map<ProtoEnum, readonly FieldVerdict[]>();
    this.enums.set(reader, others);
    const held = others.get(writer);
    if (held !== undefined) return held;
    if (!this.walk.spend(writer.values.size, pair.owner)) return [];
    const missing: number[] = [];
    const renamed: number[] = [];
    for (const [number, name] of writer.values) {
      const other = reader.values.get(number);
      if (other === undefined) missing.push(number);
      else if (other !== name) renamed.push(number);
    }
    const reported: FieldVerdict[] = [];
    const report = (rule: string, numbers: readonly number[], message: string): void => {
      const [first] = numbers;
      if (first === undefined) return;
      const here = reader.values.has(first) ? reader.placeOf(first) : reader.at;
      reported.push({ severity: 'note', rule, message, reader: here, writer: writer.placeOf(first) });
    };
    report(
      'PROTO_ENUM_VALUE_MISSING',
      missing,
      `the reader's ${reader.name} has no name for ${someOf(missing.map((number) => numberName(number, writer)))}, and reads the bare number`,
    );
    report(
      'PROTO_ENUM_VALUE_RENAMED',
      renamed,
      `numbers of ${reader.name} have other names where they are read: ${someOf(renamed.map((number) => `${number} is ${writer.values.get(number)} and then ${reader.values.get(number)}`))}`,
    );
    others.set(writer, reported);
    return reported;
  }

  private presence(pair: FieldPair): void {
    const { reader, writer, owner } = pair;
    if (isEntry(owner.reader) && reader.message !== undefined) {
      if (!writer.required)
        for (const reported of this.emptyValue(reader.message)) this.walk.report(pair, reported);
      return;
    }
    if (isMany(reader) || isMany(writer)) return;
    if (reader.required || writer.required || reader.presence === writer.presence) return;
    this.lossy(
      pair,
      'PROTO_PRESENCE_CHANGED',
      writer.presence
        ? `${labelled(reader)} may be absent where it is written, and where it is read that is the same as its default`
        : `${labelled(reader)} is left out where it holds its default, and where it is read that means absent`,
    );
  }

  private fail(pair: FieldPair, rule: string, message: string): void {
    this.walk.report(pair, { severity: 'fail', rule, message });
  }

  private lossy(pair: FieldPair, rule: string, message: string): void {
    this.walk.report(pair, { severity: 'lossy', rule, message });
  }

  private note(pair: FieldPair, rule: string, message: string): void {
    this.walk.report(pair, { severity: 'note', rule, message });
  }
}

/** `2 (SHIPPED)` */
function numberName(number: number, enumeration: ProtoEnum | undefined): string {
  const name = enumeration?.values.get(number);
  return name === undefined ? String(number) : `${number} (${name})`;
}

/** `field "qty" = 2`, or the part of a map's entry. */
function labelled({ name, number }: ProtoField): string {
  if (name === '<key>') return "the map's key";
  return name === '<value>' ? "the map's value" : `field "${name}" = ${number}`;
}
