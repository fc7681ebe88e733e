/** Protobuf compatibility under policy PROVEN: the rules of the wire format, which matches fields
 *  by number, not by name.
 *
 *  A verdict covers every event of every message of the writer's file. FAIL: an error, a wrong
 *  value, or a lost value of a field that both schemas have. LOSSY: a loss that the specification
 *  allows. Messages that no finite event can hold are never written, so they have no findings. Only
 *  an unknown type stays unjudged.
 *  Source: protobuf.dev, "Updating A Message Type", "Encoding", "Field Presence" and "Enum
 *  Behavior". */
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { type Finding, Findings, type Severity, type StepBudget } from '../finding.ts';
import { FieldRules, type FieldVerdict } from './field.ts';
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
  /** Stack of pairs to compare, the next one last: a chain of messages may be longer than the call
   *  stack allows. */
  private readonly open: MessagePair[] = [];
  /** Pairs found inside the current pair, in the order of its fields. */
  private readonly inner: MessagePair[] = [];
  private readonly fields = new FieldRules({
    spend: (steps, pair) => this.findings.spend(steps, () => pathOf(pair)),
    report: (pair, verdict) => this.reportField(pair, verdict),
    enter: (pair) => {
      if (this.markSeen(pair)) this.inner.push(pair);
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
    this.pushInner();
    for (let pair = this.open.pop(); pair !== undefined; pair = this.open.pop()) {
      // A message that another message holds is reported there. As an event of its own it is
      // compared last.
      if (pair.outer === undefined && !this.markSeen(pair)) continue;
      const steps = 1 + pair.reader.fields.length + pair.writer.fields.length;
      if (!this.findings.spend(steps, () => pathOf(pair))) break;
      this.compare(pair);
      this.pushInner();
    }
    return this.findings.all();
  }

  /** Marks a pair as seen. True: it is new. Inner pairs are marked when they are found, not when
   *  they are compared: otherwise the stack could hold many copies of one pair. */
  private markSeen({ reader, writer }: MessagePair): boolean {
    const known = this.seen.get(reader);
    if (known?.has(writer) === true) return false;
    if (known === undefined) this.seen.set(reader, new Set([writer]));
    else known.add(writer);
    return true;
  }

  /** Moves the inner pairs onto the stack, so that they are compared before the pairs that follow.
   */
  private pushInner(): void {
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

  /** Returns the reader's first message with this local name, in any package or message. */
  private withLocalName(local: string): ProtoMessage | undefined {
    this.localNames ??= new Map(
      this.file.messages.toReversed().map((one) => [one.name.slice(one.name.lastIndexOf('.') + 1), one]),
    );
    return this.localNames.get(local);
  }

  /** Compares two messages. Both lists of fields are sorted by number. */
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

  /** Reports a name that both schemas have under different numbers. This is no renaming: the value
   *  is lost without an error, or arrives under another name.
   *  @param occupant reader's field under the written number; it has another name */
  private moved(pair: MessagePair, field: ProtoField, occupant?: ProtoField): boolean {
    const other = this.named(pair.reader).get(field.name);
    if (other === undefined || this.isNever(field)) return false;
    const becomes =
      occupant === undefined
        ? 'so its value is lost without an error'
        : `and ${field.number} is "${occupant.name}" where it is read, so the value of "${field.name}" is read as "${occupant.name}"`;
    this.findings.add(
      'fail',
      'PROTO_NUMBER_CHANGED',
      pathOf(pair, labelOf(pair.reader, other)),
      `field "${field.name}" is written under the number ${field.number} and read under ${other.number}, ${becomes}`,
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

  /** Returns a message's fields by name. Keeps only the latest message. */
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
      for (const verdict of this.fields.emptyValue(field.message))
        add(verdict.severity, verdict.rule, verdict.message);
    }
  }

  /** Reports fields that exclude each other only in the reader, which keeps the last one. Fields of
   *  one written oneof never occur together. */
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
      `"${first[0].name}" and "${reader.name}" exclude each other in the reader's oneof ${name}, and an event may hold both: one of the two is lost`,
      {
        place: fieldPlace(this.file, pair.reader, reader.number),
        reader: reader.at,
        writer: writer.at,
        route: pair.route,
      },
    );
  }

  private reportField({ owner, reader, writer }: FieldPair, verdict: FieldVerdict): void {
    const { severity, rule, message, kind } = verdict;
    const isKey = isEntry(owner.writer) && writer.number === 1;
    const step = isEntry(owner.writer)
      ? ({ kind: 'value' } as const)
      : ({ kind: 'field', key: writer.number } as const);
    this.findings.add(severity, rule, pathOf(owner, labelOf(owner.reader, reader)), message, {
      place: fieldPlace(this.file, owner.reader, reader.number),
      reader: verdict.reader ?? reader.at,
      writer: verdict.writer ?? writer.at,
      route: isKey ? owner.route : stepInto(owner.route, step),
      ...(kind === undefined ? {} : { kind }),
    });
  }
}

type Member = readonly [reader: ProtoField, writer: ProtoField];
