/** JSON Schema keywords that bound one value: ranges, lengths, listed values, patterns. The
 *  reader's keyword must be implied by the same keyword of the writer, or by every value that the
 *  writer lists. */
import type { JsonType } from '../../../formats/json/shape.ts';
import {
  doubleOf,
  type JsonNode,
  type JsonNumber,
  type JsonObject,
  memberOf,
  printJson,
} from '../../../formats/json/text.ts';
import type { Severity } from '../finding.ts';
import { someOf } from '../finding.ts';
import {
  compareNumbers,
  countOf,
  dividesAll,
  itemsOf,
  lengthOf,
  numberOf,
  sameValue,
  stringOf,
  valueKey,
} from './node.ts';

export interface Wrong {
  readonly severity: Severity;
  readonly rule: string;
  readonly message: string;
  /** Keyword of the finding, in both schemas. */
  readonly keyword: string;
}

/** Writer's schema and the values that it allows. */
export interface WrittenValues {
  /** Undefined: every value is allowed. */
  readonly schema: JsonObject | undefined;
  readonly types: readonly JsonType[];
  /** All allowed values, if they are listed. */
  readonly values: readonly JsonNode[] | undefined;
  readonly isDraft4: boolean;
}

const VALUE_CHARS_MAX = 60;
const excerpt = (node: JsonNode): string => {
  const text = printJson(node);
  return text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text;
};

const ofWriter = (written: WrittenValues, keyword: string): JsonNode | undefined =>
  written.schema === undefined ? undefined : memberOf(written.schema, keyword);

/** Returns the values that a schema lists as its only ones. */
export function listedOf(schema: JsonObject, isDraft4: boolean): readonly JsonNode[] | undefined {
  // Draft 4 does not know `const`, so `const` restricts nothing.
  const constant = isDraft4 ? undefined : memberOf(schema, 'const');
  return constant === undefined ? itemsOf(memberOf(schema, 'enum')) : [constant];
}

function listed(reader: JsonObject, written: WrittenValues, keyword: 'enum' | 'const'): Wrong[] {
  const node = memberOf(reader, keyword) as JsonNode;
  const allowed = keyword === 'const' ? [node] : itemsOf(node);
  if (allowed === undefined) return [];
  const rule = keyword === 'const' ? 'JSON_CONST_CHANGED' : 'JSON_ENUM_VALUE_REMOVED';
  const wrong = (message: string): Wrong[] => [{ severity: 'fail', rule, message, keyword }];
  if (written.values === undefined)
    return wrong(`the reader takes only ${someOf(allowed.map(excerpt))}, and the writer may write others`);
  const allowedKeys = new Set(allowed.map(valueKey));
  const missing = written.values.filter((value) => !allowedKeys.has(valueKey(value)));
  return missing.length === 0 ? [] : wrong(`the reader does not take ${someOf(missing.map(excerpt))}`);
}

interface Bound {
  readonly value: JsonNumber;
  readonly exclusive: boolean;
}

/** `-1`: lower bound; `1`: upper bound. */
type Side = -1 | 1;

/** Returns the bounds of a schema on one side, in all spellings. */
function boundsOf(schema: JsonObject, side: Side, isDraft4: boolean): Bound[] {
  const [plain, strict] =
    side < 0 ? (['minimum', 'exclusiveMinimum'] as const) : (['maximum', 'exclusiveMaximum'] as const);
  const inclusive = numberOf(memberOf(schema, plain));
  const other = memberOf(schema, strict);
  const flag = isDraft4 && other?.kind === 'boolean' && other.value;
  const bounds: Bound[] = inclusive === undefined ? [] : [{ value: inclusive, exclusive: flag }];
  const exclusive = isDraft4 ? undefined : numberOf(other);
  return exclusive === undefined ? bounds : [...bounds, { value: exclusive, exclusive: true }];
}

/** True if bound `a` is at least as strict as bound `b`. */
function within(a: Bound, b: Bound, side: Side): boolean {
  const order = compareNumbers(a.value, b.value);
  if (order === undefined) return false;
  return order === 0 ? a.exclusive || !b.exclusive : order === -side;
}

function ranged(reader: JsonObject, written: WrittenValues, side: Side): Wrong[] {
  const bounds = boundsOf(reader, side, written.isDraft4);
  const theirs = written.schema === undefined ? [] : boundsOf(written.schema, side, written.isDraft4);
  const values = written.values?.flatMap((value) =>
    value.kind === 'number' ? [{ value, exclusive: false }] : [],
  );
  const unmet = bounds.filter((bound) => {
    if (values?.every((value) => within(value, bound, side))) return false;
    return !theirs.some((one) => within(one, bound, side));
  });
  return unmet.map(({ value, exclusive }) => ({
    severity: 'fail',
    rule: 'JSON_RANGE_NARROWED',
    message: `the reader takes numbers ${side < 0 ? 'from' : 'to'} ${value.digits}${exclusive ? ', exclusive,' : ''} only`,
    keyword: side < 0 ? 'minimum' : 'maximum',
  }));
}

