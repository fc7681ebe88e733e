/** Page of the volume bench. */
import { expect, it } from 'vitest';
import { machine } from '../../../bench/harness.ts';
import type { Leg } from '../../../bench/volume/legs.ts';
import { volumePage } from '../../../bench/volume/page.ts';

it('the page of volume sums the legs of all builds and marks a leg that does not hold', () => {
  const held: Leg = {
    ...{ part: 'api', number: 1, build: 'first', machine: machine(), relay: 'poll', brokers: 1 },
    ...{ preloaded: 50_000_000, requests: 1300, loadSeconds: 10, seconds: 20, reconcileSeconds: 1 },
    ...{ orders: 1000, charges: 1000, deltas: 0, holds: true },
  };
  const broken: Leg = {
    ...held,
    ...{ part: 'prepared', number: 2, build: 'second', relay: 'wal', preloaded: 0, requests: 0 },
    ...{ orders: 5000, charges: 4999, deltas: 1, holds: false },
  };
  const page = volumePage({
    ...{ bench: 'volume', build: 'second', machine: machine(), results: [] },
    legs: [held, broken],
  });
  expect(page).toContain(
    '2 legs: 6,000 order events, 1,000 of them through the API, 5,999 charges, 1 deltas.',
  );
  expect(page).toMatch(/\| api \| 1 \| poll \| 1 \| 50,000,000 \| .* \| first \| .* \| holds \|/);
  expect(page).toMatch(/\| prepared \| 2 \| wal \| 1 \| 0 \| .* \| second \| .* \| \*\*broken\*\* \|/);
});
