/** Health of a consumer: whether it is a member of its group, and when a broker counts as
 *  silent. */
import { describe, expect, it } from 'vitest';
import { MemberHealth } from '../../../../src/outbox/inbox/health.ts';
import { realClock } from '../../../wait.ts';
import { resumeAfterStall, withFakeIntervals } from '../../stall.ts';

const unreachable = new Error('no broker answers within 1000 ms');

/** Consumer that the group has not admitted yet, and a clock that the test moves. */
function joining() {
  let nowMs = 0;
  const presence = new MemberHealth({ ...realClock, wallNowMs: () => nowMs, monotonicMs: () => nowMs });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  return { presence, pass };
}

function member() {
  const made = joining();
  made.presence.moved('assigned');
  return made;
}

describe('consumer health', () => {
  it('a consumer is a member from its first assignment until its session is lost', async () => {
    const { presence } = joining();
    const client = { reach: () => Promise.resolve() };
    expect(await presence.unhealthyReason(client)).toMatch(/has not let this one in yet$/);
    presence.moved('assigned');
    expect(await presence.unhealthyReason(client)).toBeUndefined();
    presence.moved('revoked');
    expect(await presence.unhealthyReason(client)).toBeUndefined();
    presence.moved('lost');
    expect(await presence.unhealthyReason(client)).toMatch(/^not a member/);
  });

  it('a member stays healthy while a broker is silent for 3 s, and no longer', async () => {
    const { presence, pass } = member();
    const client = { reach: () => Promise.reject(unreachable) };
    expect(await presence.unhealthyReason(client)).toBeUndefined();
    pass(3000);
    expect(await presence.unhealthyReason(client)).toBeUndefined();
    pass(1);
    expect(await presence.unhealthyReason(client)).toBe(unreachable.message);
  });

  it('a member repeats its query after a stall of its process, which invalidates the first query', async () => {
    await withFakeIntervals(async () => {
      const { presence, pass } = member();
      let asked = 0;
      const client = {
        reach: async () => {
          if (asked++ > 0) return;
          pass(3500);
          resumeAfterStall();
          throw unreachable;
        },
      };
      expect(await presence.unhealthyReason(client)).toBeUndefined();
      expect(asked).toBe(2);
    });
  });
});
