/** `millrace load`: sends orders over HTTP and gRPC on a fixed schedule and writes a ledger of all
 *  outcomes. */
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { connect } from 'node:net';
import { sleep } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { ZIPF_EXPONENT_MAX, ZIPF_RANKS_MAX } from '../core/random/zipf.ts';
import { grpcClientDriver } from '../io/grpc/client.ts';
import { nodeHttpClientDriver } from '../io/http/client.ts';
import { Intents } from '../load/intents.ts';
import { type LoadOptions, type LoadResult, LoadRun } from '../load/run.ts';
import { Schedule } from '../load/schedule.ts';
import {
  LEDGER_FORMAT,
  type LedgerEntry,
  type LedgerWriter,
  ledgerLine,
} from '../outbox/reconcile/client-ledger.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { type Credentials, credentialsAt } from '../shell/credentials.ts';

const SETTINGS = {
  target: { type: 'string', default: 'http://127.0.0.1:8080', help: 'http address of the orders service' },
  'grpc-target': {
    type: 'string',
    help: 'address of Orders.Create of the same service, http://host:port or https://host:port: a share of the requests goes over gRPC',
  },
  'grpc-share': {
    type: 'number',
    default: '0.5',
    min: 0,
    max: 1,
    needs: ['grpc-target'],
    help: 'share of the requests over gRPC, chosen for each attempt from the seed, so that keys are repeated over the other transport',
  },
  'target-user': {
    type: 'string',
    secret: true,
    help: 'USER:PASSWORD for the target; set it in the environment, because other users can see arguments',
  },
  'target-token-file': {
    type: 'string',
    help: 'file with a bearer token for the target, read again every second',
  },
  rate: {
    type: 'rate',
    default: '1000',
    min: 0.001,
    help: 'requests a second, including repeats',
  },
  count: { type: 'int', default: '0', min: 0, help: 'number of intents; 0: unbounded' },
  duration: { type: 'duration', default: '10s', min: 0, help: 'how long intents are sent; 0: unbounded' },
  'retry-rate': {
    type: 'number',
    default: '0.15',
    min: 0,
    max: 1,
    help: 'share of intents that are followed by 1 to 3 repeats of a key',
  },
  'retry-within': { type: 'duration', default: '2s', min: 0, help: 'repeats follow within this time' },
  keys: {
    type: 'int',
    default: '10000',
    min: 1,
    max: ZIPF_RANKS_MAX,
    help: 'number of recent keys from which repeats are drawn',
  },
  accounts: { type: 'int', default: '1000000', min: 1, max: ZIPF_RANKS_MAX, help: 'distinct accounts' },
  zipf: {
    type: 'number',
    default: '1.1',
    min: 0,
    max: ZIPF_EXPONENT_MAX,
    help: 'Zipf exponent of accounts and of repeated keys',
  },
  seed: {
    type: 'int',
    default: '1',
    min: 0,
    help: 'the same seed gives the same intents, repeats and due times',
  },
  ledger: { type: 'string', help: 'file for the ledger; it must not exist yet' },
  connections: { type: 'int', default: '64', min: 1, max: 65_535, help: 'connections kept to the target' },
  timeout: { type: 'duration', default: '10s', min: 1, help: 'how long a request may take' },
  'give-up': {
    type: 'duration',
    default: '30s',
    min: 0,
    help: 'how long unanswered requests are retried after the last intent',
  },
  'under-way-max': {
    type: 'int',
    default: '50000',
    min: 1,
    help: 'requests in flight above which due requests wait',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

const REPLY_BYTES_MAX = 1024 * 1024;
const RESEND_FIRST_MS = 100;
const RESEND_MAX_MS = 5000;
/** Part of -drain-timeout that is reserved for the end of the ledger and the report. */
const DRAIN_RESERVE_MS = 3000;

function openLedger(context: Context): LedgerWriter {
  const path = context.settings.ledger;
  if (path === undefined) return { append: () => {} };
  const failed = (cause: unknown): Error => {
    const exists = (cause as NodeJS.ErrnoException).code === 'EEXIST';
    return coreError(
      'not_writable',
      exists ? `the ledger ${path} exists` : `cannot write the ledger ${path}: ${(cause as Error).message}`,
      {
        next: exists
          ? 'give another -ledger, or move it away'
          : 'give a path in a folder that exists and can be written',
        cause,
      },
    );
  };
  let file: number;
  try {
    file = openSync(path, 'wx');
  } catch (cause) {
    throw failed(cause);
  }
  context.onClose(() => closeSync(file));
  return {
    append: (entries) => {
      const bytes = Buffer.from(entries.map(ledgerLine).join(''));
      try {
        for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
      } catch (cause) {
        throw failed(cause);
      }
    },
  };
}

function report(context: Context, target: string, result: LoadResult): void {
  const { latency } = result;
  const quantile = (q: number): number | null => (latency.count === 0 ? null : latency.quantileMs(q));
  const latencyMs = {
    p50: quantile(0.5),
    p90: quantile(0.9),
    p99: quantile(0.99),
    p999: quantile(0.999),
    max: latency.count === 0 ? null : latency.maxMs,
  };
  const { intents, requests, acknowledged, replayed, refused, failures, unknown, seconds } = result;
  const { repeats, answeredOverGrpc } = result;
  const shown = (ms: number | null): string => (ms === null ? '-' : ms.toFixed(1));
  const lines = [
    `${intents} intents, ${requests} requests in ${seconds.toFixed(2)} s (${(requests / seconds).toFixed(0)}/s)`,
    `${acknowledged} acknowledged (${replayed} replayed), ${refused} refused, ${failures} failed and sent again, ${unknown} intents unknown`,
    `${repeats} repeats of a key, ${answeredOverGrpc} answers over gRPC`,
    `latency from the due time, ms: p50 ${shown(latencyMs.p50)}, p99 ${shown(latencyMs.p99)}, p999 ${shown(latencyMs.p999)}, max ${shown(latencyMs.max)}`,
  ];
  context.print(lines.join('\n'), {
    target,
    rate: context.settings.rate,
    seconds,
    intents,
    requests,
    requests_per_second: requests / seconds,
    replies: result.replies,
    acknowledged,
    replayed,
    refused,
    repeats,
    answered_over_grpc: answeredOverGrpc,
    failures,
    unknown,
    send_lag_ms_max: result.sendLagMsMax,
    latency_ms: latencyMs,
    ledger: context.settings.ledger ?? null,
  });
}

const FLAGS = {
  server: 'target',
  address: 'target',
  user: 'target-user',
  tokenFile: 'target-token-file',
} as const;
/** Time after which the file of a token is read again. */
const TOKEN_MS = 1000;

/** Address and credentials of the target. @throws usage, bad_value, bad_file */
function credentialsOf({ settings, clock }: Context): Credentials {
  const { target: address, 'target-user': user, 'target-token-file': tokenFile } = settings;
  if (!URL.canParse(address)) return { url: address, authorization: () => undefined };
  const { url, authorization } = credentialsAt(FLAGS, { address, user, tokenFile });
  let value = authorization();
  let readMs = clock.monotonicMs();
  const current = (): string | undefined => {
    const nowMs = clock.monotonicMs();
    if (nowMs - readMs < TOKEN_MS) return value;
    readMs = nowMs;
    value = authorization();
    return value;
  };
  // The address is shown as it was given, unless it has credentials.
  return { url: new URL(address).username === '' ? address : url, authorization: current };
}

/** Client of -grpc-target, and its share. @throws bad_value */
function openGrpc(context: Context): LoadOptions['grpc'] {
  const { 'grpc-target': target, 'grpc-share': share, timeout } = context.settings;
  if (target === undefined) return undefined;
  const client = grpcClientDriver.open({ target, timeoutMs: timeout, messageBytesMax: REPLY_BYTES_MAX });
  context.onClose(() => client.close());
  return { client, share };
}

/** Fails fast on a wrong address instead of after every intent has timed out. @throws
 *  unreachable */
function requireReachable(target: string, timeoutMs: number): Promise<void> {
  const { hostname, port, protocol } = new URL(target);
  const at = Number(port) || (protocol === 'https:' ? 443 : 80);
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname.replace(/^\[|\]$/g, ''), port: at, timeout: timeoutMs });
    const refuse = (why: string): void => {
      socket.destroy();
      const next = 'start the service or give -target=http://host:port';
      reject(coreError('unreachable', `no connection to ${target} (${why})`, { next }));
    };
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
    socket.once('timeout', () => refuse(`no connection within ${timeoutMs} ms`));
    socket.once('error', (error: NodeJS.ErrnoException) => refuse(error.code ?? error.message));
  });
}

