/** Keywords of JSON Schema that bound one value: numbers, lengths, listed values, patterns. Each is implied by the same
 *  keyword of the writer, as strict or stricter, or by each of the values the writer lists. */
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
  /** The keyword that it is about, in both. */
  readonly keyword: string;
}

/** The writer's schema, and what it lets through. */
export interface Written {
  /** Undefined: anything. */
  readonly schema: JsonObject | undefined;
  readonly types: readonly JsonType[];
  /** All there are, where they are listed. */
  readonly values: readonly JsonNode[] | undefined;
  readonly isDraft4: boolean;
}

const VALUE_CHARS_MAX = 60;
const shown = (node: JsonNode): string => {
  const text = printJson(node);
  return text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text;
};

const ofWriter = (written: Written, keyword: string): JsonNode | undefined =>
  written.schema === undefined ? undefined : memberOf(written.schema, keyword);

/** What a schema lists as all its values. */
export function listedOf(schema: JsonObject, isDraft4: boolean): readonly JsonNode[] | undefined {
  // Draft 4 knows no `const`, so it lets everything through.
  const constant = isDraft4 ? undefined : memberOf(schema, 'const');
  return constant === undefined ? itemsOf(memberOf(schema, 'enum')) : [constant];
}

function listed(reader: JsonObject, written: Written, keyword: 'enum' | 'const'): Wrong[] {
  const node = memberOf(reader, keyword) as JsonNode;
  const allowed = keyword === 'const' ? [node] : itemsOf(node);
  if (allowed === undefined) return [];
  const rule = keyword === 'const' ? 'JSON_CONST_CHANGED' : 'JSON_ENUM_VALUE_REMOVED';
  const wrong = (message: string): Wrong[] => [{ severity: 'fail', rule, message, keyword }];
  if (written.values === undefined)
    return wrong(`the reader takes only ${someOf(allowed.map(shown))}, and the writer may write others`);
  const taken = new Set(allowed.map(valueKey));
  const missing = written.values.filter((value) => !taken.has(valueKey(value)));
  return missing.length === 0 ? [] : wrong(`the reader does not take ${someOf(missing.map(shown))}`);
}

interface Bound {
  readonly value: JsonNumber;
  readonly exclusive: boolean;
}

/** `-1`: from below. */
type Side = -1 | 1;

/** The bounds a schema sets on a side, in all spellings. */
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

/** Whether whatever is within `a` is within `b`. */
function within(a: Bound, b: Bound, side: Side): boolean {
  const order = compareNumbers(a.value, b.value);
  if (order === undefined) return false;
  return order === 0 ? a.exclusive || !b.exclusive : order === -side;
}

function ranged(reader: JsonObject, written: Written, side: Side): Wrong[] {
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

function multiple(reader: JsonObject, written: Written): Wrong[] {
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

/** Keywords that count: the type they are about, the side, and how a listed value is counted. */
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

/** The least that a writer's schema promises beside the keyword itself. */
function promised(keyword: string, written: Written): number {
  if (keyword !== 'minProperties') return 0;
  return new Set((itemsOf(ofWriter(written, 'required')) ?? []).flatMap((one) => stringOf(one) ?? [])).size;
}

function counted(reader: JsonObject, written: Written): Wrong[] {
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

function patterned(reader: JsonObject, written: Written): Wrong[] {
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
    // Whether one pattern takes what another does is not asked here.
    const isAdded = keyword === 'pattern' && theirs === undefined && written.values === undefined;
    found.push({
      severity: isAdded ? 'fail' : 'unjudged',
      rule,
      message: `the reader demands the ${keyword} ${shown(ours)}, the writer ${theirs === undefined ? 'none' : shown(theirs)}`,
      keyword,
    });
  }
  return found;
}

function unique(reader: JsonObject, written: Written): Wrong[] {
  const isAsked = (node: JsonNode | undefined): boolean => node?.kind === 'boolean' && node.value;
  if (!isAsked(memberOf(reader, 'uniqueItems')) || !written.types.includes('array')) return [];
  if (isAsked(ofWriter(written, 'uniqueItems')) || (countOf(ofWriter(written, 'maxItems')) ?? 2) < 2)
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

/** What the reader's bounds refuse of what the writer's schema lets through. */
export function boundsUnmet(reader: JsonObject, written: Written): Wrong[] {
  const found: Wrong[] = [];
  for (const keyword of ['enum', 'const'] as const)
    if (memberOf(reader, keyword) !== undefined) found.push(...listed(reader, written, keyword));
  if (written.types.includes('number') || written.types.includes('integer'))
    found.push(...ranged(reader, written, -1), ...ranged(reader, written, 1), ...multiple(reader, written));
  found.push(...counted(reader, written), ...patterned(reader, written), ...unique(reader, written));
  return found;
}