function multiple(reader: JsonObject, written: WrittenValues): Wrong[] {
  const number = numberOf(memberOf(reader, 'multipleOf'));
  if (number === undefined) return [];
  const theirs = numberOf(ofWriter(written, 'multipleOf'));
  if (theirs !== undefined && dividesAll(theirs, number)) return [];
  const isWhole = !written.types.includes('number');
  if (isWhole && dividesAll({ kind: 'number', digits: '1', at: 0 }, number)) return [];
  return [
    {
      severity: 'fail',
      rule: 'JSON_MULTIPLE_OF_CHANGED',
      message: `the reader takes multiples of ${number.digits} only`,
      keyword: 'multipleOf',
    },
  ];
}

/** Counting keywords: the type that each applies to, its side, and the count of a listed value. */
const COUNTS: ReadonlyArray<
  readonly [keyword: string, type: JsonType, side: Side, count: (node: JsonNode) => number | undefined]
> = [
  ['minLength', 'string', -1, (node) => (node.kind === 'string' ? lengthOf(node.value) : undefined)],
  ['maxLength', 'string', 1, (node) => (node.kind === 'string' ? lengthOf(node.value) : undefined)],
  ['minItems', 'array', -1, (node) => (node.kind === 'array' ? node.items.length : undefined)],
  ['maxItems', 'array', 1, (node) => (node.kind === 'array' ? node.items.length : undefined)],
  ['minProperties', 'object', -1, (node) => (node.kind === 'object' ? node.members.size : undefined)],
  ['maxProperties', 'object', 1, (node) => (node.kind === 'object' ? node.members.size : undefined)],
];

/** Returns the lower bound that other keywords of the writer imply. */
function promised(keyword: string, written: WrittenValues): number {
  if (keyword !== 'minProperties') return 0;
  return new Set((itemsOf(ofWriter(written, 'required')) ?? []).flatMap((one) => stringOf(one) ?? [])).size;
}

function counted(reader: JsonObject, written: WrittenValues): Wrong[] {
  return COUNTS.flatMap(([keyword, type, side, count]): Wrong[] => {
    const node = memberOf(reader, keyword);
    if (node === undefined || !written.types.includes(type)) return [];
    const bound = numberOf(node);
    if (bound === undefined) return [];
    const limit = doubleOf(bound);
    const meets = (value: number): boolean => (side < 0 ? value >= limit : value <= limit);
    const theirs = countOf(ofWriter(written, keyword));
    if (theirs !== undefined && meets(theirs)) return [];
    if (side < 0 && meets(promised(keyword, written))) return [];
    if (written.values?.every((value) => meets(count(value) ?? limit))) return [];
    const message = `the reader takes ${side < 0 ? 'at least' : 'at most'} ${bound.digits} (${keyword})`;
    return [{ severity: 'fail', rule: 'JSON_LENGTH_NARROWED', message, keyword }];
  });
}

function patterned(reader: JsonObject, written: WrittenValues): Wrong[] {
  const found: Wrong[] = [];
  for (const [keyword, rule] of [
    ['pattern', 'JSON_PATTERN_CHANGED'],
    ['format', 'JSON_FORMAT_CHANGED'],
    ['contentEncoding', 'JSON_FORMAT_CHANGED'],
    ['contentMediaType', 'JSON_FORMAT_CHANGED'],
  ] as const) {
    const ours = memberOf(reader, keyword);
    if (ours === undefined || !written.types.includes('string')) continue;
    const theirs = ofWriter(written, keyword);
    if (theirs !== undefined && sameValue(ours, theirs)) continue;
    // Two different patterns are not compared for inclusion, so the finding is unjudged.
    const isAdded = keyword === 'pattern' && theirs === undefined && written.values === undefined;
    found.push({
      severity: isAdded ? 'fail' : 'unjudged',
      rule,
      message: `the reader demands the ${keyword} ${excerpt(ours)}, the writer ${theirs === undefined ? 'none' : excerpt(theirs)}`,
      keyword,
    });
  }
  return found;
}

function unique(reader: JsonObject, written: WrittenValues): Wrong[] {
  const isTrue = (node: JsonNode | undefined): boolean => node?.kind === 'boolean' && node.value;
  if (!isTrue(memberOf(reader, 'uniqueItems')) || !written.types.includes('array')) return [];
  if (isTrue(ofWriter(written, 'uniqueItems')) || (countOf(ofWriter(written, 'maxItems')) ?? 2) < 2)
    return [];
  return [
    {
      severity: 'fail',
      rule: 'JSON_UNIQUE_ADDED',
      message: 'the reader takes lists without repetition only',
      keyword: 'uniqueItems',
    },
  ];
}

/** Returns the reader's bounds that refuse a value that the writer's schema allows. */
export function boundsUnmet(reader: JsonObject, written: WrittenValues): Wrong[] {
  const found: Wrong[] = [];
  for (const keyword of ['enum', 'const'] as const)
    if (memberOf(reader, keyword) !== undefined) found.push(...listed(reader, written, keyword));
  if (written.types.includes('number') || written.types.includes('integer'))
    found.push(...ranged(reader, written, -1), ...ranged(reader, written, 1), ...multiple(reader, written));
  found.push(...counted(reader, written), ...patterned(reader, written), ...unique(reader, written));
  return found;
}
