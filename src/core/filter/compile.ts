/** Filter on the fields of a record: a small closed language, compiled to a function.
 *
 *  filter     = and ("or" and)*            and = not ("and" not)*
 *  not        = "not" not | "(" filter ")" | condition
 *  condition  = field ("=" | "!=" | "<" | "<=" | ">" | ">=") literal
 *             | field ["not"] "in" "(" literal ("," literal)* ")" | field "is" ["not"] "null"
 *  field      = ["@"] name ("." name | "[" index "]" | "[]")* [":decimal"]
 *  name       = letters, digits, "_" and "-", or any text in backquotes
 *  literal    = 'text' | "text" | number | true | false | null
 *
 *  Invariants: (1) a comparison with a missing field, with null, or with a value of another type is
 *  false, for "!=" too; only "is null" and "= null" hold for a missing field; (2) numbers are
 *  compared exactly, also 64-bit integers with fractions and decimals; (3) texts are compared by
 *  UTF-16 units. `:decimal` is valid only where the caller reads such fields, and `[]`, which means
 *  the elements of a list, only where the caller compares each of them. */
import { Decimal } from '../decimal/exact.ts';
import { coreError } from '../errors.ts';

/** Greatest length of a filter in characters. */
const FILTER_CHARS_MAX = 8192;
/** Greatest nesting of parentheses and "not". */
const FILTER_DEPTH_MAX = 64;
const SHOWN_CHARS_MAX = 40;

export interface FilterField {
  /** As it is written in the filter. */
  readonly text: string;
  /** True for a property of the record itself, such as `@key`, instead of its value. */
  readonly isMeta: boolean;
  readonly steps: readonly (string | number)[];
  /** Number of the step that is a list whose elements are compared; its name ends with []. Absent:
   *  there is none. */
  readonly list?: number;
  /** True: its value is to be read as a Decimal, from a text too. */
  readonly isDecimal: boolean;
}

export interface FilterOptions {
  /** True: fields may be followed by `:decimal`. */
  readonly hasDecimals?: boolean;
  /** True: `[]` behind a name means the elements of a list. */
  readonly hasElements?: boolean;
}

export interface Filter {
  /** Distinct fields of the filter, in the order of their first use. */
  readonly fields: readonly FilterField[];
  readonly tree: FilterNode;
  /** @param read value of the field with this index, a number also as Decimal; undefined where it
   *  is missing */
  readonly matches: (read: (field: number) => unknown) => boolean;
}

/** Number of a filter. */
interface NumberLiteral {
  readonly number: number | bigint;
  readonly exact: Decimal;
}
export type FilterLiteral = string | NumberLiteral | boolean;
export type FilterSign = '=' | '!=' | '<' | '<=' | '>' | '>=';

/** Syntax tree of a filter; `field` is an index of its fields. A comparison with null is a node
 *  `null`, and a member null of a list is `hasNull`. */
export type FilterNode =
  | { readonly kind: 'and' | 'or'; readonly parts: readonly FilterNode[] }
  | { readonly kind: 'not'; readonly part: FilterNode }
  | { readonly kind: 'null'; readonly field: number; readonly isNegated: boolean }
  | {
      readonly kind: 'compare';
      readonly field: number;
      readonly sign: FilterSign;
      readonly literal: FilterLiteral;
    }
  | {
      readonly kind: 'in';
      readonly field: number;
      readonly literals: readonly FilterLiteral[];
      readonly hasNull: boolean;
      readonly isNegated: boolean;
    };

type Literal = FilterLiteral | null;
type Condition = (read: (field: number) => unknown) => boolean;

interface Token {
  readonly kind: 'name' | 'quoted' | 'text' | 'number' | 'sign' | 'end';
  readonly text: string;
  readonly at: number;
}

