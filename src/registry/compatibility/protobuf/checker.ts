/** Can this reader read what that writer wrote? The rules of the Protobuf wire: a number decides, not a name.
 *
 *  A verdict is about every event of every message of the writer's file. FAIL: an error, a wrong value, or a value that
 *  vanishes though its field stands in both. LOSSY: a loss that the specification allows. What no finite event can hold
 *  is never written, so nothing is said about it. Only a type that is not known stays unjudged.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding", "Field Presence" and "Enum Behavior".
 */
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { type Finding, Findings, type Severity, type StepBudget } from '../finding.ts';
import { FieldRules, type Said } from './field.ts';
import { neverWritten } from './inhabited.ts';
import {
  type FieldPair,
  fieldPlace,
  isEntry,
  labelOf,
  type MessagePair,
  pathOf,
  placeOf,
  stepInto,
} from './trail.ts';

export function checkProto(reader: ProtoFile, writer: ProtoFile, budget?: StepBudget): readonly Finding[] {
  return new Walk(reader, writer, budget).run();
}

class Walk {
  private readonly findings: Findings;
  private readonly file: ProtoFile;
  private readonly from: ProtoFile;
  private readonly never: ReadonlySet<ProtoMessage>;
  private readonly seen = new Map<ProtoMessage, Set<ProtoMessage>>();
  /** Pairs that are still to be compared, the next one last: a chain of messages may be longer than the stack is deep. */
  private readonly open: MessagePair[] = [];
  /** Found inside the pair under way, in the order of its fields. */
  private readonly inner: MessagePair[] = [];
  private readonly fields = new FieldRules({
    spend: (steps, pair) => this.findings.spend(steps, () => pathOf(pair)),
    say: (pair, said) => this.sayField(pair, said),
    enter: (pair) => {
      if (this.meet(pair)) this.inner.push(pair);
    },
  });

  constructor(reader: ProtoFile, writer: ProtoFile, budget: StepBudget | undefined) {
    this.findings = new Findings(budget);
    this.file = reader;
    this.from = writer;
    this.never = neverWritten(writer);
  }

  run(): readonly Finding[] {
    for (const message of this.from.messages) {
      if (this.never.has(message)) continue;
      const match = this.file.byName.get(message.name);
      const route = { outer: undefined, step: { kind: 'root', message: message.name } } as const;
      if (match === undefined) this.removed(message, route);
      else
        this.inner.push({
          reader: match,
          writer: message,
          outer: undefined,
          depth: 0,
          head: undefined,
          label: message.name,
          route,
        });
    }
    this.takeInner();
    for (let pair = this.open.pop(); pair !== undefined; pair = this.open.pop()) {
      // A message is told where another one holds it, if one does: as an event of its own it is met last.
      if (pair.outer === undefined && !this.meet(pair)) continue;
      const steps = 1 + pair.reader.fields.length + pair.writer.fields.length;
      if (!this.findings.spend(steps, () => pathOf(pair))) break;
      this.compare(pair);
      this.takeInner();
    }
    return this.findings.all();
  }

  /** Whether the pair is a new one. Pairs inside another are known as soon as they are met: what leads to one may be
   *  as many times what there is of them as a message has fields, and all of it would wait. */
  private meet({ reader, writer }: MessagePair): boolean {
    const known = this.seen.get(reader);
    if (known?.has(writer) === true) return false;
    if (known === undefined) this.seen.set(reader, new Set([writer]));
    else known.add(writer);
    return true;
  }

  /** What is inside a pair comes before what follows it. */
  private takeInner(): void {
    for (let pair = this.inner.pop(); pair !== undefined; pair = this.inner.pop()) this.open.push(pair);
  }

  private removed(message: ProtoMessage, route: MessagePair['route']): void {
    const like = this.withLocalName(message.name.slice(message.name.lastIndexOf('.') + 1));
    const hint = like === undefined ? '' : `; it has ${like.name}, but the full name decides`;
    this.findings.add(
      'fail',
      'PROTO_MESSAGE_REMOVED',
      message.name,
      `message ${message.name} is not in the reader's schema, so none of its events can be read${hint}`,
      { place: placeOf(this.from, message.name), writer: message.at, route },
    );
  }

  private localNames: ReadonlyMap<string, ProtoMessage> | undefined;

  /** The first message of the reader that has this name in some package or message. */
  private withLocalName(local: string): ProtoMessage | undefined {
    this.localNames ??= new Map(
      this.file.messages.toReversed().map((one) => [one.name.slice(one.name.lastIndexOf('.') + 1), one]),
    );
    return this.localNames.get(local);
  }

