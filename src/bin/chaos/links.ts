/** Proxies of a chaos run, by link. */
import type { Timers } from '../../core/clock.ts';
import { TcpProxy } from '../../devstack/proxy.ts';

export class Proxies {
  private readonly clock: Timers;
  private readonly byLink = new Map<string, readonly TcpProxy[]>();

  constructor(clock: Timers) {
    this.clock = clock;
  }

  /** Opens proxies without a target. */
  async open(link: string, count: number): Promise<readonly TcpProxy[]> {
    const proxies: TcpProxy[] = [];
    for (let i = 0; i < count; i++) proxies.push(await TcpProxy.listen(this.clock));
    this.byLink.set(link, proxies);
    return proxies;
  }

  of(link: string): readonly TcpProxy[] {
    return this.byLink.get(link) ?? [];
  }

  /** Ends every failure. */
  heal(): void {
    for (const proxy of this.all()) proxy.heal();
  }

  async close(): Promise<void> {
    await Promise.all(this.all().map((proxy) => proxy.close()));
  }

  private all(): readonly TcpProxy[] {
    return [...this.byLink.values()].flat();
  }
}