const TOKEN =
  /\s*(?:([A-Za-z_][\w-]*)|`([^`]+)`|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(<=|>=|!=|<>|==|[=<>().,[\]@:]))/suy;
const KINDS = ['name', 'quoted', 'text', 'text', 'number', 'sign'] as const;

/** Compiles a filter.
 *  @throws bad_value with the position of the mistake
 *  @example
 *  const filter = compileFilter('status = "PAID" and amount > 100');
 *  filter.matches((field) => fieldOf(event, filter.fields[field].steps));
 */
export function compileFilter(text: string, options: FilterOptions = {}): Filter {
  return new Parser(text, options).filter();
}

/** Value at the steps of a field in a plain value; undefined where there is none. */
export function valueAt(value: unknown, steps: readonly (string | number)[]): unknown {
  let at = value;
  for (const step of steps) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, step)) return undefined;
    at = (at as Readonly<Record<string | number, unknown>>)[step];
  }
  return at;
}

class Parser {
  private readonly text: string;
  private readonly hasDecimals: boolean;
  private readonly hasElements: boolean;
  private readonly tokens: Token[] = [];
  private readonly fields = new Map<string, { readonly index: number; readonly field: FilterField }>();
  private at = 0;
  private depth = 0;

  constructor(text: string, { hasDecimals = false, hasElements = false }: FilterOptions) {
    this.text = text;
    this.hasDecimals = hasDecimals;
    this.hasElements = hasElements;
    if (text.length > FILTER_CHARS_MAX) this.fail(`it is longer than ${FILTER_CHARS_MAX} characters`, 0);
    this.tokenize();
  }

  filter(): Filter {
    const tree = this.or();
    const { kind, at } = this.peek();
    if (kind !== 'end') this.fail(`${this.shown()} stands where "and", "or" or the end is due`, at);
    const fields = [...this.fields.values()].map(({ field }) => field);
    return { fields, tree, matches: conditionOf(tree) };
  }

  private fail(why: string, at: number): never {
    throw coreError('bad_value', `the filter is not valid at character ${at + 1}: ${why}`, {
      next: `write for example status = "PAID" and amount > 100`,
      details: { at },
    });
  }

  private tokenize(): void {
    const { text } = this;
    let from = 0;
    while (text.slice(from).trim() !== '') {
      TOKEN.lastIndex = from;
      const found = TOKEN.exec(text);
      const start = from + (/^\s*/.exec(text.slice(from)) as RegExpExecArray)[0].length;
      if (found === null) this.fail(`${JSON.stringify(text.slice(start, start + 1))} begins no word`, start);
      const kind = found.findIndex((part, index) => index > 0 && part !== undefined) - 1;
      const token = found[kind + 1] as string;
      this.tokens.push({ kind: KINDS[kind] as Token['kind'], text: token, at: start });
      from = TOKEN.lastIndex;
    }
    this.tokens.push({ kind: 'end', text: '', at: text.length });
  }

  private peek(): Token {
    return this.tokens[this.at] as Token;
  }

  private take(): Token {
    return this.tokens[this.at++] as Token;
  }

  private shown(): string {
    const { kind, text } = this.peek();
    return kind === 'end' ? 'the end' : JSON.stringify(text.slice(0, SHOWN_CHARS_MAX));
  }

  /** Consumes a word of the language, in any case. */
  private word(word: string): boolean {
    const { kind, text } = this.peek();
    if (kind !== 'name' || text.toLowerCase() !== word) return false;
    this.at++;
    return true;
  }

  private sign(sign: string): boolean {
    const { kind, text } = this.peek();
    if (kind !== 'sign' || text !== sign) return false;
    this.at++;
    return true;
  }

  private expect(sign: string): void {
    if (!this.sign(sign)) this.fail(`${this.shown()} stands where ${sign} is due`, this.peek().at);
  }

  private or(): FilterNode {
    const parts = [this.and()];
    while (this.word('or')) parts.push(this.and());
    return parts.length === 1 ? (parts[0] as FilterNode) : { kind: 'or', parts };
  }

  private and(): FilterNode {
    const parts = [this.not()];
    while (this.word('and')) parts.push(this.not());
    return parts.length === 1 ? (parts[0] as FilterNode) : { kind: 'and', parts };
  }

  private not(): FilterNode {
    if (++this.depth > FILTER_DEPTH_MAX)
      this.fail(`it is nested deeper than ${FILTER_DEPTH_MAX}`, this.peek().at);
    const made = this.inner();
    this.depth--;
    return made;
  }

  private inner(): FilterNode {
    if (this.word('not')) return { kind: 'not', part: this.not() };
    if (this.sign('(')) {
      const node = this.or();
      this.expect(')');
      return node;
    }
    return this.condition();
  }

  private condition(): FilterNode {
    const field = this.field();
    if (this.word('is')) {
      const isNegated = this.word('not');
      if (!this.word('null')) this.fail(`${this.shown()} stands where null is due`, this.peek().at);
      return { kind: 'null', field, isNegated };
    }
    const isNegated = this.word('not');
    if (this.word('in')) return this.membership(field, isNegated);
    const { kind, text, at } = this.peek();
    const sign = kind === 'sign' && Object.hasOwn(SIGNS, text) ? SIGNS[text] : undefined;
    if (sign === undefined || isNegated)
      this.fail(`${this.shown()} stands where =, !=, <, <=, >, >=, in or is is due`, at);
    this.at++;
    const literal = this.literal();
    if (literal !== null) return { kind: 'compare', field, sign, literal };
    if (sign === '=' || sign === '!=') return { kind: 'null', field, isNegated: sign === '!=' };
    return this.fail(`${text} does not compare with null`, at);
  }

  private membership(field: number, isNegated: boolean): FilterNode {
    this.expect('(');
    const all = [this.literal()];
    while (this.sign(',')) all.push(this.literal());
    this.expect(')');
    const literals = all.filter((literal) => literal !== null);
    return { kind: 'in', field, literals, hasNull: literals.length < all.length, isNegated };
  }

  /** Index of the field. */
  private field(): number {
    const start = this.peek().at;
    const isMeta = this.sign('@');
    const steps: (string | number)[] = [this.name()];
    let list: number | undefined;
    for (;;) {
      if (this.sign('.')) steps.push(this.name());
      else if (this.sign('[')) {
        if (this.hasElements && typeof steps.at(-1) === 'string' && this.sign(']')) {
          if (list !== undefined) this.fail('it names the elements of a list inside a list', start);
          list = steps.length - 1;
          steps[list] = `${steps[list]}[]`;
          continue;
        }
        const { kind, text, at } = this.take();
        if (kind !== 'number' || !/^\d{1,9}$/.test(text)) this.fail('an index is a number from 0', at);
        steps.push(Number(text));
        this.expect(']');
      } else break;
    }
    const text = this.text.slice(start, this.peek().at).trim();
    const isDecimal = this.hasDecimals && this.sign(':') && this.kind();
    const key = JSON.stringify([isMeta, steps, isDecimal, list]);
    const field = { text, isMeta, steps, isDecimal, ...(list === undefined ? {} : { list }) };
    const known = this.fields.get(key) ?? { index: this.fields.size, field };
    this.fields.set(key, known);
    return known.index;
  }

  /** Consumes the kind of a field. */
  private kind(): true {
    if (!this.word('decimal')) this.fail(`${this.shown()} stands where decimal is due`, this.peek().at);
    return true;
  }

  private name(): string {
    const { kind, text, at } = this.peek();
    if (kind !== 'name' && kind !== 'quoted') this.fail(`${this.shown()} stands where a field is due`, at);
    this.at++;
    return text;
  }

  private literal(): Literal {
    const { kind, text, at } = this.take();
    if (kind === 'text') return this.unescaped(text, at);
    if (kind === 'number') {
      const exact = Decimal.parse(text);
      if (exact === undefined) this.fail('the number has too many digits', at);
      return { number: /^-?\d+$/.test(text) ? BigInt(text) : Number(text), exact };
    }
    const word = kind === 'name' ? text.toLowerCase() : '';
    if (word === 'true' || word === 'false') return word === 'true';
    if (word === 'null') return null;
    this.at--;
    return this.fail(
      `${this.shown()} stands where a value is due: a text in quotes, a number, true, false or null`,
      at,
    );
  }

  private unescaped(text: string, at: number): string {
    return text.replace(/\\(u[0-9a-fA-F]{4}|.)/gsu, (_all, escaped: string) => {
      if (escaped.length === 5) return String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
      return ESCAPES[escaped] ?? this.fail(`"\\${escaped}" is no escape`, at);
    });
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "'": "'",
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

const isNull = (value: unknown): boolean => value === null || value === undefined;
const isNumber = (literal: NonNullable<Literal>): literal is NumberLiteral => typeof literal === 'object';

/** Negative, zero or positive, as a value is less than, equal to or greater than a literal of its
 *  type. NaN: they have no order. Undefined: the types differ. */
function orderOf(value: unknown, literal: NonNullable<Literal>): number | undefined {
  if (!isNumber(literal)) {
    if (typeof value !== typeof literal) return undefined;
    return (value as string) < (literal as string) ? -1 : value === literal ? 0 : 1;
  }
  if (value instanceof Decimal) return value.compare(literal.exact);
  if (typeof value !== 'number' && typeof value !== 'bigint') return undefined;
  // A bigint and a number are compared by their order, which is exact.
  const { number } = literal;
  return value < number ? -1 : value > number ? 1 : value >= number ? 0 : Number.NaN;
}

const isEqual = (value: unknown, literal: NonNullable<Literal>): boolean => orderOf(value, literal) === 0;

type Compare = (value: unknown, literal: NonNullable<Literal>) => boolean;

const ordered =
  (holds: (order: number) => boolean): Compare =>
  (value, literal) => {
    const order = orderOf(value, literal);
    return order !== undefined && holds(order);
  };

const COMPARISONS: Readonly<Record<FilterSign, Compare>> = {
  '=': isEqual,
  '!=': ordered((order) => order !== 0),
  '<': ordered((order) => order < 0),
  '<=': ordered((order) => order <= 0),
  '>': ordered((order) => order > 0),
  '>=': ordered((order) => order >= 0),
};

/** Signs of the language, with their second spellings. */
const SIGNS: Readonly<Record<string, FilterSign>> = {
  '=': '=',
  '==': '=',
  '!=': '!=',
  '<>': '!=',
  '<': '<',
  '<=': '<=',
  '>': '>',
  '>=': '>=',
};

function conditionOf(node: FilterNode): Condition {
  switch (node.kind) {
    case 'and':
    case 'or': {
      const parts = node.parts.map(conditionOf);
      return node.kind === 'and'
        ? (read) => parts.every((condition) => condition(read))
        : (read) => parts.some((condition) => condition(read));
    }
    case 'not': {
      const condition = conditionOf(node.part);
      return (read) => !condition(read);
    }
    case 'null':
      return (read) => isNull(read(node.field)) !== node.isNegated;
    case 'compare': {
      const compare = COMPARISONS[node.sign];
      return (read) => compare(read(node.field), node.literal);
    }
    case 'in': {
      const { field, literals, hasNull, isNegated } = node;
      const isIn = (value: unknown): boolean =>
        (hasNull && isNull(value)) || literals.some((literal) => isEqual(value, literal));
      return isNegated ? (read) => !isNull(read(field)) && !isIn(read(field)) : (read) => isIn(read(field));
    }
  }
}