  /** Both lists of fields are by number. */
  private compare(pair: MessagePair): void {
    const { reader, writer } = pair;
    const written = writer.fields;
    const oneofs = new Map<string, Member[]>();
    let next = 0;
    for (const field of reader.fields) {
      for (; (written[next]?.number ?? Number.POSITIVE_INFINITY) < field.number; next++)
        this.moved(pair, written[next] as ProtoField);
      const match = written[next]?.number === field.number ? (written[next++] as ProtoField) : undefined;
      if (match === undefined || this.isNever(match)) {
        this.unwritten(pair, field);
        continue;
      }
      const isMoved = match.name !== field.name && this.moved(pair, match, field);
      if (!isMoved) this.fields.compare({ owner: pair, reader: field, writer: match });
      if (field.oneof === undefined) continue;
      const members = oneofs.get(field.oneof);
      if (members === undefined) oneofs.set(field.oneof, [[field, match]]);
      else members.push([field, match]);
    }
    for (; next < written.length; next++) this.moved(pair, written[next] as ProtoField);
    for (const [name, members] of oneofs) this.oneof(pair, name, members);
  }

  private isNever(field: ProtoField): boolean {
    return this.never.size > 0 && field.message !== undefined && this.never.has(field.message);
  }

  /** A name that stands in both under different numbers is no rename: the value vanishes without an error, or comes
   *  under the name of what is read in its place.
   *  @param taken what the reader has under the written number; it has another name */
  private moved(pair: MessagePair, field: ProtoField, taken?: ProtoField): boolean {
    const other = this.named(pair.reader).get(field.name);
    if (other === undefined || this.isNever(field)) return false;
    const becomes =
      taken === undefined
        ? 'so its value vanishes without an error'
        : `and ${field.number} is "${taken.name}" where it is read, so the value of "${field.name}" is taken for "${taken.name}"`;
    this.findings.add(
      'fail',
      'PROTO_NUMBER_CHANGED',
      pathOf(pair, labelOf(pair.reader, other)),
      `field "${field.name}" is written under the number ${field.number} and looked for under ${other.number}, ${becomes}`,
      {
        place: fieldPlace(this.from, pair.writer, field.number),
        reader: other.at,
        writer: field.at,
        route: stepInto(pair.route, { kind: 'field', key: field.number }),
      },
    );
    return true;
  }

  private lastNamed: ProtoMessage | undefined;
  private names: ReadonlyMap<string, ProtoField> = new Map();

  /** Fields by name, of the message that is asked about now. */
  private named(message: ProtoMessage): ReadonlyMap<string, ProtoField> {
    if (this.lastNamed !== message) this.names = new Map(message.fields.map((field) => [field.name, field]));
    this.lastNamed = message;
    return this.names;
  }

  private unwritten(pair: MessagePair, field: ProtoField): void {
    const { route, reader, writer } = pair;
    const where = {
      place: fieldPlace(this.file, reader, field.number),
      reader: field.at,
      writer: writer.at,
      route,
    };
    const add = (severity: Severity, rule: string, message: string): void =>
      this.findings.add(severity, rule, pathOf(pair, labelOf(reader, field)), message, where);
    if (field.required) {
      add(
        'fail',
        'PROTO_REQUIRED_ADDED',
        `field "${field.name}" = ${field.number} is required where it is read, and the writer never writes it, so reading ends with an error`,
      );
    } else if (isEntry(reader) && field.message !== undefined) {
      for (const said of this.fields.emptyValue(field.message)) add(said.severity, said.rule, said.message);
    }
  }

  /** Of fields that exclude each other a reader keeps the last. One written oneof never writes two. */
  private oneof(pair: MessagePair, name: string, members: readonly Member[]): void {
    const [first] = members as readonly [Member, ...Member[]];
    const { oneof } = first[1];
    const free = members.filter(([, written]) => written.oneof === undefined || written.oneof !== oneof);
    const other = free.find((member) => member !== first);
    if (other === undefined) return;
    const [reader, writer] = other;
    this.findings.add(
      'fail',
      'PROTO_ONEOF_CHANGED',
      pathOf(pair, labelOf(pair.reader, reader)),
      `"${first[0].name}" and "${reader.name}" exclude each other in the reader's oneof ${name}, and an event may hold both: one of the two vanishes`,
      {
        place: fieldPlace(this.file, pair.reader, reader.number),
        reader: reader.at,
        writer: writer.at,
        route: pair.route,
      },
    );
  }

  private sayField({ owner, reader, writer }: FieldPair, said: Said): void {
    const { severity, rule, message, kind } = said;
    const isKey = isEntry(owner.writer) && writer.number === 1;
    const step = isEntry(owner.writer)
      ? ({ kind: 'value' } as const)
      : ({ kind: 'field', key: writer.number } as const);
    this.findings.add(severity, rule, pathOf(owner, labelOf(owner.reader, reader)), message, {
      place: fieldPlace(this.file, owner.reader, reader.number),
      reader: said.reader ?? reader.at,
      writer: said.writer ?? writer.at,
      route: isKey ? owner.route : stepInto(owner.route, step),
      ...(kind === undefined ? {} : { kind }),
    });
  }
}

type Member = readonly [reader: ProtoField, writer: ProtoField];
