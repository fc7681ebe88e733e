/** Code in the documents: every block parses in its language, and every `millrace` call names an
 *  existing command with existing flags. */
import { spawnSync } from 'node:child_process';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { COMMANDS } from '../../../src/bin/main.ts';
import { HTTP_SETTINGS, SHARED_SETTINGS } from '../../../src/shell/command.ts';
import { read, repositoryFiles } from '../../repository/root.ts';

interface Block {
  readonly where: string;
  readonly language: string;
  readonly code: string;
}

/** Fenced blocks of every document, with the file and line at which each starts. */
const blocks: readonly Block[] = repositoryFiles()
  .filter((path) => path.endsWith('.md'))
  .flatMap((path) => {
    const text = read(path);
    return [...text.matchAll(/^```(\w*)[^\n]*\n([\s\S]*?)^```/gm)].map((match) => ({
      where: `${path}:${text.slice(0, match.index).split('\n').length}`,
      language: match[1] as string,
      code: match[2] as string,
    }));
  });

const inLanguages = (...languages: readonly string[]): readonly Block[] =>
  blocks.filter(({ language }) => languages.includes(language));

/** Positions of the blocks that `parse` refuses, with the reason. */
function refused(chosen: readonly Block[], parse: (code: string) => void): string[] {
  expect(chosen.length).toBeGreaterThan(0);
  return chosen.flatMap(({ where, code }) => {
    try {
      parse(code);
      return [];
    } catch (error) {
      return [`${where}: ${(error as Error).message}`];
    }
  });
}

function parseScript(code: string): void {
  const { diagnostics = [] } = ts.transpileModule(code, {
    reportDiagnostics: true,
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ESNext },
  });
  const [first] = diagnostics;
  if (first !== undefined) throw new Error(ts.flattenDiagnosticMessageText(first.messageText, ' '));
}

/** Commands of a block: all lines of a shell block, the lines after a `$` in a console block. */
const scriptOf = ({ language, code }: Block): string =>
  language === 'console'
    ? [...code.matchAll(/^\$ ((?:.*\\\n)*.*)$/gm)].map((match) => match[1]).join('\n')
    : code;

function parseShell(script: string): void {
  const { status, stderr } = spawnSync('bash', ['-n'], { input: script, encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
}

/** Calls of the command line in a script, each with its command's name and its flags. */
function callsOf(script: string): { readonly command: string; readonly flags: readonly string[] }[] {
  const lines = script
    .replace(/\\\n/g, ' ')
    .replace(/'[^']*'|"[^"]*"/g, 'text')
    .replace(/(^|\s)#.*$/gm, '');
  return [
    ...lines.matchAll(/(?:^|[\s;&|])(?:bin\/|npx )?millrace ([a-z][a-z-]*)( [a-z][a-z-]*)?([^\n|;&]*)/g),
  ].map(([, first = '', second = '', rest = '']) => ({
    command: Object.hasOwn(COMMANDS, `${first}${second}`) ? `${first}${second}` : first,
    flags: [...rest.matchAll(/\s--?([a-z][a-z0-9-]*)/g)].map((flag) => flag[1] as string),
  }));
}

/** Flags that a call passes and its command does not have. */
async function unknownFlags(block: Block): Promise<string[]> {
  const found: string[] = [];
  for (const { command, flags } of callsOf(scriptOf(block))) {
    const load = COMMANDS[command];
    if (load === undefined) {
      if (command !== 'help' && command !== 'version') found.push(`${block.where}: no command ${command}`);
      continue;
    }
    const { settings } = (await load()).command;
    const known = { ...SHARED_SETTINGS, ...HTTP_SETTINGS, ...settings, help: undefined };
    for (const flag of flags)
      if (!Object.hasOwn(known, flag)) found.push(`${block.where}: ${command} has no flag -${flag}`);
  }
  return found;
}

describe('code blocks of the documents', () => {
  it('every block of JavaScript or TypeScript parses', () => {
    expect(refused(inLanguages('js', 'ts'), parseScript)).toEqual([]);
  });

  it('the how-to of the client library prints the examples of the Kafka clients exactly as they run', () => {
    const examples = repositoryFiles().filter((path) => path.startsWith('examples/registry-clients/'));
    expect(examples).toHaveLength(5);
    const page = read('docs/how-to/client-library.md');
    for (const path of examples) expect(page, path).toContain(`\`\`\`js\n${read(path)}\`\`\``);
  });

  it('the how-to of idempotent endpoints prints its examples exactly as they run', () => {
    const examples = repositoryFiles().filter((path) =>
      /^examples\/idempotent-endpoints\/.*\.mjs$/.test(path),
    );
    expect(examples).toHaveLength(9);
    const page = read('docs/how-to/idempotent-endpoints.md');
    for (const path of examples) expect(page, path).toContain(`\`\`\`js\n${read(path)}\`\`\``);
  });

  it('the how-to of columns prints its example exactly as it runs', () => {
    const page = read('docs/how-to/columns.md');
    expect(page).toContain(`\`\`\`js\n${read('examples/columns/totals.mjs')}\`\`\``);
  });

  it('every block of JSON parses', () => {
    expect(refused(inLanguages('json'), JSON.parse)).toEqual([]);
  });

  it('every block of YAML parses', () => {
    expect(refused(inLanguages('yaml'), parseYaml)).toEqual([]);
  });

  it('every shell command parses', () => {
    const shell = inLanguages('sh', 'console').map((block) => ({ ...block, code: scriptOf(block) }));
    expect(refused(shell, parseShell)).toEqual([]);
  });

  it('every request to an engine uses a port that its page gives to -listen', () => {
    const requests = inLanguages('sh', 'console', '').flatMap((block) =>
      [...scriptOf(block).matchAll(/\bcurl\b.*?[\w.]+:(\d+)\/(?:windows|late|watermark|savepoints)\b/g)].map(
        ([request, port]) => ({ request, port, page: block.where.replace(/:\d+$/, '') }),
      ),
    );
    expect(requests.length).toBeGreaterThan(4);
    const closed = requests.filter(
      ({ page, port }) => !new RegExp(`-listen=[\\w.]*:${port}\\b`).test(read(page)),
    );
    expect(closed).toEqual([]);
  });

  it('every call of the command line names an existing command with existing flags', async () => {
    const shells = inLanguages('sh', 'console', '');
    expect(shells.flatMap((block) => callsOf(scriptOf(block))).length).toBeGreaterThan(20);
    expect((await Promise.all(shells.map(unknownFlags))).flat()).toEqual([]);
  });
});
