/** Retention of a topic by its size. */
import { describe, expect, it } from 'vitest';
import { sizeRetention } from '../../../src/shell/topic-settings.ts';

const MIB = 1024 ** 2;

describe('retention by size', () => {
  it.each([
    [20e9, 24],
    [64e6, 4],
    [1e12, 1000],
  ])(
    'a topic of %d bytes over %d partitions keeps no more, with the segment that is written',
    (bytes, partitions) => {
      const config = sizeRetention(bytes, partitions);
      const [kept, segment] = [Number(config['retention.bytes']), Number(config['segment.bytes'])];
      expect((kept + segment) * partitions).toBeLessThanOrEqual(bytes);
      // Whole segments are deleted, so a share of several keeps most of the bytes.
      expect(kept).toBeGreaterThanOrEqual(segment * 3 - 1);
      expect(segment).toBeGreaterThanOrEqual(MIB);
      expect(segment).toBeLessThanOrEqual(64 * MIB);
    },
  );

  it('a share smaller than a segment keeps one segment, the least that a broker can', () => {
    expect(sizeRetention(MIB, 8)).toMatchObject({ 'retention.bytes': `${MIB}`, 'segment.bytes': `${MIB}` });
  });
});
