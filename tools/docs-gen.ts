/** Generates reference pages from tables: docs/reference/commands.md from the commands' settings,
 *  docs/reference/errors.md from the error tables, docs/reference/registry-api.md and
 *  docs/reference/orders-api.md from their operations, docs/reference/engine-job.schema.json from
 *  the settings of a job, docs/reference/rules from the rule
 *  catalogue. `node dist/tools/docs-gen.js` writes them; with `-check` it compares and exits with 1
 *  on a difference. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ACCESS_ERRORS } from '../src/access/refusal.ts';
import { GATE_ERRORS } from '../src/bin/compat-check/errors.ts';
import { jobSchema } from '../src/bin/engine/jobfile/schema.ts';
import { command as engine } from '../src/bin/engine.ts';
import { COMMANDS } from '../src/bin/main.ts';
import { CORE_ERRORS, type ErrorTable, EXIT } from '../src/core/errors.ts';
import { describeSetting, type SettingTable } from '../src/core/settings.ts';
import { DEVSTACK_ERRORS } from '../src/devstack/errors.ts';
import { ENGINE_ERRORS } from '../src/engine/errors.ts';
import { FORMAT_ERRORS } from '../src/formats/errors.ts';
import { BROKER_ERRORS } from '../src/io/kafka/errors.ts';
import { OBJECT_ERRORS } from '../src/io/objects/port.ts';
import { REPLICATION_ERRORS } from '../src/io/postgres/replication/port.ts';
import { SQL_ERRORS } from '../src/io/postgres/sql/port.ts';
import { KV_ERRORS } from '../src/io/rocksdb/port.ts';
import { OUTBOX_ERRORS } from '../src/outbox/errors.ts';
import { REGISTRY_ERRORS } from '../src/registry/errors.ts';
import { SERDE_ERRORS } from '../src/serde/errors.ts';
import { type Command, HTTP_SETTINGS, SHARED_SETTINGS } from '../src/shell/command.ts';
import { settingTableOf } from '../src/shell/load-settings.ts';
import { packageRoot } from '../src/shell/package.ts';
import { registryApiPage } from './docs-gen-api.ts';
import { ordersApiPage } from './docs-gen-orders.ts';
import { rulePages } from './docs-gen-rules.ts';

const NOTE = '<!-- Generated from the tables in src by `npm run generate`; do not edit. -->';

const ERROR_TABLES: ReadonlyArray<readonly [string, string, ErrorTable]> = [
  ['Every command', 'src/core/errors.ts', CORE_ERRORS],
  ['Access', 'src/access/refusal.ts', ACCESS_ERRORS],
  ['Broker', 'src/io/kafka/errors.ts', BROKER_ERRORS],
  ['SQL', 'src/io/postgres/sql/port.ts', SQL_ERRORS],
  ['Replication', 'src/io/postgres/replication/port.ts', REPLICATION_ERRORS],
  ['Embedded store', 'src/io/rocksdb/port.ts', KV_ERRORS],
  ['Store of objects', 'src/io/objects/port.ts', OBJECT_ERRORS],
  ['Schemas and values', 'src/formats/errors.ts', FORMAT_ERRORS],
  ['Records, and answers of a registry', 'src/serde/errors.ts', SERDE_ERRORS],
  ['Registry', 'src/registry/errors.ts', REGISTRY_ERRORS],
  ['compat-check', 'src/bin/compat-check/errors.ts', GATE_ERRORS],
  ['Effects', 'src/outbox/errors.ts', OUTBOX_ERRORS],
  ['Windows', 'src/engine/errors.ts', ENGINE_ERRORS],
  ['Embedded stack', 'src/devstack/errors.ts', DEVSTACK_ERRORS],
];

const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  done: 'done',
  no: 'the result is negative: incompatible, an invariant broken, a goal missed',
  usage: 'the call is wrong: flags, settings, files',
  unavailable: 'a dependency is unreachable, or a port is busy',
  internal: 'a bug in Millrace, or a drain that took longer than -drain-timeout',
  interrupted: 'interrupted by SIGINT',
};

const cell = (text: string): string => text.replaceAll('|', '\\|').replace(/\s*\n\s*/g, ' ');
const code = (text: string): string => (text === '' ? '' : `\`${cell(text)}\``);

function settingRows(table: SettingTable): string[] {
  const rows = [
    '| flag | form | default | range | environment | meaning |',
    '| --- | --- | --- | --- | --- | --- |',
  ];
  for (const [name, setting] of Object.entries(table)) {
    const text = describeSetting(name, setting);
    const cells = [
      code(text.flag),
      cell(text.form),
      cell(text.default),
      cell(text.range),
      code(text.environment),
      cell(text.help),
    ];
    rows.push(`| ${cells.join(' | ')} |`);
  }
  return rows;
}

