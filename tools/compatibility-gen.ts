/** Writes docs/results/compatibility.md: each class of schema changes in each mode and policy, with
 *  the result of live decoding and, for a refusal, an event that demonstrates it. The changes and
 *  the expected results come from the conformance tables; every verdict and event of the page is
 *  computed here. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { invariant } from '../src/core/errors.ts';
import { parseSchema, type Schema } from '../src/formats/schema.ts';
import type { Finding } from '../src/registry/compatibility/finding.ts';
import {
  checkPair,
  judge,
  LEVELS,
  VERDICT_POLICIES,
  type VerdictPolicy,
} from '../src/registry/compatibility/modes.ts';
import { type Counterexample, counterexampleOf } from '../src/registry/proof/counterexample.ts';
import { tryAll } from '../src/registry/proof/live.ts';
import { packageRoot } from '../src/shell/package.ts';

const PAGE = 'docs/results/compatibility.md';
const TABLES = [
  ['Avro', 'test/conformance/registry-compatibility.json'],
  ['Protobuf', 'test/conformance/registry-compatibility-proto.json'],
] as const;
/** Number of events tried for one direction of a change. */
const EVENTS_MAX = 1_000;
const SHOWN_CHARS_MAX = 160;

const DIRECTIONS = ['BACKWARD', 'FORWARD'] as const;
type Direction = (typeof DIRECTIONS)[number];
type AvroField = readonly [name: string, type: unknown, value?: unknown, alias?: string];

interface Case {
  readonly change: string;
  readonly syntax?: string;
  readonly old: readonly AvroField[] | string;
  readonly new: readonly AvroField[] | string;
  readonly decode: Readonly<Record<Direction, string>>;
}

function avroField([name, type, value, alias]: AvroField): Record<string, unknown> {
  if (value === 'ALIAS') return { name, type, aliases: [alias] };
  return value === undefined ? { name, type } : { name, type, default: value };
}

function schemaOf(source: Case['old'], syntax = 'proto3'): Schema {
  if (typeof source !== 'string')
    return parseSchema(
      'AVRO',
      JSON.stringify({ type: 'record', name: 'Order', fields: source.map(avroField) }),
    );
  const isFile = /^(syntax|edition) /.test(source);
  return parseSchema('PROTOBUF', isFile ? source : `syntax = "${syntax}"; message Order { ${source} }`);
}

const cell = (text: string): string => {
  const cut = text.length > SHOWN_CHARS_MAX ? `${text.slice(0, SHOWN_CHARS_MAX)}…` : text;
  return cut
    .replace(/\p{Cc}/gu, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .replaceAll('|', '\\|')
    .replaceAll('`', "'");
};

/** First finding of the given severity with an event that demonstrates it. */
function shownBy(
  reader: Schema,
  writer: Schema,
  severity: Finding['severity'],
): { readonly finding: Finding; readonly event: Counterexample } | undefined {
  for (const finding of checkPair(reader, writer)) {
    if (finding.severity !== severity) continue;
    // Unlimited time, so that the page does not depend on the load of the machine.
    const event = counterexampleOf(finding, reader, writer, Number.POSITIVE_INFINITY);
    if (event !== undefined) return { finding, event };
  }
  return undefined;
}

interface Live {
  readonly outcome: string;
  readonly events: number;
  readonly note: string;
}

function live(reader: Schema, writer: Schema): Live {
  const { outcome, trials } = tryAll(reader, writer, { limit: EVENTS_MAX });
  if (outcome === 'OK') return { outcome, events: trials, note: '' };
  const shown = shownBy(reader, writer, outcome === 'FAIL' ? 'fail' : 'lossy');
  invariant(shown !== undefined, 'the checker reports what live decoding finds');
  const { finding, event } = shown;
  const at = event.at === undefined ? '' : `, breaks at byte ${event.at}`;
  const note = `${finding.rule}: the event \`${cell(event.json)}\` = \`${event.hex === '' ? '(no byte)' : event.hex}\`${at}: ${cell(event.got)}`;
  return { outcome, events: trials, note };
}

function row(one: Case): readonly string[] {
  const [before, after] = [schemaOf(one.old, one.syntax), schemaOf(one.new, one.syntax)];
  const versions = [{ version: 1, schema: before }];
  const found = { BACKWARD: live(after, before), FORWARD: live(before, after) };
  for (const direction of DIRECTIONS)
    invariant(
      found[direction].outcome === one.decode[direction],
      `${one.change}, ${direction}: live decoding agrees with the table`,
    );
  const verdicts = (policy: VerdictPolicy): string =>
    LEVELS.map((level) => (judge(after, level, versions, policy).compatible ? '✓' : '✗')).join(' | ');
  const decode = DIRECTIONS.map((direction) => `${found[direction].outcome} (${found[direction].events})`);
  const [first, ...others] = VERDICT_POLICIES.map((policy) => `${policy} | ${verdicts(policy)}`);
  const notes = DIRECTIONS.flatMap((direction) =>
    found[direction].note === '' ? [] : [`${direction}: ${found[direction].note}`],
  );
  return [
    `| ${cell(one.change)} | ${first} | ${decode.join(' | ')} | ${notes.join('<br>')} |`,
    ...others.map((other) => `| | ${other} | | | |`),
  ];
}

export function generateCompatibility(): ReadonlyMap<string, string> {
  const lines = [
    '# Compatibility, cell by cell',
    '',
    '<!-- Generated by `npm run generate` from test/conformance/registry-compatibility*.json; do not edit. -->',
    '',
    'Each change is proposed to a subject with one version; ✓: accepted, ✗: refused. BACKWARD: the proposed schema reads',
    'events of the old schema; FORWARD: the old schema reads events of the proposed schema. NONE refuses only a change that',
    'no mode allows: another meaning for a Protobuf field number. The columns "new reads old" and "old reads new" show the',
    'result of the decoder of the consumer for all events tried, and their number. OK: each event is decoded as the format',
    'promises. LOSSY: some events lose data in a way that the format allows. FAIL: some events are refused, decoded wrongly',
    'or lost. The last column shows the smallest such event with its bytes. `millrace bench compatibility` does the same for',
    'random pairs of schemas; its results are in',
    '[README.md](README.md).',
  ];
  for (const [format, path] of TABLES) {
    const { cases } = JSON.parse(readFileSync(join(packageRoot(), path), 'utf8')) as {
      readonly cases: readonly Case[];
    };
    lines.push(
      '',
      `## ${format}`,
      '',
      `| change | policy | ${LEVELS.map((level) => level.replace('_', ' ')).join(' | ')} | new reads old | old reads new | an event that shows it |`,
      `| --- | --- | ${LEVELS.map(() => '---').join(' | ')} | --- | --- | --- |`,
      ...cases.flatMap(row),
    );
  }
  return new Map([[PAGE, `${lines.join('\n')}\n`]]);
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1]) {
  for (const [path, text] of generateCompatibility()) writeFileSync(join(packageRoot(), path), text);
}
