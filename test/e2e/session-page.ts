/** Pages of console sessions: their commands are run for real in one shell, and their output is
 *  compared.
 *
 *  In a block that is fenced as `console`, a line that begins with `$ ` is a command, lines that
 *  begin with `> ` go on with it, and the rest, up to the next command, is what it wrote to stdout.
 *  stderr (progress and the log) is left out.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { until } from '../wait.ts';

const COMMAND_MS_MAX = 240_000;

export interface Step {
  readonly command: string;
  readonly output: string;
}

/** A replacement both ways: what the page says, and what is true in this run. */
export interface Substitution {
  readonly page: string;
  readonly real: string;
}

type Piece = string | { readonly steps: Step[] };

/** The page as text and blocks in turn. */
function pieces(page: string): Piece[] {
  const all: Piece[] = [];
  let block: Step[] | undefined;
  for (const line of page.split('\n')) {
    if (block === undefined) {
      all.push(`${line}\n`);
      if (line === '```console') {
        block = [];
        all.push({ steps: block });
      }
    } else if (line === '```') {
      block = undefined;
      all.push('```\n');
    } else if (line.startsWith('$ ')) block.push({ command: line.slice(2), output: '' });
    else {
      const last = block.pop();
      if (last === undefined) throw new Error(`a block begins with output: ${line}`);
      const continues = line.startsWith('> ') && last.output === '';
      block.push(
        continues
          ? { ...last, command: `${last.command}\n${line.slice(2)}` }
          : { ...last, output: `${last.output}${line}\n` },
      );
    }
  }
  return all;
}

export const stepsOf = (page: string): Step[] =>
  pieces(page).flatMap((piece) => (typeof piece === 'string' ? [] : piece.steps));

/** The same page with other outputs, in the order of its steps. */
export function withOutputs(page: string, outputs: readonly string[]): string {
  let at = 0;
  const text = pieces(page).map((piece) =>
    typeof piece === 'string'
      ? piece
      : piece.steps
          .map(({ command }) => `$ ${command.replaceAll('\n', '\n> ')}\n${outputs[at++] ?? ''}`)
          .join(''),
  );
  return text.join('').replace(/\n$/, '');
}

/** Runs the commands one after the other in one bash, in `dir`, and gives what each wrote to
 *  stdout. What they leave running is killed at the end. */
export async function replay(
  steps: readonly Step[],
  options: {
    readonly dir: string;
    readonly path: string;
    readonly substitutions: readonly Substitution[];
    /** What differs from run to run, and the placeholder that stands for it. */
    readonly placeholders: ReadonlyArray<readonly [RegExp, string]>;
  },
): Promise<string[]> {
  const shell = spawn('bash', ['--noprofile', '--norc'], {
    cwd: options.dir,
    detached: true,
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { ...process.env, PATH: `${options.path}:${process.env['PATH']}`, LC_ALL: 'C.UTF-8' },
  });
  const mark = `--${shell.pid}-done--`;
  let out = '';
  /** How it ended, where it has. Heard from the start on: an exit is told once. */
  const end: { how?: string } = {};
  const ended = once(shell, 'exit')
    .then(
      (how) => String(how),
      (thrown) => String(thrown),
    )
    .then((how) => {
      end.how = how;
    });
  // What cannot be written shows as an end.
  shell.stdin.on('error', () => {});
  shell.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk;
  });
  const swap = (text: string, from: 'page' | 'real', to: 'page' | 'real'): string =>
    options.substitutions.reduce((result, one) => result.replaceAll(one[from], one[to]), text);
  const outputs: string[] = [];
  try {
    for (const { command } of steps) {
      out = '';
      shell.stdin.write(`${swap(command, 'page', 'real')}\nprintf '\\n%s\\n' '${mark}'\n`);
      const isDone = (): boolean => out.endsWith(`\n${mark}\n`);
      await until(`the end of: ${command}`, () => end.how !== undefined || isDone(), COMMAND_MS_MAX).catch(
        (thrown: Error) => Promise.reject(new Error(`${thrown.message}\n${out}`)),
      );
      if (!isDone()) throw new Error(`bash ended (${end.how}) in: ${command}\n${out}`);
      let said = out.slice(0, -mark.length - 2);
      if (said !== '' && !said.endsWith('\n')) said += '\n';
      said = swap(said, 'real', 'page');
      for (const [pattern, placeholder] of options.placeholders) said = said.replace(pattern, placeholder);
      outputs.push(said);
    }
  } finally {
    try {
      process.kill(-(shell.pid as number), 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
    await ended;
  }
  return outputs;
}
