/** Counts open connections, in total and by client address, against the limits of a server. */

export type ConnectionLimit = 'total' | 'address';

export interface ConnectionLimitOptions {
  /** Maximum number of open connections; Infinity: no limit. */
  readonly total: number;
  /** Maximum number of open connections of one client address; an IPv6 client counts as its /64. 0:
   *  no limit. */
  readonly perAddress: number;
}

export class ConnectionLimits {
  private readonly options: ConnectionLimitOptions;
  private readonly byClient = new Map<string, number>();
  private opened = 0;

  constructor(options: ConnectionLimitOptions) {
    this.options = options;
  }

  /** Number of open connections. */
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

  /** Releases the count of a connection. Call it once for each connection that `open` counted. */
  close(address: string): void {
    this.opened--;
    if (this.options.perAddress === 0) return;
    const client = clientOf(address);
    const count = this.byClient.get(client) ?? 0;
    if (count > 1) this.byClient.set(client, count - 1);
    else this.byClient.delete(client);
  }
}

/** True for a host, in lower case, whose connections stay on this machine: `localhost`,
 *  127.0.0.0/8, `::1` with or without brackets. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/.test(host);
}

/** Returns the key of the client behind an IP address: the whole IPv4 address, or the /64 prefix of
 *  an IPv6 address, which one household or machine owns. */
export function clientOf(address: string): string {
  const bare = (address.split('%')[0] as string).toLowerCase();
  const mapped = /^(?:0*:)*(?::ffff|::ffff|ffff):(\d+\.\d+\.\d+\.\d+)$/u.exec(bare);
  if (mapped !== null) return mapped[1] as string;
  if (!bare.includes(':')) return bare;
  const [head = '', tail = ''] = bare.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === '' ? [] : tail.split(':');
  const gap = bare.includes('::') ? Math.max(0, 8 - before.length - after.length) : 0;
  const groups = [...before, ...Array.from({ length: gap }, () => '0'), ...after].map((group) =>
    group.replace(/^0+(?=.)/u, ''),
  );
  return `${groups.slice(0, 4).join(':')}::/64`;
}