function commandSection(command: Command): string[] {
  const usage = `millrace ${command.name}${command.positionalHelp === undefined ? '' : ` ${command.positionalHelp}`} [flags]`;
  const lines = [`## ${command.name}`, '', command.summary, '', '```', usage, '```', ''];
  if (command.description !== undefined) lines.push('```', command.description.trim(), '```', '');
  if (command.listens === false) lines.push('Exits when done; serves no HTTP.', '');
  if (command.exits !== undefined)
    lines.push(
      `Additional exit codes: ${Object.entries(command.exits)
        .map(([exit, meaning]) => `${exit} ${meaning}`)
        .join(', ')}.`,
      '',
    );
  if (Object.keys(command.settings).length > 0) lines.push(...settingRows(command.settings), '');
  return lines;
}

async function commands(): Promise<string> {
  const lines = ['# Commands', '', NOTE, ''];
  lines.push(
    'Flags are accepted as `-flag=value`, `-flag value`, `--flag=value` and `--flag value`. Precedence: flag,',
    'environment, `-config` file, default; an empty environment variable counts as unset. A list may be given several',
    'times, any other flag once. `-no-flag` turns a switch off. stdout is data; stderr is progress and the log.',
    '',
    '| exit code | meaning |',
    '| --- | --- |',
    ...Object.entries(EXIT).map(
      ([name, exit]) => `| ${exit} | ${EXIT_MEANINGS[name as keyof typeof EXIT]} |`,
    ),
    '',
    '## Settings of every command',
    '',
    ...settingRows(SHARED_SETTINGS),
    '',
    '## Settings of every command that listens',
    '',
    ...settingRows(HTTP_SETTINGS),
    '',
  );
  for (const load of Object.values(COMMANDS)) lines.push(...commandSection((await load()).command));
  return `${lines.join('\n').trimEnd()}\n`;
}

function errors(): string {
  const lines = ['# Errors', '', NOTE, ''];
  lines.push(
    'An error is one line, `error: what and why; what next [code]`, and with `-json` a document with `code`, `kind`,',
    '`message` and `next`. Match on the code or the kind. The kind says how to react: `invalid` fix the call, `conflict`',
    'refused because of its meaning, `not_found` does not exist, `unavailable` retry later, `corrupt` quarantine or restore, `fenced`',
    'another owner exists, `internal` a bug in Millrace.',
    '',
  );
  // A table may include the rows of another table; each row is listed once.
  const listed = new Set<ErrorTable[string]>();
  for (const [title, source, table] of ERROR_TABLES) {
    lines.push(`## ${title}`, '', `From \`${source}\`.`, '');
    lines.push(
      '| code | kind | HTTP | gRPC | exit code | error_code | metric reason |',
      '| --- | --- | --- | --- | --- | --- | --- |',
    );
    for (const [name, row] of Object.entries(table)) {
      if (listed.has(row)) continue;
      listed.add(row);
      lines.push(
        `| ${code(name)} | ${row.kind} | ${row.http} | ${row.grpc} | ${row.exit} | ${row.number ?? ''} | ${code(row.reason ?? '')} |`,
      );
    }
    lines.push('');
  }
  return `${lines.join('\n').trimEnd()}\n`;
}

/** Generated pages by path from the project's root. */
export async function generateDocs(): Promise<ReadonlyMap<string, string>> {
  return new Map([
    ['docs/reference/commands.md', await commands()],
    ['docs/reference/errors.md', errors()],
    ['docs/reference/registry-api.md', registryApiPage(NOTE, cell)],
    ['docs/reference/orders-api.md', ordersApiPage(NOTE, cell)],
    ['docs/reference/engine-job.schema.json', jobSchema(settingTableOf(engine as unknown as Command))],
  ]);
}

/** Pages in docs/reference/rules, by path from the project's root. */
export function generateRules(): ReadonlyMap<string, string> {
  return rulePages(NOTE, cell);
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1]) {
  const check = process.argv.includes('-check');
  let different = 0;
  for (const [path, text] of [...(await generateDocs()), ...generateRules()]) {
    const target = join(packageRoot(), path);
    if (!check) {
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, text);
    } else if (readFileSync(target, 'utf8') !== text) {
      different++;
      process.stderr.write(`${path} differs from the tables; run npm run generate\n`);
    }
  }
  process.exitCode = different === 0 ? 0 : 1;
}
