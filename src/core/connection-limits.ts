/** Counts open connections, in total and by client address, against the limits of a server. */
import { clientOf } from './client-address.ts';

export type ConnectionLimit = 'total' | 'address';

export interface ConnectionLimitOptions {
  /** Connections at once; Infinity is no limit. */
  readonly total: number;
  /** Connections at once of one client address, an IPv6 client counting as its /64; 0 is no limit. */
  readonly perAddress: number;
}

export class ConnectionLimits {
  private readonly options: ConnectionLimitOptions;
  private readonly byClient = new Map<string, number>();
  private opened = 0;

  constructor(options: ConnectionLimitOptions) {
    this.options = options;
  }

  /** Connections that are counted. */
  get size(): number {
    return this.opened;
  }

  /** Counts a connection, or returns the limit that refuses it. */
  open(address: string): ConnectionLimit | undefined {
    const { total, perAddress } = this.options;
    if (this.opened >= total) return 'total';
    if (perAddress > 0) {
      const client = clientOf(address);
      const count = this.byClient.get(client) ?? 0;
      if (count >= perAddress) return 'address';
      this.byClient.set(client, count + 1);
    }
    this.opened++;
    return undefined;
  }

  /** Call once for each connection that `open` counted. */
  close(address: string): void {
    this.opened--;
    if (this.options.perAddress === 0) return;
    const client = clientOf(address);
    const count = this.byClient.get(client) ?? 0;
    if (count > 1) this.byClient.set(client, count - 1);
    else this.byClient.delete(client);
  }
}
