/** Refuses requests that a web page of another site sends through the browser of a user of this machine or network.
 *
 *  A browser names the page's origin in Origin, and the name it resolved in Host. So (1) an Origin is admitted where it is
 *  listed, or where it is this server under a name that DNS rebinding cannot take: an IP address, `localhost`, the name of
 *  -listen; (2) on a loopback address a Host under any other name is refused, unless it is the host of a listed origin.
 *  Clients that are no browser send no Origin and are not affected by (1).
 */
import { isLoopback } from '../../core/connections.ts';
import { headerValues } from './request.ts';

/** Names and ports are few; a client that invents them gets no memory. */
const HOSTS_KNOWN_MAX = 64;

const HOST = /^(\[[\da-f:.]+\]|[^:[\]]+)(?::\d*)?$/;
const IP = /^(\d{1,3}(\.\d{1,3}){3}|\[[\da-f:.]+\])$/;

const ORIGIN_REFUSED =
  'the Origin of the request is another site; a server that serves its pages lists it with -allowed-origins';
const HOST_REFUSED =
  'the Host of the request is no name of this server, which listens on loopback; ask for localhost, or list https://THE-HOST with -allowed-origins';

export interface CrossSiteOptions {
  readonly allowedOrigins: readonly string[];
  /** As given with -listen. */
  readonly listenHost: string;
  /** The address that is bound. */
  readonly address: string;
}

function nameOf(host: string): string | undefined {
  return HOST.exec(host)?.[1];
}

export class CrossSiteGuard {
  private readonly listed: ReadonlySet<string>;
  private readonly listedNames: ReadonlySet<string>;
  private readonly all: boolean;
  private readonly listenName: string;
  private readonly isOnLoopback: boolean;
  /** Host headers that were admitted. */
  private readonly hostsKnown = new Set<string>();

  constructor({ allowedOrigins, listenHost, address }: CrossSiteOptions) {
    this.listed = new Set(allowedOrigins.map((origin) => origin.toLowerCase()));
    this.listedNames = new Set(
      allowedOrigins.flatMap((origin) => (URL.canParse(origin) ? [new URL(origin).hostname] : [])),
    );
    this.all = this.listed.has('*');
    const name = listenHost.toLowerCase();
    this.listenName = name.includes(':') ? `[${name}]` : name;
    this.isOnLoopback = isLoopback(address);
  }

  /** The reason to refuse; undefined: the request is admitted. */
  refusal(rawHeaders: readonly string[]): string | undefined {
    if (this.all) return undefined;
    const host = headerValues(rawHeaders, 'host')[0];
    if (this.isOnLoopback && host !== undefined && !this.isOurs(host)) return HOST_REFUSED;
    for (const origin of headerValues(rawHeaders, 'origin'))
      if (!this.admits(origin.toLowerCase(), host?.toLowerCase() ?? '')) return ORIGIN_REFUSED;
    return undefined;
  }

  private isOurs(host: string): boolean {
    if (this.hostsKnown.has(host)) return true;
    const name = nameOf(host.toLowerCase());
    const ours =
      name !== undefined && (isLoopback(name) || name === this.listenName || this.listedNames.has(name));
    if (ours && this.hostsKnown.size < HOSTS_KNOWN_MAX) this.hostsKnown.add(host);
    return ours;
  }

  private admits(origin: string, host: string): boolean {
    if (this.listed.has(origin)) return true;
    if (origin !== `http://${host}` && origin !== `https://${host}`) return false;
    const name = nameOf(host);
    return name !== undefined && (IP.test(name) || name === 'localhost' || name === this.listenName);
  }
}
