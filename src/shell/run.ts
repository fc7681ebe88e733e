/** Runs one command from its arguments to its exit code; the same for all.
 *
 *  Order of an ending: drain is aborted, `run` settles, the HTTP server drains, the `onClose` hooks
 *  run last first, and stdout is flushed. SIGTERM starts that and the command's own exit code
 *  stands; SIGINT starts it and the code is 130; a second SIGINT ends the process with 130 at once;
 *  -drain-timeout ends it with 70.
 */

import { isLoopback } from '../core/connections.ts';
import { coreError, EXIT, invariant } from '../core/errors.ts';
import { Metrics } from '../core/metrics.ts';
import { renderHelp } from '../core/settings.ts';
import type { HttpServer } from '../io/http/port.ts';
import type { Command, CommandContext, Progress } from './command.ts';
import { addonGauge, httpDriver, runsNative } from './drivers.ts';
import { describeSettings, loadSettings, wholeTable } from './load-settings.ts';
import { packageVersion } from './package.ts';
import type { ProcessEnv } from './process-env.ts';
import { Readiness } from './servers/readiness.ts';
import { addressOf, type Served, serve } from './servers/serve.ts';
import { loadTls, watchTls } from './servers/tls.ts';
import { pinoLogger } from './terminal/log.ts';
import { startProgress } from './terminal/progress.ts';
import { secretsOf } from './terminal/redact.ts';
import { failureOf } from './terminal/report.ts';

/** How long the HTTP server waits for scrapes under way when the command ended by itself. */
const SERVER_DRAIN_MS = 2000;

const isHelp = (token: string): boolean => /^(--?help|--?h|-\?)$/.test(token);
/** Whether a failure before the settings are parsed is to be a document. */
export const isJson = (token: string): boolean => /^--?json(=(true|yes|on|1))?$/i.test(token);

export function helpText(command: Command): string {
  const own = Object.entries(command.exits ?? {})
    .map(([exit, meaning]) => `${exit} ${meaning}, `)
    .join('');
  const parts = [
    `millrace ${command.name}${command.positionalHelp === undefined ? '' : ` ${command.positionalHelp}`} [flags]`,
    '',
    command.summary,
    ...(command.description === undefined ? [] : ['', command.description.trim()]),
    '',
    'Flags (also as --flag=value, or with a space; precedence: flag, environment, -config file, default):',
    renderHelp(wholeTable(command)),
    '',
    `Exit codes: 0 done, 1 the answer is no, 2 usage, 3 a dependency is unreachable, ${own}70 a bug, 130 interrupted.`,
  ];
  return `${parts.join('\n')}\n`;
}

/** Ends a failed run: one line, with -json the document, the stack at level debug. */
export async function fail(
  world: ProcessEnv,
  thrown: unknown,
  json: boolean,
  debug: boolean,
): Promise<number> {
  const failure = failureOf(thrown, world.screen.hide);
  world.screen.clear();
  world.screen.line(failure.line);
  if (debug) world.screen.line(failure.stack);
  if (json) await world.writeData(`${JSON.stringify(failure.document)}\n`);
  return failure.exit;
}

export async function runCommand(
  command: Command,
  argv: readonly string[],
  world: ProcessEnv,
): Promise<number> {
  const end = argv.indexOf('--');
  if ((end < 0 ? argv : argv.slice(0, end)).some(isHelp)) {
    await world.writeData(helpText(command));
    return EXIT.done;
  }
  let loaded: ReturnType<typeof loadSettings>;
  try {
    loaded = loadSettings(command, argv, world.env);
  } catch (thrown) {
    return fail(world, thrown, argv.some(isJson), false);
  }
  return new Run(command, loaded, world).execute();
}

/** Of a command that has the flag for its other runs. */
const listensNowhere = ({ name }: Command, positional: readonly string[], flag: string): Error =>
  coreError('usage', `-${flag} changes nothing for ${[name, ...positional].join(' ')}`, {
    next: `leave -${flag} out`,
  });

const isAbort = (thrown: unknown): boolean => thrown instanceof Error && thrown.name === 'AbortError';

class Run {
  private readonly command: Command;
  private readonly loaded: ReturnType<typeof loadSettings>;
  private readonly world: ProcessEnv;
  private readonly drain = new AbortController();
  private readonly readiness: Readiness;
  private readonly closers: Array<() => Promise<void> | void> = [];
  private readonly progresses: Progress[] = [];
  private readonly context: CommandContext<Command['settings']>;
  private data: Promise<void> = Promise.resolve();
  private printedDocument = false;
  private served: Served | undefined;
  private interrupted = false;
  private watchdog: NodeJS.Timeout | undefined;

  constructor(command: Command, loaded: ReturnType<typeof loadSettings>, world: ProcessEnv) {
    this.command = command;
    this.loaded = loaded;
    this.world = world;
    this.readiness = new Readiness(world.clock);
    const settings = loaded.values;
    const secrets = secretsOf(wholeTable(command), settings);
    if (!secrets.isEmpty) world.screen.hide = (text) => secrets.hide(text);
    const level = settings['log-level'] as string;
    // Children inherit the choice.
    world.env['MILLRACE_NATIVE'] = runsNative({ settings }) ? 'on' : 'off';
    const log = pinoLogger(level, world.screen, { command: command.name, pid: process.pid });
    const run = this;
    this.context = {
      settings,
      positional: loaded.positional,
      isFlag: (name) => loaded.sources[name] === 'flag',
      log,
      metrics: new Metrics(),
      clock: world.clock,
      drain: this.drain.signal,
      get address() {
        return run.served?.main ?? run.served?.metrics;
      },
      readiness: (name, check) => this.readiness.add(name, check),
      setReady: () => this.readiness.setReady(),
      isReady: async () => (await this.readiness.report()).ready,
      onClose: (close) => {
        this.closers.push(close);
      },
      progress: (options) => {
        const quiet = level === 'silent' || (settings.json && !world.screen.isTty);
        const progress = startProgress(options, world.screen, world.clock, quiet);
        this.progresses.push(progress);
        return progress;
      },
      say: (line) => world.screen.line(line),
      print: (text, document) => this.print(text, document),
    };
    addonGauge(this.context.metrics);
  }

