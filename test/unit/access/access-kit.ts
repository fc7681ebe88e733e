/** Requests, clocks and logs for the tests of the gate. */

import { Gate, type GateOptions } from '../../../src/access/gate.ts';
import { refusalHeaders } from '../../../src/access/refusal.ts';
import type { Access, Need } from '../../../src/access/request.ts';
import { Rules } from '../../../src/access/rules.ts';
import type { Clock } from '../../../src/core/clock.ts';
import type { LogFields, Logger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import type { HttpPeer, HttpRequest } from '../../../src/io/http/port.ts';

export interface TestClock extends Clock {
  advance(ms: number): void;
}

export function testClock(startMs = Date.UTC(2030, 0, 1)): TestClock {
  let nowMs = startMs;
  return {
    wallNowMs: () => nowMs,
    monotonicMs: () => nowMs,
    advance: (ms) => {
      nowMs += ms;
    },
  };
}

export interface LogLines extends Logger {
  readonly lines: ReadonlyArray<{
    readonly level: string;
    readonly message: string;
    readonly fields: LogFields;
  }>;
}

export function logLines(): LogLines {
  const lines: Array<{ level: string; message: string; fields: LogFields }> = [];
  const at = (level: string) => (fields: LogFields, message: string) => {
    lines.push({ level, message, fields });
  };
  const log: LogLines = {
    lines,
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => log,
  };
  return log;
}

export interface RequestParts {
  readonly authorization?: string | readonly string[];
  readonly peer?: HttpPeer;
  readonly address?: string;
  readonly path?: string;
}

export function requestOf(parts: RequestParts = {}): HttpRequest {
  const { authorization = [], peer } = parts;
  const values = typeof authorization === 'string' ? [authorization] : authorization;
  return {
    method: 'GET',
    path: parts.path ?? '/subjects',
    params: {},
    query: new URLSearchParams(),
    header: (name) => (name.toLowerCase() === 'authorization' ? values : []),
    body: new Uint8Array(0),
    signal: new AbortController().signal,
    remoteAddress: parts.address ?? '192.0.2.1',
    ...(peer === undefined ? {} : { peer }),
  };
}

export const peerOf = (subject: string): HttpPeer => ({ subject, altNames: [], fingerprint256: 'AA:BB' });

export const basicHeader = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

export function gateOf(rules: string | undefined, over: Partial<GateOptions> = {}) {
  const log = logLines();
  const clock = testClock();
  const metrics = new Metrics();
  const parsed = rules === undefined ? undefined : Rules.parse(rules, 'rules');
  const gate = new Gate({
    logsAllowed: true,
    rules: parsed === undefined ? undefined : () => parsed,
    basic: undefined,
    jwt: undefined,
    mtls: false,
    clientRate: 0,
    failureRate: 5,
    clock,
    log,
    decisions: metrics.counter('registry_auth_decisions_total', 'Decisions.', ['scheme', 'outcome']),
    ...over,
  });
  return { gate, log, clock, metrics };
}

export type Decision =
  | { readonly access: Access }
  | { readonly code: string; readonly status: number; readonly headers: Readonly<Record<string, string>> };

/** Decision of the gate, with a refusal as a value. */
export async function decide(gate: Gate, parts: RequestParts, need: Need): Promise<Decision> {
  try {
    return { access: await gate.authorise(requestOf(parts), need) };
  } catch (thrown) {
    const { code, row } = thrown as { code: string; row: { http: number } };
    return { code, status: row?.http, headers: refusalHeaders(thrown) };
  }
}
