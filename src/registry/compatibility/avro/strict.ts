/** Avro compatibility under policy STRICT: the findings that the existing registries report.
 *
 *  They run `SchemaCompatibility` of Apache Avro, which differs from live decode:
 *  - every pair is judged once, and a later occurrence repeats the first answer with its pointer;
 *  - a pair that occurs inside itself counts as compatible;
 *  - a finding inside a branch of a union is reported as the branch alone, and its pointers start
 *  at the branch;
 *  - a missing field whose enum type has a default symbol is compared with the whole record;
 *  - a field that matches two written fields ends the whole check.
 *
 *  Logical types, defaults and rounding promotions are not checked.
 *  Source: SchemaCompatibility.java of apache/avro 1.12.0. Pairs are judged in its order, with an
 *  explicit stack instead of recursion. */
import {
  type AvroEnumNode,
  type AvroFixedNode,
  type AvroNamedNode,
  type AvroNode,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import {
  type EventRoute,
  type Finding,
  Findings,
  type SchemaPlace,
  type Step,
  type StepBudget,
  someOf,
} from '../finding.ts';
import { isNamed, Names, unqualified } from './names.ts';
import { fieldPlace, placeOf } from './trail.ts';
import { PROMOTIONS } from './union.ts';

type StrictRule =
  | 'NAME_MISMATCH'
  | 'FIXED_SIZE_MISMATCH'
  | 'MISSING_ENUM_SYMBOLS'
  | 'READER_FIELD_MISSING_DEFAULT_VALUE'
  | 'TYPE_MISMATCH'
  | 'MISSING_UNION_BRANCH';

/** Most symbols of a list in a message. */
const SYMBOLS_LISTED_MAX = 100;

/** Path to a pair: the pointer in the reader's schema, and the route of an event. A linked list,
 *  rendered only for findings. */
interface Way {
  readonly outer: Way | undefined;
  /** Token of the JSON pointer; undefined: the pointer starts anew here. */
  readonly token: string | undefined;
  /** Part of the path that messages show. */
  readonly label: string;
  readonly route: EventRoute | undefined;
}

interface Wrong {
  readonly rule: StrictRule;
  readonly way: Way;
  readonly message: string;
  readonly detail: () => string;
  readonly reader: SchemaPlace;
  readonly writer: SchemaPlace;
}

/** Result of a pair: its own findings, and repeated results of other pairs. Empty: compatible. */
type Answer = ReadonlyArray<Wrong | Answers>;
interface Answers {
  readonly inner: Answer;
}

/** Generator that judges one pair: it yields the pairs that it depends on and receives their
 *  answers. */
type Judging = Generator<Question, Answer, Answer>;
interface Question {
  readonly reader: AvroNode;
  readonly writer: AvroNode;
  readonly way: Way;
}

const COMPATIBLE: Answer = [];

export function checkStrictAvro(reader: AvroNode, writer: AvroNode, budget?: StepBudget): readonly Finding[] {
  const strict = new Strict(budget);
  const way = {
    outer: undefined,
    token: undefined,
    label: unqualified(avroTypeName(reader)),
    route: undefined,
  };
  const answer = strict.run({ reader, writer, way });
  return answer === undefined ? strict.findings.all() : shown(answer);
}

/** Flattens an answer: each finding once, in order, even if an answer was repeated. */
function shown(answer: Answer): readonly Finding[] {
  const findings = new Findings();
  const shownAnswers = new Set<Answer>();
  const open: Array<Wrong | Answers> = [{ inner: answer }];
  for (let next = open.pop(); next !== undefined && findings.accepts('fail'); next = open.pop()) {
    if ('inner' in next) {
      if (shownAnswers.has(next.inner)) continue;
      shownAnswers.add(next.inner);
      for (let i = next.inner.length - 1; i >= 0; i--) open.push(next.inner[i] as Wrong | Answers);
      continue;
    }
    const { rule, way, message, detail, reader, writer } = next;
    const { route } = way;
    findings.add('fail', rule, labelsOf(way), message, {
      reader,
      writer,
      pointer: pointerOf(way),
      detail: detail(),
      ...(route === undefined ? {} : { route }),
    });
  }
  return findings.all();
}

function listOf(way: Way): Way[] {
  const list: Way[] = [];
  for (let one: Way | undefined = way; one !== undefined; one = one.outer) list.push(one);
  return list.reverse();
}

const labelsOf = (way: Way): string =>
  listOf(way)
    .map(({ label }) => label)
    .join('');

/** Renders the pointer since the innermost start. */
function pointerOf(way: Way): string {
  const list = listOf(way);
  const begin = list.findLastIndex(({ token }) => token === undefined);
  const tokens = list.slice(begin + 1).map(({ token }) => token);
  return `/${tokens.join('/')}`;
}

function into(outer: Way, token: string | undefined, label: string, step?: Step): Way {
  return { outer, token, label, route: step === undefined ? outer.route : { outer: outer.route, step } };
}

/** Name of a type in the detail of a finding. */
const kindWord = (node: AvroNode): string =>
  (node.kind === 'primitive' ? node.type : node.kind).toUpperCase();

const typeOf = (node: AvroNode): string => (node.kind === 'primitive' ? node.type : node.kind);

class Strict {
  readonly findings: Findings;
  private readonly names = new Names();
  private readonly answers = new Map<AvroNode, Map<AvroNode, Answer>>();

  constructor(budget: StepBudget | undefined) {
    this.findings = new Findings(budget);
  }

  /** Judges the root pair. Undefined: the check ended early, and a finding has the reason. */
  run(root: Question): Answer | undefined {
    const open: Array<{ readonly judging: Judging; readonly question: Question }> = [];
    let question: Question | undefined = root;
    let answer: Answer | undefined;
    for (;;) {
      if (question !== undefined) {
        const { way } = question;
        this.findings.spend(1, () => labelsOf(way));
        answer = this.known(question);
        if (answer === undefined) open.push({ judging: this.judge(question), question });
      }
      const last = open[open.length - 1];
      if (last === undefined || this.findings.all().length > 0) break;
      // A generator ignores the argument of the first `next`.
      const { done, value } = last.judging.next(answer as Answer);
      question = done === true ? undefined : (value as Question);
      if (done === true) {
        answer = value as Answer;
        this.keep(last.question, answer);
        open.pop();
      }
    }
    return this.findings.all().length > 0 ? undefined : answer;
  }

  /** Returns the cached answer of a pair. A pair in progress counts as compatible. */
  private known({ reader, writer, way }: Question): Answer | undefined {
    if (reader.kind === 'primitive' && writer.kind === 'primitive')
      return this.primitives(reader, writer, way);
    const known = this.answers.get(reader)?.get(writer);
    if (known === undefined) this.keep({ reader, writer, way }, COMPATIBLE);
    return known;
  }

  private keep({ reader, writer }: Question, answer: Answer): void {
    const of = this.answers.get(reader) ?? new Map<AvroNode, Answer>();
    this.answers.set(reader, of.set(writer, answer));
  }

  private primitives(reader: AvroNode, writer: AvroNode, way: Way): Answer {
    if (reader.kind !== 'primitive' || writer.kind !== 'primitive') return COMPATIBLE;
    if (reader.type === writer.type || PROMOTIONS[writer.type]?.[reader.type] !== undefined)
      return COMPATIBLE;
    return [mismatch({ reader, writer, way })];
  }

  private *judge({ reader, writer, way }: Question): Judging {
    if (reader.kind === 'union' && writer.kind === 'union') return yield* this.unions(reader, writer, way);
    if (writer.kind === 'union') {
      const all: Answers[] = [];
      for (const [index, branch] of writer.branches.entries()) {
        const step = { kind: 'branch', index } as const;
        const inner = yield { reader, writer: branch, way: into(way, String(index), '', step) };
        if (inner.length > 0) all.push({ inner });
      }
      return all;
    }
    if (reader.kind === 'union') {
      for (const branch of reader.branches) {
        const inner = yield { reader: branch, writer, way: into(way, undefined, '') };
        if (inner.length === 0) return COMPATIBLE;
      }
      return [missingBranch(reader, writer, way, writer)];
    }
    if (reader.kind === 'array' && writer.kind === 'array')
      return yield {
        reader: reader.items,
        writer: writer.items,
        way: into(way, 'items', '[]', { kind: 'item' }),
      };
    if (reader.kind === 'map' && writer.kind === 'map')
      return yield {
        reader: reader.values,
        writer: writer.values,
        way: into(way, 'values', '{}', { kind: 'value' }),
      };
    if (reader.kind === 'fixed' && writer.kind === 'fixed')
      return [...this.name(reader, writer, way), ...sizes(reader, writer, way)];
    if (reader.kind === 'enum' && writer.kind === 'enum')
      return [...this.name(reader, writer, way), ...this.symbols(reader, writer, way)];
    if (reader.kind === 'record' && writer.kind === 'record') return yield* this.records(reader, writer, way);
    return [mismatch({ reader, writer, way })];
  }

  private *unions(reader: AvroUnionNode, writer: AvroUnionNode, way: Way): Judging {
    const wrong: Wrong[] = [];
    for (const [index, branch] of writer.branches.entries()) {
      const at = into(way, String(index), '', { kind: 'branch', index });
      const inner = yield { reader, writer: branch, way: into(at, undefined, '') };
      if (inner.length > 0) wrong.push(missingBranch(reader, writer, at, branch));
    }
    return wrong;
  }

  private name(reader: AvroNamedNode, writer: AvroNamedNode, way: Way): Answer {
    if (this.names.match(reader, writer) !== 'none') return COMPATIBLE;
    return [
      {
        rule: 'NAME_MISMATCH',
        way: into(way, 'name', ''),
        message: `the reader's type is named ${reader.name}, the writer's ${writer.name}`,
        detail: () => `expected: ${writer.name}`,
        reader: placeOf(reader),
        writer: placeOf(writer),
      },
    ];
  }

  private symbols(reader: AvroEnumNode, writer: AvroEnumNode, way: Way): Answer {
    if (reader.defaultSymbol !== undefined) return COMPATIBLE;
    this.findings.spend(reader.symbols.length + writer.symbols.length, () => labelsOf(way));
    const known = new Set(reader.symbols);
    const missing = writer.symbols.filter((symbol) => !known.has(symbol));
    if (missing.length === 0) return COMPATIBLE;
    return [
      {
        rule: 'MISSING_ENUM_SYMBOLS',
        way: into(way, 'symbols', ''),
        message: `the reader's ${reader.name} lacks ${someOf(missing)}`,
        detail: () => {
          const rest = missing.length - SYMBOLS_LISTED_MAX;
          const listed = missing.sort().slice(0, SYMBOLS_LISTED_MAX).join(', ');
          return rest > 0 ? `[${listed} and ${rest} more]` : `[${listed}]`;
        },
        reader: placeOf(reader),
        writer: placeOf(writer),
      },
    ];
  }

  private *records(reader: AvroRecordNode, writer: AvroRecordNode, way: Way): Judging {
    const wrong: Array<Wrong | Answers> = [...this.name(reader, writer, way)];
    const written = new Map(writer.fields.map((field) => [field.name, field]));
    const fields = into(way, 'fields', '');
    if (!this.findings.spend(reader.fields.length + writer.fields.length, () => labelsOf(way))) return wrong;
    for (const [index, field] of reader.fields.entries()) {
      if (!this.findings.spend(field.aliases.length, () => labelsOf(way))) return wrong;
      const at = into(fields, String(index), `.${field.name}`);
      // A field's own name among its aliases counts again, as in the original.
      const matches = [field.name, ...field.aliases].filter((name) => written.has(name));
      const places = { reader: fieldPlace(reader, field), writer: placeOf(writer) };
      if (matches.length > 1) {
        const { route } = way;
        this.findings.add(
          'fail',
          'AVRO_ALIAS_AMBIGUOUS',
          labelsOf(at),
          `the reader's field "${field.name}" matches several written fields: ${someOf(matches)}`,
          route === undefined ? places : { ...places, route },
        );
        return wrong;
      }
      const match = matches[0] === undefined ? undefined : written.get(matches[0]);
      if (match !== undefined) {
        const to = into(at, 'type', '', { kind: 'field', key: match.name });
        const inner = yield { reader: field.type, writer: match.type, way: to };
        if (inner.length > 0) wrong.push({ inner });
      } else if (field.hasDefault) {
        // The field gets its default, even one that does not fit.
      } else if (field.type.kind === 'enum' && field.type.defaultSymbol !== undefined) {
        const inner = yield { reader: field.type, writer, way: into(at, 'type', '') };
        if (inner.length > 0) wrong.push({ inner });
      } else {
        wrong.push({
          rule: 'READER_FIELD_MISSING_DEFAULT_VALUE',
          way: at,
          message: `field "${field.name}" has no default, and the writer does not write it`,
          detail: () => field.name,
          ...places,
        });
      }
    }
    return wrong;
  }
}

function mismatch({ reader, writer, way }: Question): Wrong {
  return {
    rule: 'TYPE_MISMATCH',
    way,
    message: `a reader of type ${typeOf(reader)} cannot read ${typeOf(writer)}`,
    detail: () => `reader type: ${kindWord(reader)} not compatible with writer type: ${kindWord(writer)}`,
    reader: placeOf(reader),
    writer: placeOf(writer),
  };
}

function missingBranch(reader: AvroNode, writer: AvroNode, way: Way, branch: AvroNode): Wrong {
  return {
    rule: 'MISSING_UNION_BRANCH',
    way,
    message: `the reader's union has no branch that reads the written ${avroTypeName(branch)}`,
    detail: () => `reader union lacking writer type: ${kindWord(branch)}`,
    reader: placeOf(reader),
    writer: placeOf(isNamed(branch) ? writer : branch),
  };
}

function sizes(reader: AvroFixedNode, writer: AvroFixedNode, way: Way): Answer {
  if (reader.size === writer.size) return COMPATIBLE;
  return [
    {
      rule: 'FIXED_SIZE_MISMATCH',
      way: into(way, 'size', ''),
      message: `the reader takes ${reader.size} bytes, the writer writes ${writer.size}`,
      detail: () => `expected: ${writer.size}, found: ${reader.size}`,
      reader: placeOf(reader),
      writer: placeOf(writer),
    },
  ];
}
