/** Load client: sends the requests that are due, and records intents, replies and failures in a
 *  ledger.
 *  A request without a final answer (no reply, 5xx, 408, 425, 429) is sent again with the same key
 *  and exponential backoff, until it is answered or the deadline passes. Latency is measured from
 *  the due time to the final answer, so it includes the wait for a connection and resends. */
import { createHash } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import { findMillraceError } from '../core/errors.ts';
import type { GrpcClient } from '../io/grpc/client-port.ts';
import type { HttpClient, HttpClientReply, HttpClientRequest } from '../io/http/client-port.ts';
import {
  isFinalStatus,
  type LedgerEntry,
  type LedgerIntent,
  type LedgerWriter,
} from '../outbox/reconcile/client-ledger.ts';
import { createOverGrpc } from './grpc.ts';
import type { Intent, Intents } from './intents.ts';
import { LatencyHistogram } from './latency.ts';
import type { Schedule, Send } from './schedule.ts';

type SendOutcome = 'acknowledged' | 'refused' | 'failed';

export interface LoadOptions {
  readonly intents: Intents;
  readonly schedule: Schedule;
  readonly client: HttpClient;
  /** Sends a share of the requests over gRPC, chosen for each attempt from the seed. Absent: all go
   *  over HTTP. */
  readonly grpc?: { readonly client: GrpcClient; readonly share: number } | undefined;
  /** Returns the Authorization header; called for each request. */
  readonly authorization?: () => string | undefined;
  readonly ledger: LedgerWriter;
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  /** When aborted, no new intent is sent, and open requests are completed. */
  readonly signal: AbortSignal;
  readonly path: string;
  /** Builds the HTTP request of an intent. Absent: an order for `path`. */
  readonly requestOf?: (intent: Intent) => HttpClientRequest;
  /** Wait before the first resend in ms; it doubles up to resendMaxMs. */
  readonly resendFirstMs: number;
  readonly resendMaxMs: number;
  /** Time in ms after the last intent during which unanswered requests are sent again. */
  readonly giveUpMs: number;
  /** Like `giveUpMs`, measured from the abort of `signal`. */
  readonly giveUpDrainingMs: number;
  /** Most requests in flight; further due requests wait. Their latency still counts from the due
   *  time. */
  readonly inFlightMax: number;
  readonly onAnswer?: (outcome: SendOutcome, latencyMs: number) => void;
}

export interface LoadResult {
  readonly seconds: number;
  readonly intents: number;
  readonly requests: number;
  readonly replies: number;
  readonly acknowledged: number;
  readonly replayed: number;
  readonly refused: number;
  /** Requests that repeated a key on purpose; resends do not count. */
  readonly repeats: number;
  /** Final answers over gRPC. */
  readonly answeredOverGrpc: number;
  /** Attempts without a final answer; each was sent again unless the deadline passed. */
  readonly failures: number;
  /** Intents without a 2xx reply. */
  readonly unknown: number;
  /** Longest delay of a request after its due time, in ms. */
  readonly sendLagMsMax: number;
  readonly latency: LatencyHistogram;
}

const WAIT_MAX_MS = 20;
const WAIT_MIN_MS = 1;
const LEDGER_BUFFER_ENTRIES = 256;

export class LoadRun {
  private readonly options: LoadOptions;
  private readonly latency = new LatencyHistogram();
  /** Intents that were sent and have no 2xx reply yet. */
  private readonly unsettled = new Set<number>();
  private readonly startMs: number;
  private buffer: LedgerEntry[] = [];
  /** True after the end: later answers are ignored. */
  private ended = false;
  private failure: { readonly thrown: unknown } | undefined;
  private inFlight = 0;
  private requests = 0;
  private replies = 0;
  private acknowledged = 0;
  private replayed = 0;
  private refused = 0;
  private repeats = 0;
  private answeredOverGrpc = 0;
  private failures = 0;
  private sendLagMsMax = 0;

  constructor(options: LoadOptions) {
    this.options = options;
    this.startMs = options.clock.monotonicMs();
  }

  private nowMs(): number {
    return this.options.clock.monotonicMs() - this.startMs;
  }

  /** @throws what the ledger throws */
  async run(): Promise<LoadResult> {
    const { schedule, signal, sleep, giveUpMs, giveUpDrainingMs, inFlightMax } = this.options;
    let plannedUntilMs = 0;
    let planned = -1;
    let drainUntilMs = Number.POSITIVE_INFINITY;
    for (;;) {
      if (this.failure !== undefined) throw this.failure.thrown;
      const nowMs = this.nowMs();
      if (signal.aborted) {
        schedule.stop();
        drainUntilMs = Math.min(drainUntilMs, nowMs + giveUpDrainingMs);
      }
      this.start(schedule.due(nowMs, inFlightMax - this.inFlight), nowMs);
      this.flush();
      if (schedule.planned !== planned) {
        planned = schedule.planned;
        plannedUntilMs = nowMs;
      }
      if (schedule.isDone && this.inFlight === 0) break;
      if (nowMs > drainUntilMs || (schedule.isPlanned && nowMs - plannedUntilMs > giveUpMs)) break;
      const waitMs = Math.min(schedule.nextDueMs() - this.nowMs(), WAIT_MAX_MS);
      await sleep(Math.max(waitMs, WAIT_MIN_MS));
    }
    this.flush();
    this.ended = true;
    return this.result();
  }

