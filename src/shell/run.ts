/** Runs a command from its arguments to its exit code.
 *  Shutdown order: `drain` is aborted, `run` settles, the HTTP server drains, the `onClose` hooks
 *  run in reverse order, stdout is flushed. SIGTERM starts a shutdown that keeps the command's exit
 *  code; SIGINT one with exit code 130. A second SIGINT exits immediately with 130; -drain-timeout
 *  exits with 70. */

import { isLoopback } from '../core/connections.ts';
import { coreError, EXIT, invariant } from '../core/errors.ts';
import { Metrics } from '../core/metrics.ts';
import { renderHelp } from '../core/settings.ts';
import type { HttpServer } from '../io/http/port.ts';
import type { Command, CommandContext, Progress } from './command.ts';
import { addonGauge, httpDriver, runsNative } from './drivers.ts';
import { describeSettings, loadSettings, settingTableOf } from './load-settings.ts';
import { packageVersion } from './package.ts';
import type { ProcessEnv } from './process-env.ts';
import { Readiness } from './servers/readiness.ts';
import { addressOf, type Served, serve } from './servers/serve.ts';
import { loadTls, watchTls } from './servers/tls.ts';
import { pinoLogger } from './terminal/log.ts';
import { startProgress } from './terminal/progress.ts';
import { secretsOf } from './terminal/redact.ts';
import { failureOf } from './terminal/report.ts';

/** Drain time of the HTTP server in ms for requests in flight when the command ended without a
 *  signal. */
const SERVER_DRAIN_MS = 2000;

const isHelp = (token: string): boolean => /^(--?help|--?h|-\?)$/.test(token);
/** True if a failure before the settings are parsed is printed as a JSON document. */
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
    renderHelp(settingTableOf(command)),
    '',
    `Exit codes: 0 done, 1 the answer is no, 2 usage, 3 a dependency is unreachable, ${own}70 a bug, 130 interrupted.`,
  ];
  return `${parts.join('\n')}\n`;
}

/** Prints a failure: one line, with -json the document, at level debug the stack. Returns the exit
 *  code. */
export async function fail(
  processEnv: ProcessEnv,
  thrown: unknown,
  json: boolean,
  debug: boolean,
): Promise<number> {
  const failure = failureOf(thrown, processEnv.screen.hide);
  processEnv.screen.clear();
  processEnv.screen.line(failure.line);
  if (debug) processEnv.screen.line(failure.stack);
  if (json) await processEnv.writeData(`${JSON.stringify(failure.document)}\n`);
  return failure.exit;
}

export async function runCommand(
  command: Command,
  argv: readonly string[],
  processEnv: ProcessEnv,
): Promise<number> {
  const end = argv.indexOf('--');
  if ((end < 0 ? argv : argv.slice(0, end)).some(isHelp)) {
    await processEnv.writeData(helpText(command));
    return EXIT.done;
  }
  let loaded: ReturnType<typeof loadSettings>;
  try {
    loaded = loadSettings(command, argv, processEnv.env);
  } catch (thrown) {
    return fail(processEnv, thrown, argv.some(isJson), false);
  }
  return new Run(command, loaded, processEnv).execute();
}

/** Error for a flag that only other runs of the command use. */
const listensNowhere = ({ name }: Command, positional: readonly string[], flag: string): Error =>
  coreError('usage', `-${flag} changes nothing for ${[name, ...positional].join(' ')}`, {
    next: `leave -${flag} out`,
  });

const isAbort = (thrown: unknown): boolean => thrown instanceof Error && thrown.name === 'AbortError';

class Run {
  private readonly command: Command;
  private readonly loaded: ReturnType<typeof loadSettings>;
  private readonly processEnv: ProcessEnv;
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

