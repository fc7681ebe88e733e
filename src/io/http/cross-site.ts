/** Refuses requests that a web page of another site sends through the browser of a user of this
 *  machine or network.
 *
 *  A browser sends the page's origin in Origin and the name it resolved in Host. So: (1) An Origin
 *  is admitted when it is listed, or when it is this server under a name that DNS rebinding cannot
 *  use: an IP address, `localhost`, the name of -listen. (2) On a loopback address a Host with
 *  another name is refused, unless it is the host of a listed origin. Clients that are no browser
 *  send no Origin; (1) does not affect them.
 */
import { isLoopback } from '../../core/connections.ts';
import { headerValues } from './request.ts';

/** Bound of the cache of admitted Host headers; a client with invented names must not fill it. */
const HOSTS_KNOWN_MAX = 64;

const HOST = /^(\[[\da-f:.]+\]|[^:[\]]+)(?::\d*)?$/;
const IP = /^(\d{1,3}(\.\d{1,3}){3}|\[[\da-f:.]+\])$/;

const ORIGIN_REFUSED =
  'the Origin of the request is another site; a server that serves its pages lists it with -allowed-origins';
const HOST_REFUSED =
  'the Host of the request is no name of this server, which listens on loopback; ask for localhost, or list https://THE-HOST with -allowed-origins';

export interface CrossSiteOptions {
  readonly allowedOrigins: readonly string[];
  /** Host of -listen, as given. */
  readonly listenHost: string;
  /** Address of the listening socket. */
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
  /** Cache of admitted Host headers. */
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

  /** Reason to refuse the request, or undefined. */
  refusal(rawHeaders: readonly string[]): string | undefined {
    if (this.all) return undefined;
    const host = headerValues(rawHeaders, 'host')[0];
    if (this.isOnLoopback && host !== undefined && !this.isOwnHost(host)) return HOST_REFUSED;
    for (const origin of headerValues(rawHeaders, 'origin'))
      if (!this.admits(origin.toLowerCase(), host?.toLowerCase() ?? '')) return ORIGIN_REFUSED;
    return undefined;
  }

  private isOwnHost(host: string): boolean {
    if (this.hostsKnown.has(host)) return true;
    const name = nameOf(host.toLowerCase());
    const isOwn =
      name !== undefined && (isLoopback(name) || name === this.listenName || this.listedNames.has(name));
    if (isOwn && this.hostsKnown.size < HOSTS_KNOWN_MAX) this.hostsKnown.add(host);
    return isOwn;
  }

  private admits(origin: string, host: string): boolean {
    if (this.listed.has(origin)) return true;
    if (origin !== `http://${host}` && origin !== `https://${host}`) return false;
    const name = nameOf(host);
    return name !== undefined && (IP.test(name) || name === 'localhost' || name === this.listenName);
  }
}