async function run(context: Context): Promise<number> {
  const { settings, clock, metrics } = context;
  if (settings.count === 0 && settings.duration === 0) context.log.info({}, 'no bound: sends until stopped');
  const intents = new Intents({
    seed: BigInt(settings.seed),
    accounts: settings.accounts,
    zipf: settings.zipf,
    keys: settings.keys,
    retryRate: settings['retry-rate'],
    retryWithinMs: settings['retry-within'],
  });
  const schedule = new Schedule(intents, {
    rate: settings.rate,
    retryRate: settings['retry-rate'],
    count: settings.count === 0 ? Number.POSITIVE_INFINITY : settings.count,
    durationMs: settings.duration === 0 ? Number.POSITIVE_INFINITY : settings.duration,
  });
  const { url: target, authorization } = credentialsOf(context);
  const client = nodeHttpClientDriver.open({
    target,
    connectionsMax: settings.connections,
    timeoutMs: settings.timeout,
    bodyBytesMax: REPLY_BYTES_MAX,
  });
  context.onClose(() => client.close());
  const grpc = openGrpc(context);
  const ledger = openLedger(context);
  try {
    await requireReachable(target, settings.timeout);
    if (grpc !== undefined) await requireReachable(settings['grpc-target'] as string, settings.timeout);
  } catch (thrown) {
    // Nothing was sent, so an empty ledger would only make the next run fail.
    if (settings.ledger !== undefined) rmSync(settings.ledger, { force: true });
    throw thrown;
  }
  const start: LedgerEntry = {
    type: 'start',
    format: LEDGER_FORMAT,
    target,
    seed: String(settings.seed),
    started_ms: clock.wallNowMs(),
  };
  ledger.append([start]);
  const answers = metrics.counter('load_requests_total', 'Requests by outcome.', ['outcome']);
  const seconds = metrics.histogram(
    'load_latency_seconds',
    'From the due time of a request to its final answer.',
  );
  const progress = context.progress({ what: 'load', unit: 'requests' });
  context.setReady();
  const result = await new LoadRun({
    intents,
    schedule,
    client,
    grpc,
    authorization,
    ledger,
    clock,
    sleep: (ms) => sleep(clock, ms),
    signal: context.drain,
    path: '/orders',
    resendFirstMs: RESEND_FIRST_MS,
    resendMaxMs: RESEND_MAX_MS,
    giveUpMs: settings['give-up'],
    giveUpDrainingMs: Math.max(0, settings['drain-timeout'] - DRAIN_RESERVE_MS),
    inFlightMax: settings['under-way-max'],
    onAnswer: (outcome, latencyMs) => {
      answers.add(1, answers.series(outcome));
      if (outcome === 'failed') return progress.error();
      seconds.observe(latencyMs / 1000);
      progress.add(1);
    },
  }).run();
  progress.done();
  report(context, target, result);
  if (result.requests > 0 && result.replies === 0) {
    throw coreError('unreachable', `no reply ever came from ${target}`, {
      next: 'start the orders service there, or give another -target',
    });
  }
  return EXIT.done;
}

export const command = defineCommand({
  name: 'load',
  summary: 'Send orders over HTTP and gRPC at a fixed rate, with repeats, and keep a ledger of every reply.',
  description: [
    'An open model: a slow server does not delay due times, and latency counts from the due time. A request without',
    'a final answer is sent again with the same key. Intents are bounded by -count and -duration, whichever is reached first.',
    'Where orders has access rules, give -target-user or -target-token-file of a user that may write orders.',
    'Example: millrace load -target=http://127.0.0.1:8080 -rate=500 -duration=20s -ledger=/tmp/ledger.jsonl',
  ].join('\n'),
  settings: SETTINGS,
  run,
});
