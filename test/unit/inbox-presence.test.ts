/** When a member is one, and when a broker counts as away. */
import { describe, expect, it } from 'vitest';
import { Presence } from '../../src/outbox/inbox/presence.ts';

const clock = { wallNowMs: () => Date.now(), monotonicMs: () => performance.now() };
const away = new Error('no broker answers within 1000 ms');

function member(): Presence {
  const presence = new Presence(clock);
  presence.moved('assigned');
  return presence;
}

describe('a member of a group', () => {
  it('is none before it was let in, and one until its session is lost', async () => {
    const presence = new Presence(clock);
    const client = { reach: () => Promise.resolve() };
    expect(await presence.whyNot(client)).toMatch(/has not let this one in yet$/);
    presence.moved('assigned');
    expect(await presence.whyNot(client)).toBeUndefined();
    presence.moved('revoked');
    expect(await presence.whyNot(client)).toBeUndefined();
    presence.moved('lost');
    expect(await presence.whyNot(client)).toMatch(/^not a member/);
  });

  it('stays one while a broker was heard a moment ago, and is none once it is silent for longer', async () => {
    const presence = member();
    const client = { reach: () => Promise.reject(away) };
    expect(await presence.whyNot(client)).toBeUndefined();
    await new Promise((resolve) => setTimeout(resolve, 3100));
    expect(await presence.whyNot(client)).toBe(away.message);
  });

  it('stays one after this process stood still: what it had asked is given up, so it asks again', async () => {
    const presence = member();
    let asked = 0;
    const client = {
      reach: async () => {
        if (asked++ > 0) return;
        const until = performance.now() + 3500;
        while (performance.now() < until);
        throw away;
      },
    };
    expect(await presence.whyNot(client)).toBeUndefined();
    expect(asked).toBe(2);
  });
});
