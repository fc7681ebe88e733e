/** The way between one process and the simulated cluster: latency, outages, and a process that is
 *  stopped.
 *
 *  Invariants: (1) what a request does at the cluster happens once or never; (2) a process that is
 *  stopped, or cut off, hears of no reply, whatever the request has done; (3) a link without
 *  latency that is up answers in the same turn.
 */
import { sleep, type Timers } from '../core/clock.ts';
import type { SimCluster } from './broker-cluster.ts';

export interface BrokerLinkOptions {
  /** Time of the process. Default: the time of the cluster. */
  readonly clock?: Timers;
  /** Each way takes up to this long. Default 0. */
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
    this.clock = clock ?? cluster.timers;
    this.latencyMs = latencyMs ?? 0;
  }

  get isUp(): boolean {
    return this.up;
  }

  /** Cuts the process off from the cluster. */
  cut(): void {
    this.up = false;
  }

  /** Ends an outage: requests that wait are sent, and replies that wait arrive. */
  mend(): void {
    this.up = true;
    for (const resume of this.waiting.splice(0)) resume();
  }

  sleep(ms: number): Promise<void> {
    return sleep(this.clock, ms);
  }

  /** Lets time pass outside the process: the network carries what a stopped process has sent. */
  pass(ms: number): Promise<void> {
    return sleep(this.cluster.timers, ms);
  }

  /** Waits until the cluster has something new, at most `ms`. */
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
   *  @param act what the request does at the cluster
   *  @returns undefined where no reply came in time: then nobody can tell whether `act` has run or
   *  will run */
  async ask<T>(timeoutMs: number, act: () => T | Promise<T>): Promise<{ readonly reply: T } | undefined> {
    if (this.up && this.latencyMs === 0) {
      const given = act();
      if (!(given instanceof Promise)) return { reply: given };
      return this.inTime(
        timeoutMs,
        given.then((reply) => this.received(reply)),
      );
    }
    let isLate = false;
    const exchange = async (): Promise<{ readonly reply: T } | undefined> => {
      await this.untilUp();
      // A client that has stopped to wait sends nothing.
      if (isLate) return undefined;
      await this.pass(this.delayMs());
      const reply = await act();
      await this.pass(this.delayMs());
      return this.received(reply);
    };
    const answer = await this.inTime(timeoutMs, exchange());
    isLate = true;
    return answer;
  }

  private async received<T>(reply: T): Promise<{ readonly reply: T }> {
    await this.untilUp();
    // A stopped process reads nothing.
    await this.sleep(0);
    return { reply };
  }

  private async inTime<T>(timeoutMs: number, work: Promise<T>): Promise<T | undefined> {
    let cancel = (): void => {};
    const late = new Promise<undefined>((resolve) => {
      cancel = this.clock.after(timeoutMs, () => resolve(undefined));
    });
    return Promise.race([work, late]).finally(() => cancel());
  }

  private async untilUp(): Promise<void> {
    while (!this.up) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  private delayMs(): number {
    return this.latencyMs * this.cluster.random();
  }
}
