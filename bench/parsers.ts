/** Fuzzes the schema parsers of both formats: bytes and words of valid schemas are cut, doubled,
 *  swapped and replaced, and words are combined at random. A text is either refused with a Millrace
 *  error or accepted. An accepted schema prints to a text that parses and prints unchanged, and is
 *  compared with the previously accepted schema. No other error and no hang is allowed. */
import { findMillraceError, invariant } from '../src/core/errors.ts';
import { parseSchema, type Schema } from '../src/formats/schema.ts';
import { checkPair, VERDICT_POLICIES } from '../src/registry/compatibility/modes.ts';
import { Chance } from './compatibility/avro-model.ts';
import { avroPair } from './compatibility/avro-pairs.ts';
import { protoPair } from './compatibility/proto-pairs.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';

/** Number of texts, both formats together. */
const CASES = 1_000_000;
const CASES_SMOKE = 4_000;
const SEED = 1;
const SLOWEST_MS_MAX = 1_000;
/** Goal for the largest resident memory of the process. */
const MEMORY_MB_MAX = 700;
const MUTATIONS_MAX = 6;
/** Length at which a mutated text is cut. */
const TEXT_CHARS_MAX = 40_000;
const FRESH_WORDS_MAX = 60;
const REPORTED_MAX = 20;
const PROGRESS_CASES = 50_000;
const MEMORY_EVERY_CASES = 500;

interface Language {
  readonly format: 'AVRO' | 'PROTOBUF';
  readonly name: string;
  /** A valid schema. */
  validSchema(seed: number): string;
  readonly words: readonly string[];
}

/** Hostile words for both formats. */
const HOSTILE: readonly string[] = [
  '\u0000',
  '\uFEFF',
  '\uD800',
  '\uDC00',
  '\uFFFD',
  '\u2028',
  '99999999999999999999999999999999999999',
  '-9223372036854775809',
  '1e999999999',
  '0x7fffffffffffffff',
  '0.1e-400',
  'NaN',
  '__proto__',
  'constructor',
  '/*',
  '*/',
  '//',
  '\\u0000',
  '\\ud800',
  '"',
  '\\',
  '\n',
  '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[',
  '{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{',
  ']]]]]]]]',
  '}}}}}}}}',
];

const LANGUAGES: readonly Language[] = [
  {
    format: 'AVRO',
    name: 'Avro',
    validSchema: (seed) => avroPair(seed).writer,
    words: [
      ...'{ } [ ] : , "type" "name" "namespace" "fields" "items" "values" "symbols" "size" "default" "aliases" "order" "doc" "logicalType" "precision" "scale"'.split(
        ' ',
      ),
      ...'"record" "error" "enum" "fixed" "array" "map" "null" "boolean" "int" "long" "float" "double" "bytes" "string" "decimal" "uuid" "date"'.split(
        ' ',
      ),
      ...'null true false 0 1 -1 16 "A" "B" "a.b.C" "" "a..b" "1a"'.split(' '),
      '{"type":"record","name":"R","fields":[{"name":"f","type":"R"}]}',
      '{"type":"array","items":',
      '{"type":"map","values":',
    ],
  },
  {
    format: 'PROTOBUF',
    name: 'Protobuf',
    validSchema: (seed) => protoPair(seed).writer,
    words: [
      ...'{ } [ ] ( ) < > ; , = . - + syntax edition package import public weak option message enum service rpc returns stream oneof map repeated optional required group extend extensions reserved to max'.split(
        ' ',
      ),
      ...'int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool float double string bytes inf nan true false'.split(
        ' ',
      ),
      ...'"proto2" "proto3" "2023" "2024" A B f g 0 1 2 15 16 19000 536870911 536870912 -1 default packed json_name deprecated features.field_presence'.split(
        ' ',
      ),
      'message M { M m = 1; }',
      'google.protobuf.Any',
      'map<string, M> x = 1;',
      'oneof o { int32 x = 1; }',
    ],
  },
];

const TOKEN = /"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|-?\d[\w.]*|\s+|[^\s\w]/g;

/** Generates a hostile text. */
function hostile(language: Language, seed: number): string {
  const chance = new Chance(Math.imul(seed, 0x85ebca6b) ^ 0x27d4eb2f);
  const word = (): string => chance.pick(chance.maybe(0.25) ? HOSTILE : language.words);
  if (chance.maybe(0.1)) {
    const words = Array.from({ length: 1 + chance.below(FRESH_WORDS_MAX) }, word);
    return words.join(chance.maybe(0.5) ? ' ' : '');
  }
  let text = language.validSchema(seed);
  const byBytes = chance.maybe(0.4);
  for (let left = 1 + chance.below(1 + chance.below(MUTATIONS_MAX)); left > 0; left--)
    text = (byBytes ? bytesChanged(text, chance) : wordsChanged(text, chance, word)).slice(0, TEXT_CHARS_MAX);
  return text;
}

