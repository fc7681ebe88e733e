/** Derives the limits of a command's servers from its flags. */
import { readFileSync } from 'node:fs';
import { coreError } from '../../core/errors.ts';
import type { SettingsOf } from '../../core/settings.ts';
import type { HttpServerOptions } from '../../io/http/port.ts';
import type { HTTP_SETTINGS } from '../command.ts';

/** File descriptors reserved for files, brokers and databases. */
const OPEN_FILES_RESERVED = 256;
const CONNECTIONS_MIN = 16;

type Settings = Pick<
  SettingsOf<typeof HTTP_SETTINGS>,
  'connections-max' | 'connections-per-address' | 'held-max' | 'allowed-origins'
>;

/** Returns the limit of open files of this process; Infinity if it is unknown. */
function openFilesMax(): number {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Returns an origin `scheme://host[:port]` as browsers send it. @throws bad_value */
function originOf(given: string): string {
  if (given === '*' || given === 'null') return given;
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (
    url !== undefined &&
    url.host !== '' &&
    given.replace(/\/$/, '').toLowerCase() === `${url.protocol}//${url.host}`
  )
    return `${url.protocol}//${url.host}`;
  throw coreError('bad_value', `-allowed-origins=${given} is not an origin`, {
    next: 'give scheme and host, such as https://app.example.com, and the port unless it is the default',
  });
}

/** Limits that HTTP and gRPC share. */
export function connectionLimits(
  settings: Settings,
): Required<Pick<HttpServerOptions, 'connectionsMax' | 'connectionsPerAddressMax'>> {
  const openable = Math.max(CONNECTIONS_MIN, openFilesMax() - OPEN_FILES_RESERVED);
  return {
    connectionsMax: Math.min(settings['connections-max'], openable),
    connectionsPerAddressMax: settings['connections-per-address'],
  };
}

/** @throws bad_value */
export function httpLimits(
  settings: Settings,
): Required<
  Pick<HttpServerOptions, 'connectionsMax' | 'connectionsPerAddressMax' | 'heldBytesMax' | 'allowedOrigins'>
> {
  return {
    ...connectionLimits(settings),
    heldBytesMax: settings['held-max'],
    allowedOrigins: (settings['allowed-origins'] ?? []).map(originOf),
  };
}
