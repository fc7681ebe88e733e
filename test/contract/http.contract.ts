/** Contract of every HTTP driver, tested over raw sockets. */
import { describe } from 'vitest';
import type { HttpDriver } from '../../src/io/http/port.ts';
import { httpConnectionsContract } from './http-connections.contract.ts';
import { httpCrowdContract } from './http-crowd.contract.ts';
import { httpGuardsContract } from './http-guards.contract.ts';
import { httpLimitsContract } from './http-limits.contract.ts';
import { httpRandomContract } from './http-random.contract.ts';
import { httpRequestsContract } from './http-requests.contract.ts';
import { httpStreamsContract } from './http-streams.contract.ts';

export function httpContract(driver: HttpDriver): void {
  describe('requests', () => httpRequestsContract(driver));
  describe('connection lifecycle', () => httpConnectionsContract(driver));
  describe('random bytes', () => httpRandomContract(driver));
  describe('limits', () => httpLimitsContract(driver));
  describe('guards', () => httpGuardsContract(driver));
  describe('crowds', () => httpCrowdContract(driver));
  describe('streams', () => httpStreamsContract(driver));
}
