/** Health of a consumer: whether it is a member of its group, and when a broker counts as
 *  silent. */
import { describe, expect, it } from 'vitest';
import { MemberHealth } from '../../../../src/outbox/inbox/health.ts';
import { realClock } from '../../../wait.ts';
import { resumeAfterStall, withFakeIntervals } from '../../stall.ts';

const unreachable = new Error('no broker answers within 1000 ms');

/** A consumer without an assignment, and a clock that the test moves. */
function withoutAssignment() {
  let nowMs = 0;
  const health = new MemberHealth({ ...realClock, wallNowMs: () => nowMs, monotonicMs: () => nowMs });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  return { health, pass };
}

function member() {
  const made = withoutAssignment();
  made.health.moved('assigned');
  return made;
}

describe('consumer health', () => {
  it('a consumer is a member from its first assignment until its session is lost', async () => {
    const { health } = withoutAssignment();
    const client = { reach: () => Promise.resolve() };
    expect(await health.unhealthyReason(client)).toMatch(/no partitions were assigned yet$/);
    health.moved('assigned');
    expect(await health.unhealthyReason(client)).toBeUndefined();
    health.moved('revoked');
    expect(await health.unhealthyReason(client)).toBeUndefined();
    health.moved('lost');
    expect(await health.unhealthyReason(client)).toMatch(/^not a member/);
  });

  it('a member stays healthy while a broker is silent for 3 s, and no longer', async () => {
    const { health, pass } = member();
    const client = { reach: () => Promise.reject(unreachable) };
    expect(await health.unhealthyReason(client)).toBeUndefined();
    pass(3000);
    expect(await health.unhealthyReason(client)).toBeUndefined();
    pass(1);
    expect(await health.unhealthyReason(client)).toBe(unreachable.message);
  });

  it('a member repeats its query after a stall of its process, which invalidates the first query', async () => {
    await withFakeIntervals(async () => {
      const { health, pass } = member();
      let asked = 0;
      const client = {
        reach: async () => {
          if (asked++ > 0) return;
          pass(3500);
          resumeAfterStall();
          throw unreachable;
        },
      };
      expect(await health.unhealthyReason(client)).toBeUndefined();
      expect(asked).toBe(2);
    });
  });
});