  private result(): LoadResult {
    const { requests, replies, acknowledged, replayed, refused, failures, sendLagMsMax, latency } = this;
    const { repeats, answeredOverGrpc } = this;
    const intents = this.options.schedule.planned;
    const unknown = this.unsettled.size;
    const end: LedgerEntry = { type: 'end', intents, replies, failures, unknown };
    this.options.ledger.append([end]);
    const seconds = this.nowMs() / 1000;
    return {
      seconds,
      intents,
      requests,
      replies,
      acknowledged,
      replayed,
      refused,
      repeats,
      answeredOverGrpc,
      failures,
      unknown,
      sendLagMsMax,
      latency,
    };
  }

  /** Writes the new intents to the ledger, then sends all. */
  private start(sends: readonly Send[], nowMs: number): void {
    if (sends.length === 0) return;
    const intents = sends.map((send) => this.options.intents.intent(send.index));
    for (const [i, send] of sends.entries()) {
      if (send.kind !== 'first') continue;
      this.unsettled.add(send.index);
      this.buffer.push(intentEntry(intents[i] as Intent, send.dueMs));
    }
    this.flush();
    for (const [i, send] of sends.entries()) {
      if (send.kind !== 'resend') this.sendLagMsMax = Math.max(this.sendLagMsMax, nowMs - send.dueMs);
      void this.send(send, intents[i] as Intent);
    }
  }

  private async send(send: Send, intent: Intent): Promise<void> {
    this.inFlight++;
    this.requests++;
    if (send.kind === 'repeat') this.repeats++;
    const overGrpc = this.isOverGrpc(send);
    try {
      this.receive(send, await this.request(intent, overGrpc), overGrpc);
    } catch (thrown) {
      if (this.ended) return;
      const known = findMillraceError(thrown);
      if (known?.kind !== 'unavailable') {
        this.failure ??= { thrown };
        return;
      }
      this.record({
        type: 'failure',
        intent: send.index,
        kind: send.kind,
        error: String(known.details['reason'] ?? known.code),
      });
      this.again(send);
    } finally {
      this.inFlight--;
    }
  }

  private isOverGrpc(send: Send): boolean {
    const { grpc, intents } = this.options;
    if (grpc === undefined) return false;
    // The due time distinguishes the repeats of an intent, the failures the attempts of each.
    return intents.transportDraw(send.index, Math.floor(send.dueMs) + send.failures) < grpc.share;
  }

  private request(intent: Intent, overGrpc: boolean): Promise<HttpClientReply> {
    const { authorization: current, client, grpc, path, requestOf } = this.options;
    const authorization = current?.();
    if (grpc !== undefined && overGrpc) return createOverGrpc(grpc.client, intent, authorization);
    if (requestOf !== undefined) return client.send(requestOf(intent));
    return client.send({
      method: 'POST',
      path,
      headers: {
        ...{ 'content-type': 'application/json', 'idempotency-key': intent.key },
        ...(authorization === undefined ? {} : { authorization }),
      },
      body: `{"account_id":${intent.accountId},"amount_cents":${intent.amountCents}}`,
    });
  }

  private receive(send: Send, reply: HttpClientReply, overGrpc: boolean): void {
    if (this.ended) return;
    const latencyMs = this.nowMs() - send.dueMs;
    this.replies++;
    const header = reply.headers['idempotency-replayed'];
    const replayed = header === undefined ? null : header === 'true';
    this.record({
      type: 'reply',
      intent: send.index,
      kind: send.kind,
      status: reply.status,
      sha256: createHash('sha256').update(reply.body).digest('hex'),
      replayed,
      latency_ms: Math.round(latencyMs * 1000) / 1000,
    });
    if (!isFinalStatus(reply.status)) {
      this.again(send);
      return;
    }
    this.latency.record(latencyMs);
    if (overGrpc) this.answeredOverGrpc++;
    if (reply.status >= 200 && reply.status <= 299) {
      this.acknowledged++;
      if (replayed === true) this.replayed++;
      this.unsettled.delete(send.index);
      this.options.onAnswer?.('acknowledged', latencyMs);
    } else {
      this.refused++;
      this.options.onAnswer?.('refused', latencyMs);
    }
  }

  private again(send: Send): void {
    this.failures++;
    const { schedule, resendFirstMs, resendMaxMs } = this.options;
    const backoffMs = Math.min(resendMaxMs, resendFirstMs * 2 ** Math.min(send.failures, 30));
    schedule.resend(send, this.nowMs() + backoffMs);
    this.options.onAnswer?.('failed', this.nowMs() - send.dueMs);
  }

  private record(entry: LedgerEntry): void {
    this.buffer.push(entry);
    if (this.buffer.length >= LEDGER_BUFFER_ENTRIES) this.flush();
  }

  private flush(): void {
    if (this.buffer.length === 0) return;
    const entries = this.buffer;
    this.buffer = [];
    try {
      this.options.ledger.append(entries);
    } catch (thrown) {
      this.failure ??= { thrown };
    }
  }
}

function intentEntry(intent: Intent, dueMs: number): LedgerIntent {
  return {
    type: 'intent',
    intent: intent.index,
    key: intent.key,
    account_id: intent.accountId,
    amount_cents: intent.amountCents,
    due_ms: Math.round(dueMs * 1000) / 1000,
  };
}
