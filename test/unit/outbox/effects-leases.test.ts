/** Leases of the claims of one runner, under virtual time. */
import { describe, expect, it } from 'vitest';
import { type ClaimKey, EffectLeases } from '../../../src/outbox/effects/leases.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';

const LEASE_MS = 300;
const claim = (row: bigint, attempt = 1): ClaimKey => ({ row, attempt });

describe('the leases of a runner', () => {
  it('a lease is held until it ends, counted from the moment before its claim was sent', async () => {
    const clock = new VirtualClock();
    const leases = new EffectLeases(clock, LEASE_MS);
    await clock.advance(100);
    const lease = leases.begin(claim(1n), 50);
    await clock.advance(249);
    expect([lease.isHeld, lease.ended.aborted]).toEqual([true, false]);
    await clock.advance(1);
    expect([lease.isHeld, lease.ended.aborted]).toEqual([false, true]);
    expect(leases.begin(claim(2n), 0).isHeld).toBe(false);
  });

  it('a renewal names the claims in work, extends those that it found and ends the others', async () => {
    const clock = new VirtualClock();
    const leases = new EffectLeases(clock, LEASE_MS);
    const [kept, lost, other] = [claim(1n), claim(2n), claim(1n, 2)].map((one) => leases.begin(one, 0));
    const released = leases.begin(claim(3n), 0);
    leases.release(released);
    await clock.advance(200);
    const asked: ClaimKey[] = [];
    await leases.renew(async (held) => {
      asked.push(...held);
      return [claim(1n)];
    });
    expect(asked).toEqual([kept, lost, other]);
    await clock.advance(200);
    expect([kept, lost, other, released].map((lease) => lease?.ended.aborted)).toEqual([
      ...[false, true, true, false],
    ]);
    await clock.advance(100);
    expect(kept?.ended.aborted).toBe(true);
    await leases.renew(() => Promise.reject(new Error('no claim is held')));
  });

  it('a lease whose work ends during a renewal is left as it is, and a renewal that fails extends none', async () => {
    const clock = new VirtualClock();
    const leases = new EffectLeases(clock, LEASE_MS);
    const [done, kept] = [leases.begin(claim(1n), 0), leases.begin(claim(2n), 0)];
    await leases.renew(async () => {
      leases.release(done);
      return [claim(2n)];
    });
    expect([done.ended.aborted, kept.ended.aborted]).toEqual([false, false]);
    await clock.advance(200);
    await expect(leases.renew(() => Promise.reject(new Error('away')))).rejects.toThrow('away');
    await clock.advance(100);
    expect([done.ended.aborted, kept.ended.aborted]).toEqual([false, true]);
  });
});
