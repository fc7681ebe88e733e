/** Limits of the engine's fetches beside the properties of the user, by the rules of librdkafka. */
import { expect, it } from 'vitest';
import { fetchLimits } from '../../../src/bin/engine/source/fetch-limits.ts';

const MIB = 1 << 20;

it.each<readonly [string, number, Readonly<Record<string, string>>, number]>([
  ['the half of the share', 64 * MIB, {}, 32 * MIB],
  ['a batch at least', 1000, {}, MIB],
  ['the greatest message of producers', 32 * MIB, { 'message.max.bytes': '20971520' }, 20_971_520],
  ['a response less its framing', 64 * MIB, { 'receive.message.max.bytes': '10000000' }, 9_999_488],
  [
    'properties that are no numbers',
    64 * MIB,
    { 'message.max.bytes': 'x', 'receive.message.max.bytes': 'x' },
    32 * MIB,
  ],
])('a fetch of the engine keeps to %s', (_what, fetchBytes, user, expected) => {
  expect(fetchLimits({ fetchBytes }, user)).toEqual({
    'fetch.max.bytes': expected,
    'queued.max.messages.kbytes': Math.floor(fetchBytes / 2048),
  });
});

it('a fetch of an engine without a budget has no limit of its own', () => {
  expect(fetchLimits(undefined, {})).toEqual({});
});
