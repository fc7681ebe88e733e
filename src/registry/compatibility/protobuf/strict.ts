/** Protobuf compatibility under policy STRICT: the findings that the existing registries report.
 *
 *  They list the differences of two texts, of which some kinds are compatible. This differs from
 *  live decode:
 *  - types of one name are compared by their place in the text, used or not;
 *  - a field's label counts only if both texts write one;
 *  - numbers, enums and renamed fields are free;
 *  - groups and extensions are not compared;
 *  - a type from an import is compared where a field uses it.
 *
 *  Source: reference table of the registries' verdicts; the protobuf `diff` package of Confluent
 *  Schema Registry 8. */

import {
  type LinkedEnum,
  type LinkedField,
  type LinkedFile,
  type LinkedMessage,
  mapKeyOf,
} from '../../../formats/protobuf/link/model.ts';
import { SCALARS } from '../../../formats/protobuf/syntax/ast.ts';
import { type ProtoFile, placeIn } from '../../../formats/protobuf/tree.ts';
import {
  type EventRoute,
  type Finding,
  Findings,
  type SchemaPlace,
  type StepBudget,
  someOf,
} from '../finding.ts';

/** Refused differences, by the registries' own names. */
const REFUSED = {
  PACKAGE_CHANGED: 'the package differs',
  MESSAGE_REMOVED: 'the message is removed',
  FIELD_KIND_CHANGED: 'the field changed between scalar, map and message',
  FIELD_SCALAR_KIND_CHANGED: 'the bytes of the types differ on the wire',
  FIELD_NAMED_TYPE_CHANGED: 'the message type has another name, or is incompatible itself',
  FIELD_NUMERIC_LABEL_CHANGED: 'the label of a number or enum differs',
  REQUIRED_FIELD_ADDED: 'a required field is new',
  REQUIRED_FIELD_REMOVED: 'a required field is removed',
  ONEOF_FIELD_REMOVED: 'a member of a oneof is removed',
  MULTIPLE_FIELDS_MOVED_TO_ONEOF: 'several fields that were independent exclude each other',
  FIELD_MOVED_TO_EXISTING_ONEOF: 'a field that was independent excludes others',
} as const;
type StrictProtoRule = keyof typeof REFUSED;

const FILE_START = { line: 1, column: 1 };

/** Types that share their wire form; an enum is a plain number. */
const SCALAR_KINDS: Readonly<Record<string, string>> = {
  int32: 'plain',
  int64: 'plain',
  uint32: 'plain',
  uint64: 'plain',
  bool: 'plain',
  enum: 'plain',
  sint32: 'zigzag',
  sint64: 'zigzag',
  string: 'text',
  bytes: 'text',
  fixed32: 'fixed32',
  sfixed32: 'fixed32',
  fixed64: 'fixed64',
  sfixed64: 'fixed64',
};
const scalarKind = ({ type }: LinkedField): string => SCALAR_KINDS[type] ?? type;

/** Lists the refused differences from an original to its update. In both directions of a check, the
 *  original is the writer's schema and the update is the reader's. */
export function checkStrictProto(
  reader: ProtoFile,
  writer: ProtoFile,
  budget?: StepBudget,
): readonly Finding[] {
  return new Diff(budget).run(writer.link.root, reader.link.root);
}

/** Two messages, or two files, with everything nested in them. Messages that fields refer to are
 *  units of their own. */
interface Unit {
  refused: boolean;
  /** Fields that use the unit. */
  readonly uses: Use[];
}
interface Use {
  readonly unit: Unit;
  readonly spot: () => Spot;
}

/** Place of a difference. */
interface Spot {
  /** Description of the difference for a sentence. */
  readonly what: string;
  readonly place: string;
  readonly path: string;
  readonly reader?: SchemaPlace;
  readonly writer?: SchemaPlace;
  readonly route?: EventRoute;
}

interface Pair {
  readonly original: LinkedMessage;
  readonly update: LinkedMessage;
  /** `#/Outer/Inner`, by the names in the original. */
  readonly place: string;
}

class Diff {
  private readonly findings: Findings;
  private readonly units = new Map<LinkedMessage, Map<LinkedMessage, Unit>>();
  private readonly waiting: Array<{ readonly unit: Unit; readonly pair: Pair }> = [];
  private readonly refusedUnits: Unit[] = [];

  constructor(budget: StepBudget | undefined) {
    this.findings = new Findings(budget);
  }

