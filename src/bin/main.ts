/** The table of commands and the entry point of the process. */
import { coreError, EXIT } from '../core/errors.ts';
import { nearest } from '../core/settings.ts';
import type { Command } from '../shell/command.ts';
import { buildDigest, packageVersion } from '../shell/package.ts';
import { type ProcessEnv, processEnv } from '../shell/process-env.ts';
import { fail, isJson, runCommand } from '../shell/run.ts';

type Load = () => Promise<{ readonly command: Command }>;

/** Commands by name, in the order of the listing. Each is loaded on demand. */
export const COMMANDS: Readonly<Record<string, Load>> = {
  demo: () => import('./demo.ts'),
  up: () => import('./up.ts'),
  down: () => import('./down.ts'),
  doctor: () => import('./doctor.ts'),
  topic: () => import('./topic.ts'),
  registry: () => import('./registry.ts'),
  'registry export': () => import('./registry/export.ts'),
  'registry import': () => import('./registry/import.ts'),
  'registry hash-password': () => import('./registry/hash-password.ts'),
  'compat-check': () => import('./compat-check.ts'),
  producer: () => import('./producer.ts'),
  consumer: () => import('./consumer.ts'),
  rollout: () => import('./rollout.ts'),
  gen: () => import('./gen.ts'),
  'gen types': () => import('./gen/types.ts'),
  'gen ddl': () => import('./gen/ddl.ts'),
  load: () => import('./load.ts'),
  orders: () => import('./orders.ts'),
  relay: () => import('./relay.ts'),
  payments: () => import('./payments.ts'),
  effects: () => import('./effects.ts'),
  reconcile: () => import('./reconcile.ts'),
  chaos: () => import('./chaos.ts'),
  engine: () => import('./engine.ts'),
  slo: () => import('./slo.ts'),
  bench: () => import('./bench.ts'),
};

async function listing(): Promise<string> {
  const lines: string[] = [];
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  for (const [name, load] of Object.entries(COMMANDS)) {
    const { command } = await load();
    lines.push(`  ${name.padEnd(width)}  ${command.summary.replace(/\.$/, '')}`);
  }
  return [
    'millrace COMMAND [flags]',
    '',
    ...lines,
    '',
    'millrace COMMAND -help lists the flags of a command; millrace -version prints the version and the build.',
    '',
  ].join('\n');
}

async function dispatch(argv: readonly string[], env: ProcessEnv): Promise<number> {
  // `help COMMAND` is `COMMAND -help`.
  const asked = argv[0] === 'help' && argv[1] !== undefined ? [...argv.slice(1), '-help'] : argv;
  // A command may have subcommands, named by two words.
  const two = asked.slice(0, 2).join(' ');
  const [name, ...rest] = asked.length > 1 && Object.hasOwn(COMMANDS, two) ? [two, ...asked.slice(2)] : asked;
  if (name === undefined || /^(--?help|--?h|help)$/.test(name)) {
    await env.writeData(await listing());
    return EXIT.done;
  }
  if (/^(--?version|version)$/.test(name)) {
    await env.writeData(`${packageVersion()} build ${buildDigest()}\n`);
    return EXIT.done;
  }
  const load = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (load === undefined) {
    const near = nearest(name, Object.keys(COMMANDS));
    const next =
      near === undefined
        ? 'millrace -help lists the commands'
        : `did you mean ${near}? (millrace -help lists all)`;
    throw coreError('usage', `unknown command ${JSON.stringify(name)}`, { next });
  }
  process.title = `millrace ${name}`;
  return runCommand((await load()).command, rest, env);
}

/** Runs the process; ends it with the command's exit code. */
export async function main(argv: readonly string[]): Promise<void> {
  const env = processEnv();
  try {
    const code = await dispatch(argv, env);
    // Flush stdout before the process exits.
    await env.writeData('');
    env.exit(code);
  } catch (thrown) {
    env.exit(await fail(env, thrown, argv.some(isJson), false));
  }
}
