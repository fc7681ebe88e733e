/** `-where` in Flink SQL. Its logic has two values: a comparison with null, with a missing field or
 *  with a value of another type is false, and `not` of it is true. So every condition is wrapped
 *  into COALESCE(…, FALSE). */
import type { Filter, FilterLiteral, FilterNode } from '../../core/filter/compile.ts';
import { quotedText } from '../../formats/flink/sql.ts';
import { unsayable } from './error.ts';
import type { FieldType, FlinkField, FlinkFields } from './fields.ts';

/** Integers of a double that have no neighbour between them. */
const EXACT = 2n ** 53n;
/** Digits of a literal that has no type: it has 64 bits. */
const PLAIN_DIGITS_MAX = 18;
/** Most digits of a number in Flink SQL. */
const DIGITS_MAX = 38;

const NEXT = 'keep this job here, or compare the field otherwise';

/** @throws flink_unsupported */
export function filterSql({ fields, tree }: Filter, source: FlinkFields): string {
  const all = fields.map(({ steps, text }) => ({ ...source.of(steps as readonly string[]), text }));
  return nodeSql(tree, all);
}

/** A literal with its number as JavaScript has it. */
type Plain = string | number | bigint | boolean;

const plainOf = (literal: FilterLiteral): Plain => (typeof literal === 'object' ? literal.number : literal);

type Named = FlinkField & { readonly text: string };

function nodeSql(node: FilterNode, fields: readonly Named[]): string {
  switch (node.kind) {
    case 'and':
    case 'or':
      return `(${node.parts.map((part) => nodeSql(part, fields)).join(` ${node.kind.toUpperCase()} `)})`;
    case 'not':
      return `NOT ${nodeSql(node.part, fields)}`;
    case 'null':
      return `(${(fields[node.field] as Named).sql} IS ${node.isNegated ? 'NOT ' : ''}NULL)`;
    case 'compare': {
      const field = fields[node.field] as Named;
      const literal = plainOf(node.literal);
      if (!isOfType(field, literal)) return 'FALSE';
      const sign = node.sign === '!=' ? '<>' : node.sign;
      if (node.sign !== '=' && node.sign !== '!=') demandOrder(field, literal);
      return `COALESCE(${valueSql(field)} ${sign} ${literalSql(field, literal)}, FALSE)`;
    }
    case 'in':
      return memberSql(node, fields[node.field] as Named);
  }
}

function memberSql(
  { literals, hasNull, isNegated }: Extract<FilterNode, { kind: 'in' }>,
  field: Named,
): string {
  const own = literals.map(plainOf).filter((literal) => isOfType(field, literal));
  const list = own.map((literal) => literalSql(field, literal)).join(', ');
  const found = own.length === 0 ? 'FALSE' : `COALESCE(${valueSql(field)} IN (${list}), FALSE)`;
  const isIn = hasNull ? `(${field.sql} IS NULL OR ${found})` : found;
  return isNegated ? `(${field.sql} IS NOT NULL AND NOT ${isIn})` : isIn;
}

const NUMBERS: readonly FieldType[] = ['INT', 'BIGINT', 'DECIMAL(20, 0)', 'FLOAT', 'DOUBLE'];

function isOfType({ type, text }: Named, literal: Plain): boolean {
  if (type === 'other' || type === 'BYTES')
    throw unsayable('where', text, 'compares a value that Flink SQL compares otherwise', NEXT);
  if (NUMBERS.includes(type)) return typeof literal === 'number' || typeof literal === 'bigint';
  return typeof literal === (type === 'STRING' ? 'string' : 'boolean');
}

/** Flink orders texts by the bytes of UTF-8, the filter by UTF-16 units. The two agree where one
 *  text has no unit from U+D800. */
function demandOrder({ text }: Named, literal: Plain): void {
  if (typeof literal === 'boolean')
    throw unsayable('where', text, 'orders booleans', 'compare it with = or !=');
  if (typeof literal === 'string' && /[\ud800-\uffff]/.test(literal))
    throw unsayable(
      'where',
      text,
      `orders texts beside ${JSON.stringify(literal)}, which Flink orders by other units`,
      NEXT,
    );
}

const isBinary = ({ type }: Named): boolean => type === 'FLOAT' || type === 'DOUBLE';

const valueSql = (field: Named): string =>
  field.type === 'FLOAT' ? `CAST(${field.sql} AS DOUBLE)` : field.sql;

function literalSql(field: Named, literal: Plain): string {
  if (typeof literal === 'string') return quotedText(literal);
  if (typeof literal === 'boolean') return literal ? 'TRUE' : 'FALSE';
  const isWhole = typeof literal === 'bigint' || Number.isInteger(literal);
  if (isWhole && isBinary(field)) {
    const integer = BigInt(literal);
    if (integer <= -EXACT || integer >= EXACT)
      throw unsayable('where', field.text, `compares doubles with ${literal}, which Flink SQL rounds`, NEXT);
  }
  const digits = isWhole ? String(BigInt(literal)) : plainDecimal(literal as number);
  if (isBinary(field)) return `CAST(${quotedText(digits)} AS DOUBLE)`;
  const count = digits.replace(/[^0-9]/g, '').length;
  if (count > DIGITS_MAX)
    throw unsayable(
      'where',
      field.text,
      `compares with ${literal}, and Flink SQL has numbers of ${DIGITS_MAX} digits`,
      NEXT,
    );
  const scale = digits.split('.')[1]?.length ?? 0;
  return count > PLAIN_DIGITS_MAX
    ? `CAST(${quotedText(digits)} AS DECIMAL(${DIGITS_MAX}, ${scale}))`
    : digits;
}

/** Decimal digits of a double without an exponent. */
function plainDecimal(value: number): string {
  const [, minus = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? [];
  const places = fraction.length - Number(exponent);
  const digits = `${whole}${fraction}`.padStart(places + 1, '0');
  return `${minus}${digits.slice(0, digits.length - places)}.${digits.slice(digits.length - places)}`;
}
