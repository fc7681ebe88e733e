/** Values of `-start`. */
import { describe, expect, it } from 'vitest';
import { parseStart } from '../../../src/bin/registry-clients/start.ts';

describe('start positions', () => {
  it.each([
    ['earliest', { kind: 'earliest' }],
    ['latest', { kind: 'latest' }],
    ['0', { kind: 'offset', offset: 0n }],
    ['9007199254740993', { kind: 'offset', offset: 9_007_199_254_740_993n }],
    ['-10', { kind: 'last', count: 10n }],
    ['@1769860800000', { kind: 'timestamp', ms: 1_769_860_800_000 }],
    ['2026-01-31T12:00:00Z', { kind: 'timestamp', ms: 1_769_860_800_000 }],
    ['2026-01-31T13:00:00.500+01:00', { kind: 'timestamp', ms: 1_769_860_800_500 }],
  ])('a start is read: %s', (text, position) => {
    expect(parseStart(text)).toEqual(position);
  });

  it.each(['', 'now', '2026-01-31', '2026-01-31T12:00:00', '2026-13-31T12:00:00Z', '1.5', '@x'])(
    'the start %j is refused',
    (text) => {
      expect(() => parseStart(text)).toThrow('is not a position');
    },
  );
});
