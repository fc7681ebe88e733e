/** Proxies of a chaos run, by link. */
import type { Timers } from '../../core/clock.ts';
import { type ProxyTarget, TcpProxy } from '../../devstack/proxy.ts';

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

  /** Opens proxies at fixed addresses, each before its target, instead of the link's former
   *  ones. */
  async openAt(
    link: string,
    places: ReadonlyArray<{ readonly at: ProxyTarget; readonly target: ProxyTarget }>,
  ): Promise<void> {
    await Promise.all(this.of(link).map((proxy) => proxy.close()));
    const opened: TcpProxy[] = [];
    this.byLink.set(link, opened);
    for (const { at, target } of places) opened.push(await TcpProxy.listen(this.clock, target, at));
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