  run(original: LinkedFile, update: LinkedFile): readonly Finding[] {
    const root: Unit = { refused: false, uses: [] };
    if (original.node.package !== update.node.package) {
      this.refuse(root, 'PACKAGE_CHANGED', {
        what: `${original.node.package ?? 'none'} where it is written, ${update.node.package ?? 'none'} where it is read`,
        place: '#/',
        path: '',
        reader: placeIn(update, FILE_START),
        writer: placeIn(original, FILE_START),
      });
    }
    this.walk(root, this.types(root, original.messages, update.messages, '#'));
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop())
      this.walk(next.unit, [next.pair]);
    for (let unit = this.refusedUnits.pop(); unit !== undefined; unit = this.refusedUnits.pop()) {
      for (const { unit: holder, spot } of unit.uses) this.refuse(holder, 'FIELD_NAMED_TYPE_CHANGED', spot());
    }
    return this.findings.all();
  }

  private refuse(unit: Unit, rule: StrictProtoRule, { path, what, ...where }: Spot): void {
    this.findings.add('fail', rule, path, `${REFUSED[rule]}: ${what}`, where);
    if (!unit.refused) this.refusedUnits.push(unit);
    unit.refused = true;
  }

  /** Compares pairs in the order of the text; nested messages come before later ones. */
  private walk(unit: Unit, pairs: readonly Pair[]): void {
    const open = [...pairs].reverse();
    for (let pair = open.pop(); pair !== undefined; pair = open.pop()) {
      const { original, update, place } = pair;
      const steps = 1 + original.fields.length + update.fields.length;
      if (!this.findings.spend(steps, original.name)) return;
      this.message(unit, pair);
      open.push(...this.types(unit, original.messages, update.messages, place).reverse());
    }
  }

  /** Pairs the messages of one scope by name, without groups. */
  private types(
    unit: Unit,
    originals: readonly LinkedMessage[],
    updates: readonly LinkedMessage[],
    outer: string,
  ): Pair[] {
    const byName = new Map<string, LinkedMessage>();
    for (const update of updates) if (isWritten(update)) byName.set(update.shortName, update);
    const pairs: Pair[] = [];
    for (const original of originals) {
      if (!isWritten(original)) continue;
      const place = `${outer}/${original.shortName}`;
      const update = byName.get(original.shortName);
      if (update !== undefined) pairs.push({ original, update, place });
      else if (!original.isMapEntry) {
        const writer = placeIn(original.file, original.node.at);
        const route = routeTo(original);
        const what = `${original.name} is not where the other text has it`;
        this.refuse(unit, 'MESSAGE_REMOVED', { what, place, path: original.name, writer, ...route });
      }
    }
    return pairs;
  }

  private message(unit: Unit, pair: Pair): void {
    const { original, update, place } = pair;
    const before = new Members(original);
    const after = new Members(update);
    const spot = (key: string | number, field: LinkedField): Spot => ({
      what: changeOf(field, before.byNumber.get(field.number), after.byNumber.get(field.number)),
      place: `${place}/${key}`,
      path: `${update.name}.${field.name}`,
      ...placesOf(before.byNumber.get(field.number), after.byNumber.get(field.number), pair),
      ...routeTo(original, before.byNumber.has(field.number) ? field.number : undefined),
    });
    for (const [oneof, members] of after.oneofs) {
      const rule = movedInto(members, before);
      const [first] = members;
      if (rule !== undefined && first !== undefined) {
        const names = someOf(members.map(({ name }) => `"${name}"`));
        this.refuse(unit, rule, { ...spot(oneof, first), what: `the members of ${oneof} are ${names}` });
      }
    }
    const deleted = new Set<string>();
    for (const [oneof, members] of before.oneofs) {
      const survives = members.some(({ number }) => after.byNumber.has(number));
      if (!after.oneofs.has(oneof) && !survives) deleted.add(oneof);
    }
    const numbers = new Set([...before.byNumber.keys(), ...after.byNumber.keys()]);
    for (const number of [...numbers].sort((a, b) => a - b)) {
      const was = before.byNumber.get(number);
      const is = after.byNumber.get(number);
      if (is === undefined) {
        const gone = was as LinkedField;
        const oneof = before.oneofOf(gone);
        if (oneof !== undefined) {
          if (!deleted.has(oneof)) this.refuse(unit, 'ONEOF_FIELD_REMOVED', spot(`${oneof}/${number}`, gone));
        } else if (gone.node.label === 'required')
          this.refuse(unit, 'REQUIRED_FIELD_REMOVED', spot(number, gone));
      } else {
        const oneof = after.oneofOf(is);
        const key = oneof === undefined ? number : `${oneof}/${number}`;
        if (was !== undefined) this.field(unit, was, is, () => spot(key, is), true);
        else if (is.node.label === 'required') this.refuse(unit, 'REQUIRED_FIELD_ADDED', spot(key, is));
      }
    }
  }

  private field(unit: Unit, was: LinkedField, is: LinkedField, spot: () => Spot, labels: boolean): void {
    const kind = kindOf(was);
    if (kind !== kindOf(is)) {
      this.refuse(unit, 'FIELD_KIND_CHANGED', spot());
    } else if (kind === 'map') {
      for (const part of [0, 1] as const)
        this.field(unit, entryPart(was, part), entryPart(is, part), spot, false);
    } else if (kind === 'message') {
      this.messageType(unit, was, is, spot);
    } else if (scalarKind(was) !== scalarKind(is)) {
      this.refuse(unit, 'FIELD_SCALAR_KIND_CHANGED', spot());
    } else if (labels && scalarKind(was) !== 'text') {
      const [before, after] = [was.node.label, is.node.label];
      if (before !== undefined && after !== undefined && before !== after)
        this.refuse(unit, 'FIELD_NUMERIC_LABEL_CHANGED', spot());
    }
  }

  private messageType(unit: Unit, was: LinkedField, is: LinkedField, spot: () => Spot): void {
    const original = was.target;
    const update = is.target;
    if (original?.kind !== 'message' || update?.kind !== 'message') {
      if (was.node.type !== is.node.type) this.refuse(unit, 'FIELD_NAMED_TYPE_CHANGED', spot());
      return;
    }
    const name = localName(original);
    if (name !== localName(update)) {
      this.refuse(unit, 'FIELD_NAMED_TYPE_CHANGED', spot());
      return;
    }
    // Two messages of the schema's own text are compared at their definitions.
    if (original.file.path === undefined && update.file.path === undefined) return;
    const others = this.units.get(original) ?? new Map<LinkedMessage, Unit>();
    this.units.set(original, others);
    const held = others.get(update);
    const used = held ?? { refused: false, uses: [] };
    used.uses.push({ unit, spot });
    if (held !== undefined) return;
    others.set(update, used);
    this.waiting.push({
      unit: used,
      pair: { original, update, place: `#/${name.replaceAll('.', '/')}` },
    });
  }
}

