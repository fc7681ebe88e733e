/** Matching of a reader's schema with a writer's schema.
 *
 *  Named types match by unqualified name, or where an alias of the reader's type is the writer's
 *  full name. In a union the exact type has priority and a promotion comes last: by the order of
 *  the specification's text alone, ["float", "int"] would not read its own ints. Source: Apache
 *  Avro 1.12 specification, "Schema Resolution" and "Aliases". */
import type {
  AvroField,
  AvroNamedNode,
  AvroNode,
  AvroPrimitive,
  AvroRecordNode,
  AvroUnionNode,
} from '../syntax/tree.ts';
import { isWrapped } from './branch.ts';

/** Characters of a name that a message shows. */
const NAME_CHARS_MAX = 200;

export const shownName = (name: string): string =>
  name.length > NAME_CHARS_MAX ? `${name.slice(0, NAME_CHARS_MAX)}…` : name;

export const shortName = (name: string): string => name.slice(name.lastIndexOf('.') + 1);

export const isNamed = (node: AvroNode): node is AvroNamedNode =>
  node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed';

/** Cache of alias sets: a type may have thousands of aliases and be compared in thousands of
 *  places. */
const aliasSets = new WeakMap<AvroNamedNode, ReadonlySet<string>>();

export function doNamesMatch(reader: AvroNamedNode, writer: AvroNamedNode): boolean {
  if (shortName(reader.name) === shortName(writer.name)) return true;
  const aliases = aliasSets.get(reader) ?? new Set(reader.aliases);
  aliasSets.set(reader, aliases);
  return aliases.has(writer.name);
}

/** Types that each written type can be promoted to. */
const PROMOTIONS: Readonly<Partial<Record<AvroPrimitive, readonly AvroPrimitive[]>>> = {
  int: ['long', 'float', 'double'],
  long: ['float', 'double'],
  float: ['double'],
  string: ['bytes'],
  bytes: ['string'],
};

export const isPromotable = (from: AvroPrimitive, to: AvroPrimitive): boolean =>
  PROMOTIONS[from]?.includes(to) === true;

/** Describes the difference of two logical types: the same bytes then mean two values. Undefined
 *  where they agree. */
export function logicalDifference(reader: AvroNode, writer: AvroNode): string | undefined {
  const r = reader.logical;
  const w = writer.logical;
  if (r === undefined || w === undefined) return undefined;
  if (r.logicalType === w.logicalType && r.precision === w.precision && r.scale === w.scale) return undefined;
  const show = ({ logicalType, precision, scale }: typeof r): string =>
    `${shownName(logicalType)}${precision === undefined ? '' : `(${precision}, ${scale})`}`;
  return `the logical type is ${show(w)} for the writer and ${show(r)} for the reader`;
}

/** A reader's union, indexed by the written types that its branches read. */
export class UnionBranches {
  readonly isWrapped: boolean;
  private readonly byFullName = new Map<string, number>();
  private readonly byAlias = new Map<string, number>();
  private readonly byShortName = new Map<string, number>();
  /** Branches that are arrays, maps or primitive types. */
  private readonly byType = new Map<string, number>();

  constructor(union: AvroUnionNode) {
    const first = (map: Map<string, number>, key: string, index: number): void => {
      if (!map.has(key)) map.set(key, index);
    };
    this.isWrapped = isWrapped(union);
    union.branches.forEach((branch, index) => {
      if (!isNamed(branch)) {
        first(this.byType, branch.kind === 'primitive' ? branch.type : branch.kind, index);
        return;
      }
      first(this.byFullName, `${branch.kind} ${branch.name}`, index);
      for (const alias of branch.aliases) first(this.byAlias, `${branch.kind} ${alias}`, index);
      first(this.byShortName, `${branch.kind} ${shortName(branch.name)}`, index);
    });
  }

  /** Index of the branch that reads the written type `writer`, which is no union; undefined for
   *  none. */
  indexFor(writer: AvroNode): number | undefined {
    if (isNamed(writer)) {
      const full = `${writer.kind} ${writer.name}`;
      return (
        this.byFullName.get(full) ??
        this.byAlias.get(full) ??
        this.byShortName.get(`${writer.kind} ${shortName(writer.name)}`)
      );
    }
    if (writer.kind !== 'primitive') return this.byType.get(writer.kind);
    const exact = this.byType.get(writer.type);
    if (exact !== undefined) return exact;
    const promoted = (PROMOTIONS[writer.type] ?? []).flatMap((type) => this.byType.get(type) ?? []);
    return promoted.length === 0 ? undefined : Math.min(...promoted);
  }
}

export interface FieldMatches {
  /** For each written field, the reader's field that receives it; undefined where it is skipped. */
  readonly taken: ReadonlyArray<AvroField | undefined>;
  /** Fields of the reader that the writer lacks. */
  readonly missing: readonly AvroField[];
}

/** Matches the fields of two records by names and aliases. A string is the reason why they cannot
 *  be matched. */
export function matchFields(reader: AvroRecordNode, writer: AvroRecordNode): FieldMatches | string {
  const writtenAt = new Map(writer.fields.map((field, index) => [field.name, index]));
  const taken: Array<AvroField | undefined> = writer.fields.map(() => undefined);
  const missing: AvroField[] = [];
  for (const field of reader.fields) {
    const names = new Set([field.name, ...field.aliases]);
    const [match, more] = [...names].filter((name) => writtenAt.has(name));
    if (more !== undefined)
      return `field ${shownName(field.name)} matches two written fields, ${shownName(match as string)} and ${shownName(more)}`;
    if (match === undefined) {
      missing.push(field);
      continue;
    }
    const index = writtenAt.get(match) as number;
    const other = taken[index];
    if (other !== undefined)
      return `fields ${shownName(other.name)} and ${shownName(field.name)} both read the written field ${shownName(match)}`;
    taken[index] = field;
  }
  return { taken, missing };
}