  async execute(): Promise<number> {
    const { world, context, command, serves } = this;
    const debug = context.settings['log-level'] === 'debug';
    const json = context.settings.json;
    world.onUncaught((thrown) => {
      fail(world, thrown, json && !this.printedDocument, debug)
        .catch(() => EXIT.internal)
        .then((code) => world.exit(code));
    });
    world.onStall(() => {
      world.screen.line(
        `error: ${command.name} waits for something that cannot happen any more; this is a bug of millrace [internal]`,
      );
      world.exit(EXIT.internal);
    });
    world.onSignal('SIGTERM', () => this.startDrain('SIGTERM'));
    world.onSignal('SIGINT', () => {
      if (this.interrupted) world.exit(EXIT.interrupted);
      this.interrupted = true;
      this.startDrain('SIGINT');
    });
    let code: number;
    try {
      const shown = describeSettings(wholeTable(command), this.loaded);
      const level = serves ? 'info' : 'debug';
      context.log[level]({ version: packageVersion(), settings: shown }, 'start');
      const needless = ['listen', 'metrics-listen'].find((flag) => context.isFlag(flag));
      if (serves) await this.listen();
      else if (needless !== undefined) throw listensNowhere(command, context.positional, needless);
      code = (await command.run(context)) ?? EXIT.done;
      this.endProgress();
    } catch (thrown) {
      this.endProgress();
      // A drain may end a wait by its signal; that is no failure.
      const drained = this.drain.signal.aborted && (thrown === this.drain.signal.reason || isAbort(thrown));
      code = drained ? EXIT.done : await fail(world, thrown, json && !this.printedDocument, debug);
    }
    code = await this.close(code, debug);
    await this.data;
    clearTimeout(this.watchdog);
    const exit = this.interrupted ? EXIT.interrupted : code;
    if (this.drain.signal.aborted) context.log.info({ exit }, 'stopped');
    return exit;
  }

  private get serves(): boolean {
    const { command, context } = this;
    return command.listens !== false && (command.serves?.(context.positional) ?? true);
  }

  private endProgress(): void {
    for (const progress of this.progresses) progress.done();
  }

  private async listen(): Promise<void> {
    const { context, command, world } = this;
    watchTls(context, (fresh) => this.served?.main?.reloadTls(fresh));
    const tls = loadTls(context.settings);
    const asked = context.settings.http;
    const driver = await httpDriver(context, {
      asked,
      tls: tls !== undefined,
      loopback: isLoopback(addressOf(context.settings.listen).host),
      needs: command.httpNeeds?.(context),
    });
    this.served = await serve({ command, context, readiness: this.readiness, driver, tls });
    const shownAddress = ({ host, port }: HttpServer): string =>
      `${host.includes(':') ? `[${host}]` : host}:${port}`;
    const { main, metrics } = this.served;
    if (metrics !== undefined) world.screen.line(`metrics on http://${shownAddress(metrics)}`);
    if (main !== undefined)
      world.screen.line(`listening on ${tls === undefined ? 'http' : 'https'}://${shownAddress(main)}`);
  }

  private startDrain(signal: string): void {
    const { context, world } = this;
    this.readiness.startDrain();
    if (this.drain.signal.aborted) return;
    context.log.info({ signal }, 'drain');
    const timeoutMs = context.settings['drain-timeout'];
    // Keeps the process up: a stalled drain with nothing else to wait for must not end as if it
    // were done.
    this.watchdog = setTimeout(() => {
      world.screen.clear();
      world.screen.line(
        `error: work under way did not finish within ${timeoutMs} ms of ${signal}; raise -drain-timeout if it needs longer [drain_timeout]`,
      );
      world.exit(EXIT.internal);
    }, timeoutMs);
    this.drain.abort(new Error(`drain: ${signal}`));
  }

  /** Everything that was opened is closed, also after a failure; the first failure decides the
   *  code. */
  private async close(code: number, debug: boolean): Promise<number> {
    let result = code;
    const step = async (work: () => Promise<void> | void | undefined): Promise<void> => {
      try {
        await work();
      } catch (thrown) {
        const failed = await fail(this.world, thrown, false, debug);
        if (result === EXIT.done) result = failed;
      }
    };
    // In a drain by signal requests under way have the whole -drain-timeout, whose watchdog ends
    // the process.
    const drainMs = this.drain.signal.aborted ? 2 * this.context.settings['drain-timeout'] : SERVER_DRAIN_MS;
    await step(() => this.served?.main?.drain(drainMs));
    for (const close of this.closers.reverse()) await step(close);
    // Last: an orchestrator asks during the drain whether the process still lives.
    await step(() => this.served?.metrics?.drain(SERVER_DRAIN_MS));
    return result;
  }

  private print(text: string, document: unknown): void {
    const json = this.context.settings.json;
    if (json && document === undefined) return;
    invariant(!json || !this.printedDocument, 'a command prints one JSON document');
    if (json) this.printedDocument = true;
    const out = json
      ? JSON.stringify(document, (_key, value: unknown) =>
          typeof value === 'bigint' ? value.toString() : value,
        )
      : text;
    this.data = this.data.then(() => this.world.writeData(out.endsWith('\n') ? out : `${out}\n`));
  }
}
