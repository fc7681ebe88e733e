/** `millrace demo`: shows the three guarantees on a real broker and a real database, with real
 *  processes that are killed.
 *
 *  Every fact comes from SQL, the topics or an independent oracle. The exit code is 1 if a fact
 *  does not hold. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { coreError, EXIT } from '../core/errors.ts';
import type { DemoService, Fact, Slice, SliceContext } from '../demo/fact.ts';
import { allHold, renderFacts } from '../demo/table.ts';
import { DEFAULT_KAFKA_HEAP_BYTES, START_TIMEOUT_MS, type Stack, startStack } from '../devstack/stack.ts';
import { Processes } from '../shell/children/processes.ts';
import { ready } from '../shell/children/ready.ts';
import { defineCommand } from '../shell/command.ts';
import { lockDriver } from '../shell/drivers.ts';
import { packageRoot } from '../shell/package.ts';
import { aborted } from '../shell/wait.ts';

const END_GRACE_MS = 5000;

interface Outcome {
  readonly facts: readonly Fact[];
  readonly services: readonly DemoService[];
}

/** Hides the type of a slice's state between its run and its verdict. */
async function play<Run>(slice: Slice<Run>, context: SliceContext): Promise<Outcome> {
  const run = await slice.run(context);
  return { facts: await slice.judge(context, run), services: slice.services?.(context, run) ?? [] };
}

const SLICES: Readonly<Record<Fact['slice'], (context: SliceContext) => Promise<Outcome>>> = {
  contracts: async (context) => play((await import('../demo/contracts/slice.ts')).contractsSlice, context),
  effects: async (context) => play((await import('../demo/effects/slice.ts')).effectsSlice, context),
  windows: async (context) => play((await import('../demo/windows/slice.ts')).windowsSlice, context),
};

export const command = defineCommand({
  name: 'demo',
  summary: 'Show the three guarantees holding on a real Kafka and a real PostgreSQL, crashes included',
  description: `
Starts its own stack, runs the three products in real processes, kills them in the middle and then judges what the
topics, the tables and an independent oracle say. Exit code 1 when a fact does not hold.

  millrace demo
  millrace demo -slices=effects -seed=7
  millrace demo -keep`,
  settings: {
    slices: {
      type: 'list',
      choices: ['contracts', 'effects', 'windows'],
      default: 'contracts,effects,windows',
      help: 'which of the three to show',
    },
    seed: {
      type: 'int',
      default: '1',
      min: 0,
      max: 2 ** 31 - 1,
      help: 'seed of all generated data',
    },
    scale: { type: 'number', default: '1', min: 0.01, max: 100, help: 'amount of work, 1 is the full demo' },
    keep: {
      type: 'bool',
      default: 'false',
      help: 'leave the servers and the services running at the end and print their addresses',
    },
    dir: { type: 'string', help: 'folder of the stack that -keep leaves behind (default .millrace/demo)' },
  },
  async run(context) {
    const { settings, log, drain } = context;
    if (settings.dir !== undefined && !settings.keep) {
      throw coreError('usage', '-dir needs -keep', { next: 'add -keep or leave -dir out' });
    }
    if (settings.slices.length === 0) {
      throw coreError('usage', '-slices names no slice', {
        next: 'choose from contracts, effects, windows',
      });
    }
    const started = context.clock.monotonicMs();
    const seconds = (): string => `${((context.clock.monotonicMs() - started) / 1000).toFixed(0)} s`;
    const say = (line: string): void => context.say(`[${seconds().padStart(6)}] ${line}`);

    const folder = join(packageRoot(), '.millrace', settings.keep ? 'demo' : 'demo-runs');
    const dir = join(settings.dir ?? folder, `run-${process.pid}`);
    mkdirSync(dir, { recursive: true });
    const stack = await startStack({
      folder: settings.keep ? join(settings.dir ?? folder, 'stack') : undefined,
      owned: true,
      brokerCount: 1,
      kafkaPort: undefined,
      postgresPort: undefined,
      kafkaHeapBytes: DEFAULT_KAFKA_HEAP_BYTES,
      locks: await lockDriver(context),
      environment: process.env,
      startTimeoutMs: START_TIMEOUT_MS,
      onStep: say,
      signal: drain,
    });
    context.onClose(() => stack.close());
    say(`Kafka ${stack.brokers} and PostgreSQL are ready`);

    const processes = new Processes({ dir, stay: false, env: process.env });
    const killNow = (): void => processes.killNow();
    process.once('exit', killNow);
    context.onClose(async () => {
      await processes.end(END_GRACE_MS);
      process.removeListener('exit', killNow);
    });
    const sliceContext: SliceContext = {
      stack: { brokers: stack.brokers, postgres: stack.postgres },
      dir,
      spawn: (name, args, env) => processes.spawn(name, args, env),
      say,
      seed: settings.seed,
      scale: settings.scale,
    };
    context.setReady();

    const facts: Fact[] = [];
    const services: DemoService[] = [];
    for (const name of settings.slices as readonly Fact['slice'][]) {
      say(`${name}: started`);
      const outcome = await orEnded(SLICES[name](sliceContext), stack, drain);
      facts.push(...outcome.facts);
      services.push(...outcome.services);
      say(`${name}: judged`);
    }
    await processes.end(END_GRACE_MS);

    const holds = allHold(facts);
    const kept = settings.keep ? await stay(stack, services, dir) : '';
    const table = renderFacts(facts, process.stdout.columns);
    context.print(`${table}, after ${seconds()}${kept}`, {
      holds,
      facts,
      seconds: Number.parseInt(seconds(), 10),
    });
    if (!holds) {
      log.error({ dir }, 'a fact does not hold; the logs of the processes are kept');
      return EXIT.no;
    }
    if (!settings.keep) rmSync(dir, { recursive: true, force: true });
    return EXIT.done;
  },
});

/** Outcome of the slice; rejects early if a server dies or the demo is stopped. */
async function orEnded(slice: Promise<Outcome>, stack: Stack, drain: AbortSignal): Promise<Outcome> {
  const over = new AbortController();
  const stopped = aborted(drain).then((): never => {
    throw coreError('unreachable', 'the demo was stopped before it was over');
  });
  const broken = stack.broken(over.signal).then((error): Promise<never> => {
    if (error !== undefined) throw error;
    return new Promise(() => {});
  });
  try {
    return await Promise.race([slice, stopped, broken]);
  } finally {
    over.abort();
    for (const one of [slice, stopped, broken]) one.catch(() => {});
  }
}

/** Keeps the servers and new service processes running after exit; returns the text that tells how
 *  to end them. */
async function stay(stack: Stack, services: readonly DemoService[], dir: string): Promise<string> {
  const lasting = new Processes({ dir, stay: true, env: process.env });
  const lines: string[] = [];
  for (const { name, args, env } of services) {
    const child = lasting.spawn(`kept-${name}`, args, env);
    lines.push(`  ${name.padEnd(9)} http://${await ready(name, child)}   (pid ${child.pid})`);
  }
  const pids = lasting.alive().map(({ pid }) => pid);
  lasting.release();
  await stack.release();
  return [
    '\n\nLeft running:',
    `  kafka     ${stack.brokers}`,
    `  postgres  ${stack.postgres}`,
    ...lines,
    `End them with: ${pids.length > 0 ? `kill ${pids.join(' ')}; ` : ''}bin/millrace down -dir=${stack.folder}`,
  ].join('\n');
}
