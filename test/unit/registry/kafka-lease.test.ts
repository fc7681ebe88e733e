/** The leader lease: announcements expire by the time of their receipt, not by a wall clock. */
import { describe, expect, it } from 'vitest';
import {
  decodeAnnouncement,
  encodeAnnouncement,
  LeaderLease,
} from '../../../src/registry/store/kafka/lease.ts';
import { SeededRandom } from '../../../src/sim/clock.ts';

const LEASE_MS = 4000;
const random = new SeededRandom(1);
const other = { instance: 'b', url: 'http://b:1', clean: 7n, resigned: false };

function lease(): LeaderLease {
  const made = new LeaderLease('a', 'http://a:1', LEASE_MS, random);
  made.started();
  return made;
}

describe('leader announcements', () => {
  it('an announcement is decoded as it was encoded', () => {
    expect(decodeAnnouncement(encodeAnnouncement(other))).toEqual(other);
    const resigned = { ...other, clean: 2n ** 53n + 1n, resigned: true };
    expect(decodeAnnouncement(encodeAnnouncement(resigned))).toEqual(resigned);
  });

  it('a malformed announcement is ignored', () => {
    for (const text of [
      '',
      '{',
      '[]',
      'null',
      '{}',
      '{"instance":1}',
      '{"instance":"a","url":"u","clean":-1}',
    ])
      expect(decodeAnnouncement(Buffer.from(text))).toBeUndefined();
    const endless = { ...other, url: 'x'.repeat(10_000) };
    expect(decodeAnnouncement(encodeAnnouncement(endless))).toBeUndefined();
    expect(decodeAnnouncement(null)).toBeUndefined();
  });
});

describe('leader lease', () => {
  it('a lease is vacant before any announcement, and after the leader resigned', () => {
    const mine = lease();
    expect(mine.vacant(0)).toBe(true);
    mine.note({ ...other, offset: 1n }, 0, 0);
    expect(mine.vacant(1)).toBe(false);
    expect(mine.leader(1)).toEqual({ url: 'http://b:1', instance: 'b' });
    mine.note({ ...other, resigned: true, offset: 2n }, 2, 0);
    expect(mine.vacant(3)).toBe(true);
    expect(mine.leader(3)).toBeUndefined();
  });

  it('a lease expires after its length of silence, and each announcement renews it', () => {
    const mine = lease();
    for (let second = 0; second < 10; second++) {
      mine.note({ ...other, offset: BigInt(second) }, second * 1000, 0);
      expect(mine.vacant(second * 1000 + LEASE_MS - 1)).toBe(false);
    }
    expect(mine.vacant(9000 + LEASE_MS * 1.2)).toBe(true);
  });

  it('a lease is not vacant for a fenced instance before its successor had time to announce itself', () => {
    const mine = lease();
    mine.note({ ...other, instance: 'a', url: 'http://a:1', offset: 1n }, 0, 0);
    expect(mine.vacant(1)).toBe(true);
    mine.fenced(1000);
    expect(mine.vacant(1000 + LEASE_MS - 1)).toBe(false);
    // Its own announcement, read late, says nothing about the successor.
    mine.note({ ...other, instance: 'a', url: 'http://a:1', offset: 2n }, 1001, 0);
    expect(mine.vacant(1002)).toBe(false);
    expect(mine.leader(1002)).toBeUndefined();
    expect(mine.vacant(1000 + LEASE_MS * 1.2)).toBe(true);
    // After the successor's announcement its own lease counts, and it may resign immediately.
    mine.fenced(2000);
    mine.note({ ...other, offset: 3n }, 2100, 0);
    expect(mine.vacant(2100 + LEASE_MS - 1)).toBe(false);
    mine.note({ ...other, resigned: true, offset: 4n }, 2200, 0);
    expect(mine.vacant(2201)).toBe(true);
    // A resigned leader does not count for the next lease.
    mine.fenced(2300);
    expect(mine.vacant(2301)).toBe(false);
    expect(mine.leader(2301)).toBeUndefined();
  });

  it('a lease does not expire while this process is suspended', () => {
    const mine = lease();
    mine.note({ ...other, offset: 1n }, 0, 0);
    mine.stalled(60_000);
    expect(mine.vacant(60_000 + LEASE_MS - 1)).toBe(false);
    expect(mine.vacant(60_000 + LEASE_MS * 1.2)).toBe(true);
    mine.fenced(70_000);
    mine.stalled(10_000);
    expect(mine.vacant(80_000 + LEASE_MS - 1)).toBe(false);
    expect(mine.vacant(80_000 + LEASE_MS * 1.2)).toBe(true);
  });

  it('a lease does not return to an older announcement', () => {
    const mine = lease();
    mine.note({ ...other, offset: 5n }, 0, 0);
    mine.note({ ...other, instance: 'c', url: 'http://c:1', offset: 4n }, 1, 0);
    expect(mine.leader(2)).toEqual({ url: 'http://b:1', instance: 'b' });
  });

  it('a lease is vacant at the start if the announcement is old by the clocks, or has this address', () => {
    const old = lease();
    old.note({ ...other, offset: 1n }, 0, 60_000);
    expect(old.vacant(1)).toBe(true);
    const skewed = lease();
    skewed.note({ ...other, offset: 1n }, 0, 4000);
    expect(skewed.vacant(1)).toBe(false);
    const again = new LeaderLease('a', 'http://b:1', LEASE_MS, random);
    again.note({ ...other, offset: 1n }, 0, 0);
    expect(again.vacant(1)).toBe(true);
    again.started();
    expect(again.vacant(1)).toBe(false);
    expect(again.clashes).toBe(true);
    // A leader never forwards to its own address.
    expect(again.leader(1)).toBeUndefined();
  });
});