/** Fields by number, and the written oneofs. Groups are left out, because the registries' parser
 *  keeps them apart. */
class Members {
  readonly byNumber = new Map<number, LinkedField>();
  readonly oneofs = new Map<string, LinkedField[]>();
  private readonly message: LinkedMessage;

  constructor(message: LinkedMessage) {
    this.message = message;
    for (const { name, node } of message.oneofs) if (node !== undefined) this.oneofs.set(name, []);
    for (const field of message.fields) {
      if (field.type === 'group') continue;
      this.byNumber.set(field.number, field);
      const oneof = this.oneofOf(field);
      if (oneof !== undefined) this.oneofs.get(oneof)?.push(field);
    }
  }

  oneofOf({ oneof }: LinkedField): string | undefined {
    const held = oneof === undefined ? undefined : this.message.oneofs[oneof];
    return held?.node === undefined ? undefined : held.name;
  }
}

/** Returns the refused rule if independent fields exclude each other in a oneof of the update. */
function movedInto(members: readonly LinkedField[], before: Members): StrictProtoRule | undefined {
  const groups = new Set<string>();
  let moved = 0;
  for (const { number } of members) {
    const was = before.byNumber.get(number);
    if (was === undefined) continue;
    const oneof = before.oneofOf(was);
    if (oneof === undefined) moved++;
    groups.add(oneof === undefined ? `/${number}` : oneof);
  }
  if (groups.size < 2) return undefined;
  return moved > 1 ? 'MULTIPLE_FIELDS_MOVED_TO_ONEOF' : 'FIELD_MOVED_TO_EXISTING_ONEOF';
}

const isWritten = (message: LinkedMessage): boolean => !message.isImplicit && !message.isGroup;

function kindOf(field: LinkedField): 'scalar' | 'map' | 'message' {
  if (mapKeyOf(field) !== undefined) return 'map';
  return SCALARS.has(field.type) || field.type === 'enum' ? 'scalar' : 'message';
}

const entryPart = (map: LinkedField, part: 0 | 1): LinkedField =>
  (map.target as LinkedMessage).fields[part] as LinkedField;

/** Name without its package. */
function localName({ name, file }: LinkedMessage | LinkedEnum): string {
  const prefix = `${file.node.package ?? ''}.`;
  return name.startsWith(prefix) ? name.slice(prefix.length) : name;
}

/** `field "qty" = 2 is int32 where it is written and string where it is read` */
function changeOf(field: LinkedField, was: LinkedField | undefined, is: LinkedField | undefined): string {
  const label = `field "${field.name}" = ${field.number}`;
  const word = ({ node }: LinkedField): string =>
    [node.label, node.mapKey === undefined ? node.type : `map<${node.mapKey}, ${node.type}>`]
      .join(' ')
      .trim();
  if (was === undefined || is === undefined) return label;
  return `${label} is ${word(was)} where it is written and ${word(is)} where it is read`;
}

function placesOf(was: LinkedField | undefined, is: LinkedField | undefined, pair: Pair): Partial<Spot> {
  const at = (field: LinkedField | undefined, message: LinkedMessage): SchemaPlace =>
    placeIn(message.file, field === undefined ? message.node.at : field.at);
  return { reader: at(is, pair.update), writer: at(was, pair.original) };
}

/** Route to the message as an event of its own; none for a message of an import. */
function routeTo(message: LinkedMessage, number?: number): { readonly route?: EventRoute } {
  if (message.file.path !== undefined) return {};
  const outer: EventRoute = { outer: undefined, step: { kind: 'root', message: message.name } };
  return { route: number === undefined ? outer : { outer, step: { kind: 'field', key: number } } };
}
