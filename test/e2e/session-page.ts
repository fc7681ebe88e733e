/** Pages with console sessions: runs their commands in one shell and compares the output.
 *
 *  In a block that is fenced as `console`, a line that begins with `$ ` is a command. Lines that
 *  begin with `> ` continue it. The lines up to the next command are its stdout. stderr (progress
 *  and the log) is left out. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { until } from '../wait.ts';

const COMMAND_MS_MAX = 240_000;

export interface Step {
  readonly command: string;
  readonly output: string;
}

/** Replacement in both directions: the text in the page, and the value in this run. */
export interface Substitution {
  readonly page: string;
  readonly real: string;
}

type Piece = string | { readonly steps: Step[] };

/** Splits the page into text and blocks in turn. */
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

/** Returns the page with other outputs, in the order of its steps. */
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

/** Environment without the variables of Millrace. */
const withoutSettings = (env: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('MILLRACE_')));

/** Runs the commands one after the other in one bash in `dir`, and returns the stdout of each.
 *  Kills the processes that they leave running. */
export async function replay(
  steps: readonly Step[],
  options: {
    readonly dir: string;
    readonly path: string;
    readonly substitutions: readonly Substitution[];
    /** Patterns of text that varies from run to run, each with its placeholder. */
    readonly placeholders: ReadonlyArray<readonly [RegExp, string]>;
  },
): Promise<string[]> {
  const shell = spawn('bash', ['--noprofile', '--norc'], {
    cwd: options.dir,
    detached: true,
    stdio: ['pipe', 'pipe', 'ignore'],
    // A reader of the page has none of the settings that the tests give in the environment.
    env: {
      ...withoutSettings(process.env),
      PATH: `${options.path}:${process.env['PATH']}`,
      LC_ALL: 'C.UTF-8',
    },
  });
  const mark = `--${shell.pid}-done--`;
  let out = '';
  /** Exit of the shell, if it has ended. The listener is attached before the first command, because
   *  the event is emitted once. */
  const end: { how?: string } = {};
  const ended = once(shell, 'exit')
    .then(
      (how) => String(how),
      (thrown) => String(thrown),
    )
    .then((how) => {
      end.how = how;
    });
  // A failed write shows as the end of the shell.
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
      let output = out.slice(0, -mark.length - 2);
      if (output !== '' && !output.endsWith('\n')) output += '\n';
      output = swap(output, 'real', 'page');
      for (const [pattern, placeholder] of options.placeholders)
        output = output.replace(pattern, placeholder);
      outputs.push(output);
    }
  } finally {
    try {
      process.kill(-(shell.pid as number), 'SIGKILL');
    } catch {
      // The shell has ended by itself.
    }
    await ended;
  }
  return outputs;
}