  constructor(command: Command, loaded: ReturnType<typeof loadSettings>, processEnv: ProcessEnv) {
    this.command = command;
    this.loaded = loaded;
    this.processEnv = processEnv;
    this.readiness = new Readiness(processEnv.clock);
    const settings = loaded.values;
    const secrets = secretsOf(settingTableOf(command), settings);
    if (!secrets.isEmpty) processEnv.screen.hide = (text) => secrets.hide(text);
    const level = settings['log-level'] as string;
    // Children inherit the choice.
    processEnv.env['MILLRACE_NATIVE'] = runsNative({ settings }) ? 'on' : 'off';
    const log = pinoLogger(level, processEnv.screen, { command: command.name, pid: process.pid });
    const run = this;
    this.context = {
      settings,
      positional: loaded.positional,
      isFlag: (name) => loaded.sources[name] === 'flag',
      log,
      metrics: new Metrics(),
      clock: processEnv.clock,
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
        const quiet = level === 'silent' || (settings.json && !processEnv.screen.isTty);
        const progress = startProgress(options, processEnv.screen, processEnv.clock, quiet);
        this.progresses.push(progress);
        return progress;
      },
      say: (line) => processEnv.screen.line(line),
      print: (text, document) => this.print(text, document),
    };
    addonGauge(this.context.metrics);
  }

  async execute(): Promise<number> {
    const { processEnv, context, command, serves } = this;
    const debug = context.settings['log-level'] === 'debug';
    const json = context.settings.json;
    processEnv.onUncaught((thrown) => {
      fail(processEnv, thrown, json && !this.printedDocument, debug)
        .catch(() => EXIT.internal)
        .then((code) => processEnv.exit(code));
    });
    processEnv.onStall(() => {
      processEnv.screen.line(
        `error: ${command.name}: the event loop drained before the command finished; this is a bug of millrace [internal]`,
      );
      processEnv.exit(EXIT.internal);
    });
    processEnv.onSignal('SIGTERM', () => this.startDrain('SIGTERM'));
    processEnv.onSignal('SIGINT', () => {
      if (this.interrupted) {
        processEnv.screen.clear();
        processEnv.exit(EXIT.interrupted);
      }
      this.interrupted = true;
      this.startDrain('SIGINT');
    });
    let code: number;
    try {
      const shown = describeSettings(settingTableOf(command), this.loaded);
      const level = serves ? 'info' : 'debug';
      context.log[level]({ version: packageVersion(), settings: shown }, 'start');
      const needless = ['listen', 'metrics-listen'].find((flag) => context.isFlag(flag));
      if (serves) await this.listen();
      else if (needless !== undefined) throw listensNowhere(command, context.positional, needless);
      code = (await command.run(context)) ?? EXIT.done;
      this.endProgress();
    } catch (thrown) {
      this.endProgress();
      // A wait that the drain aborted is not a failure.
      const drained = this.drain.signal.aborted && (thrown === this.drain.signal.reason || isAbort(thrown));
      code = drained ? EXIT.done : await fail(processEnv, thrown, json && !this.printedDocument, debug);
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
    const { context, command, processEnv } = this;
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
    if (metrics !== undefined) processEnv.screen.line(`metrics on http://${shownAddress(metrics)}`);
    if (main !== undefined)
      processEnv.screen.line(`listening on ${tls === undefined ? 'http' : 'https'}://${shownAddress(main)}`);
  }

  private startDrain(signal: string): void {
    const { context, processEnv } = this;
    this.readiness.startDrain();
    if (this.drain.signal.aborted) return;
    context.log.info({ signal }, 'drain');
    const timeoutMs = context.settings['drain-timeout'];
    // The timer also keeps the process alive: a stalled drain must not end as if it were done.
    this.watchdog = setTimeout(() => {
      processEnv.screen.clear();
      processEnv.screen.line(
        `error: work in flight did not finish within ${timeoutMs} ms of ${signal}; raise -drain-timeout if it needs longer [drain_timeout]`,
      );
      processEnv.exit(EXIT.internal);
    }, timeoutMs);
    this.drain.abort(new Error(`drain: ${signal}`));
  }

  /** Closes all resources, even after a failure; the first failure sets the exit code. */
  private async close(code: number, debug: boolean): Promise<number> {
    let result = code;
    const step = async (work: () => Promise<void> | void | undefined): Promise<void> => {
      try {
        await work();
      } catch (thrown) {
        const failed = await fail(this.processEnv, thrown, false, debug);
        if (result === EXIT.done) result = failed;
      }
    };
    // After a signal, requests in flight may use the whole -drain-timeout; its watchdog exits the
    // process.
    const drainMs = this.drain.signal.aborted ? 2 * this.context.settings['drain-timeout'] : SERVER_DRAIN_MS;
    await step(() => this.served?.main?.drain(drainMs));
    for (const close of this.closers.reverse()) await step(close);
    // Closed last: an orchestrator checks liveness during the drain.
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
    this.data = this.data.then(() => this.processEnv.writeData(out.endsWith('\n') ? out : `${out}\n`));
  }
}