function bytesChanged(text: string, chance: Chance): string {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length === 0) return '\u0000';
  const at = chance.below(bytes.length);
  const until = Math.min(bytes.length, at + 1 + chance.below(24));
  switch (chance.below(4)) {
    case 0:
      bytes[at] = chance.below(256);
      return bytes.toString('utf8');
    case 1:
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(until)]).toString('utf8');
    case 2:
      return bytes.subarray(0, at).toString('utf8');
    default:
      return Buffer.concat([bytes.subarray(0, until), bytes.subarray(at)]).toString('utf8');
  }
}

const kindOf = (token: string): string =>
  /^["\s\d-]|^\w/
    .exec(token)?.[0]
    .replace(/\d/, '0')
    .replace(/[a-z_]/i, 'a') ?? token;

function wordsChanged(text: string, chance: Chance, word: () => string): string {
  const tokens = text.match(TOKEN) ?? [''];
  const at = chance.below(tokens.length);
  const until = at + 1 + chance.below(12);
  switch (chance.below(8)) {
    case 0:
      tokens[at] = word();
      break;
    case 5:
    case 6:
    case 7: {
      // A token of the same kind keeps the text nearly valid.
      const kind = kindOf(tokens[at] as string);
      const alike = tokens.filter((token) => kindOf(token) === kind);
      tokens[at] = chance.pick(alike);
      break;
    }
    case 1:
      tokens.splice(at, until - at);
      break;
    case 2:
      tokens.splice(at, 0, word(), ' ');
      break;
    case 3:
      tokens.splice(at, 0, ...tokens.slice(at, until));
      break;
    default: {
      const other = chance.below(tokens.length);
      [tokens[at], tokens[other]] = [tokens[other] as string, tokens[at] as string];
    }
  }
  return tokens.join('');
}

/** @returns the schema; undefined if the text is refused */
function parsed(language: Language, text: string): Schema | undefined {
  try {
    return parseSchema(language.format, text);
  } catch (thrown) {
    if (findMillraceError(thrown) === undefined) throw thrown;
    return undefined;
  }
}

/** @throws any error other than a refusal */
function attack(language: Language, text: string, before: Schema | undefined): Schema | undefined {
  const schema = parsed(language, text);
  if (schema === undefined) return undefined;
  const again = parsed(language, schema.text);
  invariant(again !== undefined, 'the printed text of a schema is accepted');
  invariant(again.text === schema.text, 'the printed text of a schema prints unchanged');
  for (const policy of VERDICT_POLICIES)
    if (before !== undefined) {
      checkPair(schema, before, policy);
      checkPair(before, schema, policy);
    }
  return schema;
}

function measure(language: Language, cases: number, seed: number, context: BenchContext): BenchResult[] {
  let accepted = 0;
  let failures = 0;
  let slowestMs = 0;
  let memoryMb = 0;
  let before: Schema | undefined;
  const started = performance.now();
  for (let n = 0; n < cases && !context.drain.aborted; n++) {
    const text = hostile(language, seed + n);
    const from = performance.now();
    try {
      const schema = attack(language, text, before);
      if (schema !== undefined) {
        accepted++;
        before = schema;
      }
    } catch (thrown) {
      if (failures++ < REPORTED_MAX)
        context.say(
          `${language.name} text ${seed + n}: ${String(thrown)}: ${JSON.stringify(text.slice(0, 500))}`,
        );
    }
    slowestMs = Math.max(slowestMs, performance.now() - from);
    if (n % MEMORY_EVERY_CASES === 0) memoryMb = Math.max(memoryMb, process.memoryUsage.rss() / 1e6);
    if ((n + 1) % PROGRESS_CASES === 0) context.say(`${language.name}: ${n + 1} texts, ${failures} failed`);
  }
  const seconds = (performance.now() - started) / 1000;
  // A smoke run has no bounds, because it shares its process and machine with other tests.
  const bound = (valueAtMost: number) => (context.smoke ? undefined : { valueAtMost });
  const row = (
    metric: string,
    unit: string,
    value: number,
    goal?: { readonly valueAtMost: number },
  ): BenchResult =>
    result({
      metric: `${language.name}: ${metric}`,
      unit,
      ours: seriesOf([value]),
      better: 'less',
      ...(goal === undefined ? {} : { goal }),
    });
  return [
    row('texts that threw another error or printed otherwise', 'texts', failures, { valueAtMost: 0 }),
    row(`hostile texts, seeds from ${seed}`, 'texts', cases),
    row('share of texts that are taken', 'of 1', accepted / cases),
    row('slowest text: parsed twice, compared four times', 'ms', slowestMs, bound(SLOWEST_MS_MAX)),
    row('memory of the process at most', 'MB', memoryMb, bound(MEMORY_MB_MAX)),
    row('texts', 'texts/s', cases / seconds),
  ];
}

export const bench: Bench = {
  name: 'parsers',
  summary: 'hostile texts for the schema parsers: no other error, no hang, bounded memory (-cases, -seed)',
  run(context) {
    const cases = context.cases ?? (context.smoke ? CASES_SMOKE : CASES);
    const seed = context.seed ?? SEED;
    const each = Math.ceil(cases / LANGUAGES.length);
    return Promise.resolve(LANGUAGES.flatMap((language) => measure(language, each, seed, context)));
  },
};
