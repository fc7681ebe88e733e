/** Network link between one process and the simulated cluster: latency, outages, and a stopped
 *  process.
 *  Invariants: (1) A request takes effect at the cluster once or never. (2) A process that is
 *  stopped or cut off receives no reply, even if the request took effect. (3) A link without
 *  latency that is up answers in the same turn of the event loop. */
import { sleep, type Timers } from '../core/clock.ts';
import type { SimCluster } from './broker-cluster.ts';

export interface BrokerLinkOptions {
  /** Clock of the process. Default: the clock of the cluster. */
  readonly clock?: Timers;
  /** Longest latency of each direction in ms. Default 0. */
  readonly latencyMs?: number;
}

export class SimLink {
  readonly clock: Timers;
  private readonly cluster: SimCluster;
  private readonly latencyMs: number;
  private up = true;
  private waiting: Array<() => void> = [];

  constructor(cluster: SimCluster, { clock, latencyMs }: BrokerLinkOptions = {}) {
    this.cluster = cluster;
    this.clock = clock ?? cluster.options.clock;
    this.latencyMs = latencyMs ?? 0;
  }

  get isUp(): boolean {
    return this.up;
  }

  /** Starts an outage. */
  cut(): void {
    this.up = false;
  }

  /** Ends an outage: pending requests are sent, and pending replies arrive. */
  mend(): void {
    this.up = true;
    for (const resume of this.waiting.splice(0)) resume();
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.clock, ms);
  }

  /** Waits by the cluster's clock: the network delivers requests even if the process is stopped. */
  pass(ms: number): Promise<void> {
    return sleep(this.cluster.options.clock, ms);
  }

  /** Waits until the cluster has new data, at most `ms`. */
  async rest(ms: number): Promise<void> {
    const { clock, cluster } = this;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        cancel();
        cluster.watchers.delete(done);
        resolve();
      };
      const cancel = clock.after(ms, done);
      cluster.watchers.add(done);
    });
    if (this.latencyMs > 0) await this.sleep(this.delayMs());
  }

  /** Sends a request and waits for its reply.
   *  @param act effect of the request at the cluster
   *  @returns undefined if no reply came in time; `act` may have run, or may still run */
  async ask<T>(timeoutMs: number, act: () => T | Promise<T>): Promise<{ readonly reply: T } | undefined> {
    if (this.up && this.latencyMs === 0) {
      const result = act();
      if (!(result instanceof Promise)) return { reply: result };
      return this.inTime(
        timeoutMs,
        result.then((reply) => this.deliver(reply)),
      );
    }
    let isLate = false;
    const exchange = async (): Promise<{ readonly reply: T } | undefined> => {
      await this.untilUp();
      // A request that timed out before it was sent is dropped.
      if (isLate) return undefined;
      await this.pass(this.delayMs());
      const reply = await act();
      await this.pass(this.delayMs());
      return this.deliver(reply);
    };
    const answer = await this.inTime(timeoutMs, exchange());
    isLate = true;
    return answer;
  }

  private async deliver<T>(reply: T): Promise<{ readonly reply: T }> {
    await this.untilUp();
    // Waits by the process clock, because a stopped process reads no reply.
    await this.sleep(0);
    return { reply };
  }

  private async inTime<T>(timeoutMs: number, work: Promise<T>): Promise<T | undefined> {
    let cancel = (): void => {};
    const timeout = new Promise<undefined>((resolve) => {
      cancel = this.clock.after(timeoutMs, () => resolve(undefined));
    });
    return Promise.race([work, timeout]).finally(() => cancel());
  }

  private async untilUp(): Promise<void> {
    while (!this.up) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  private delayMs(): number {
    return this.latencyMs * this.cluster.random();
  }
}
