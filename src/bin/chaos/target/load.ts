/** Load of a target: requests of a template at a fixed rate, with repeats of keys, and the answer
 *  of each key. */
import type { TargetLoad } from '../../../chaos/target/document.ts';
import { fillLast } from '../../../chaos/target/template.ts';
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { nodeHttpClientDriver } from '../../../io/http/client.ts';
import type { HttpClientRequest } from '../../../io/http/client-port.ts';
import type { SqlValue } from '../../../io/postgres/sql/port.ts';
import { type Intent, Intents } from '../../../load/intents.ts';
import { type LoadResult, LoadRun } from '../../../load/run.ts';
import { Schedule } from '../../../load/schedule.ts';
import {
  isFinalStatus,
  type LedgerEntry,
  type LedgerWriter,
} from '../../../outbox/reconcile/client-ledger.ts';

const ACCOUNTS = 10_000;
const HOT_KEYS = 1000;
const ZIPF = 1.1;
const REPEAT_WITHIN_MS = 2000;
const REQUEST_MS_MAX = 5000;
const REPLY_BYTES_MAX = 1024 * 1024;
const CONNECTIONS_MAX = 64;
const RESEND_FIRST_MS = 100;
const RESEND_MAX_MS = 2000;
/** Time that unanswered requests get after the last fault. */
const GIVE_UP_MS = 120_000;
/** As of clients with pools: without a bound, the requests that wait after an outage all reach
 *  their time limit, are sent again, and no answer is in time any more. */
const IN_FLIGHT_MAX = 512;
/** Requests of a run, whose answers this process keeps in memory. */
export const INTENTS_MAX = 5_000_000;

interface Answer {
  readonly status: number;
  readonly sha256: string;
}

/** Final answers by intent: the ledger of this run, in memory. */
class Answers implements LedgerWriter {
  intents = 0;
  readonly changed = new Set<number>();
  private readonly first = new Map<number, Answer>();
  private readonly acknowledged = new Set<number>();

  append(entries: readonly LedgerEntry[]): void {
    for (const entry of entries) {
      if (entry.type === 'intent') this.intents++;
      if (entry.type !== 'reply' || !isFinalStatus(entry.status)) continue;
      const { intent, status, sha256 } = entry;
      const before = this.first.get(intent);
      if (before === undefined) this.first.set(intent, { status, sha256 });
      else if (before.status !== status || before.sha256 !== sha256) this.changed.add(intent);
      if (status >= 200 && status <= 299) this.acknowledged.add(intent);
    }
  }

  get unanswered(): number {
    return this.intents - this.first.size;
  }

  statusOf(intent: number): number | undefined {
    return this.first.get(intent)?.status;
  }

  isAcknowledged(intent: number): boolean {
    return this.acknowledged.has(intent);
  }

  get acknowledgedCount(): number {
    return this.acknowledged.size;
  }
}

/** Answers of a finished load. */
export interface LoadFacts {
  readonly result: LoadResult;
  readonly intents: number;
  readonly acknowledged: number;
  readonly unanswered: number;
  /** Keys with two different answers. */
  readonly changed: readonly string[];
  /** Rows of the table of sent requests. */
  readonly sent: () => Iterable<readonly SqlValue[]>;
}

export interface TargetLoadOptions {
  readonly load: TargetLoad;
  /** The url with the addresses of processes filled in. */
  readonly url: string;
  readonly seed: number;
  readonly rate: number;
  readonly retryRate: number;
  readonly clock: Timers;
}

export class TargetLoadRun {
  private readonly stop = new AbortController();
  private readonly answers = new Answers();
  private readonly intents: Intents;
  private readonly running: Promise<LoadResult>;
  private finals = 0;

  /** Starts the load. @throws bad_value for an url that is no address */
  constructor(options: TargetLoadOptions) {
    const { url, seed, rate, retryRate, clock } = options;
    this.intents = new Intents({
      ...{ seed: BigInt(seed), accounts: ACCOUNTS, zipf: ZIPF, keys: HOT_KEYS },
      ...{ retryRate, retryWithinMs: REPEAT_WITHIN_MS },
    });
    const client = nodeHttpClientDriver.open({
      target: originOf(url),
      ...{ connectionsMax: CONNECTIONS_MAX, timeoutMs: REQUEST_MS_MAX, bodyBytesMax: REPLY_BYTES_MAX },
    });
    this.running = new LoadRun({
      ...{ intents: this.intents, client, ledger: this.answers, clock, path: '' },
      schedule: new Schedule(this.intents, {
        ...{ rate, retryRate, count: INTENTS_MAX, durationMs: Number.POSITIVE_INFINITY },
      }),
      requestOf: requestsOf(options),
      sleep: (ms) => sleep(clock, ms),
      signal: this.stop.signal,
      ...{ resendFirstMs: RESEND_FIRST_MS, resendMaxMs: RESEND_MAX_MS },
      ...{ giveUpMs: GIVE_UP_MS, giveUpDrainingMs: GIVE_UP_MS, inFlightMax: IN_FLIGHT_MAX },
      onAnswer: (outcome) => {
        if (outcome !== 'failed') this.finals++;
      },
    })
      .run()
      .finally(() => client.close());
    // Reported by `end`.
    this.running.catch(() => {});
  }

  /** Final answers so far. */
  get answered(): number {
    return this.finals;
  }

  get acknowledged(): number {
    return this.answers.acknowledgedCount;
  }

  /** Sends no new request, and completes the open ones. @throws what ended the load */
  async end(): Promise<LoadFacts> {
    this.stop.abort();
    const result = await this.running;
    const { answers, intents } = this;
    const sent = function* (): Generator<readonly SqlValue[]> {
      for (let index = 0; index < answers.intents; index++) {
        const { key, accountId, amountCents } = intents.intent(index);
        const isAcknowledged = answers.isAcknowledged(index);
        yield [key, index + 1, accountId, amountCents, answers.statusOf(index) ?? null, isAcknowledged];
      }
    };
    return {
      ...{ result, intents: answers.intents, acknowledged: answers.acknowledgedCount, sent },
      unanswered: answers.unanswered,
      changed: [...answers.changed].map((index) => intents.intent(index).key),
    };
  }
}

function originOf(url: string): string {
  const origin = /^https?:\/\/[^/]+/.exec(url)?.[0];
  if (origin === undefined || !URL.canParse(origin))
    throw coreError('bad_value', `load.url ${url} is no http address`, {
      next: 'give http://{PROCESS}/PATH',
    });
  return origin;
}

function requestsOf({ load, url }: TargetLoadOptions): (intent: Intent) => HttpClientRequest {
  const path = url.slice(originOf(url).length) || '/';
  return ({ key, index, accountId, amountCents }) => {
    const values = {
      ...{ key, n: String(index + 1), account: String(accountId), amount: String(amountCents) },
    };
    const headers = Object.entries(load.headers).map(
      ([name, text]) => [name, fillLast(text, values)] as const,
    );
    return {
      method: load.method,
      path: fillLast(path, values),
      headers: Object.fromEntries(headers),
      body: fillLast(load.body, values),
    };
  };
}
