/** Clients of orders: each sends its request until it has an answer, with one key, and some send it
 *  again although they have one. A few keys come with a second, different request, which must be
 *  refused. */
import { sleep } from '../../../src/core/clock.ts';
import { findMillraceError } from '../../../src/core/errors.ts';
import type { CreateAnswer, Orders } from '../../../src/outbox/orders/service.ts';
import type { SeededRandom, VirtualClock } from '../../../src/sim/clock.ts';
import type { Running } from './services.ts';

const REPEAT_SHARE = 0.15;
const OTHER_BODY_SHARE = 0.02;
/** Time after which a client gives a connection up. */
const PATIENCE_MS = 2000;
const LATENCY_MS = 4;
/** Half of the longest pause after a first attempt, ms; it doubles with each further attempt. */
const BACKOFF_MS = 100;
const BACKOFF_MAX_MS = 1600;

export interface ClientHooks {
  readonly clock: VirtualClock;
  readonly random: SeededRandom;
  /** Processes of orders that are up. */
  readonly targets: () => readonly Running[];
  readonly onReply: (key: string, answer: CreateAnswer) => void;
  readonly onViolation: (what: string) => void;
  readonly onStep: (who: string, what: string) => void;
}

interface Intent {
  readonly key: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
}

type Outcome = CreateAnswer | { readonly refused: string } | undefined;

export class Clients {
  /** Keys with an answer. */
  readonly answered = new Set<string>();
  private readonly hooks: ClientHooks;
  private waiting = 0;

  constructor(hooks: ClientHooks) {
    this.hooks = hooks;
  }

  /** True when every client has its answer. */
  get isDone(): boolean {
    return this.waiting === 0;
  }

  /** Starts clients at random times within `spreadMs`. */
  start(count: number, spreadMs: number): void {
    const { random } = this.hooks;
    for (let n = 0; n < count; n++) {
      const intent = this.intentOf(n);
      this.later(random.fraction() * spreadMs, () => this.insist(intent));
      if (random.fraction() < REPEAT_SHARE)
        for (let left = 1 + Math.floor(random.fraction() * 3); left > 0; left--)
          this.later(random.fraction() * spreadMs, () => this.insist(intent));
      if (random.fraction() < OTHER_BODY_SHARE) this.later(2 * spreadMs, () => this.contradict(intent));
    }
  }

  private later(ms: number, run: () => Promise<void>): void {
    this.waiting++;
    this.hooks.clock.after(ms, () => void run().finally(() => this.waiting--));
  }

  private intentOf(n: number): Intent {
    const { random } = this.hooks;
    const tail = Math.floor(random.fraction() * 2 ** 32).toString(16);
    return {
      key: `${tail.padStart(8, '0')}-0000-4000-8000-${n.toString(16).padStart(12, '0')}`,
      accountId: BigInt(n % 7),
      amountCents: BigInt(n + 1),
    };
  }

  /** Sends a request until it is answered. */
  private async insist(intent: Intent): Promise<void> {
    const { clock, random, onReply, onViolation } = this.hooks;
    for (let attempt = 1; ; attempt++) {
      const outcome = await this.send(intent);
      if (outcome !== undefined && 'orderId' in outcome) {
        this.answered.add(intent.key);
        onReply(intent.key, outcome);
        return;
      }
      if (outcome?.refused === 'idempotency_key_reused') {
        onViolation(`the key ${intent.key} was refused to its own request`);
        return;
      }
      await sleep(clock, random.fraction() * Math.min(BACKOFF_MS * 2 ** attempt, BACKOFF_MAX_MS));
    }
  }

  /** Sends another request under the key, after the first is stored. */
  private async contradict(intent: Intent): Promise<void> {
    while (!this.answered.has(intent.key)) await sleep(this.hooks.clock, 500);
    for (;;) {
      const outcome = await this.send({ ...intent, amountCents: intent.amountCents + 1n });
      if (outcome !== undefined && 'orderId' in outcome)
        this.hooks.onViolation(`the key ${intent.key} was accepted with another request`);
      if (outcome !== undefined && ('orderId' in outcome || outcome.refused === 'idempotency_key_reused'))
        return;
      await sleep(this.hooks.clock, 300);
    }
  }

  /** One attempt over one connection. Undefined: no answer. */
  private async send(intent: Intent): Promise<Outcome> {
    const { clock, random, targets, onStep } = this.hooks;
    const up = targets();
    const target = up[Math.floor(random.fraction() * up.length)];
    await sleep(clock, random.fraction() * LATENCY_MS);
    if (target?.orders === undefined || target.process.isDead) return undefined;
    const { orders } = target;
    const answer = new Promise<Outcome>((resolve) => {
      target.process.runWhenActive(() => {
        onStep(target.name, `request ${intent.key}`);
        create(orders, intent).then((outcome) => {
          onStep(target.name, `answer ${intent.key} ${outcome !== undefined && 'orderId' in outcome}`);
          resolve(outcome);
        });
      });
    });
    let cancel = (): void => {};
    const patience = new Promise<undefined>((resolve) => {
      cancel = clock.after(PATIENCE_MS, () => resolve(undefined));
    });
    return Promise.race([answer, patience]).finally(() => cancel());
  }
}

async function create(orders: Orders, { key, accountId, amountCents }: Intent): Promise<Outcome> {
  try {
    return await orders.create(key, { accountId, amountCents });
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return { refused: error.code };
  }
}
