/** The consumer over the simulated broker and a simulated registry, under virtual time. */
import { describe, expect, it } from 'vitest';
import { MemberWorld } from './registry-consumer-kit.ts';

describe('the lag gauge of a consumer', () => {
  it('covers the records that wait for an absent registry, and those that arrive meanwhile', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    world.registry.isAway = true;
    await world.append(
      0,
      Array.from({ length: 5 }, () => world.good()),
    );
    const member = world.member();
    await world.until('the pause', () => member.metrics.registryWaits.value() === 1);
    await world.append(
      0,
      Array.from({ length: 10 }, () => world.good()),
    );
    await world.until('the lag of all records', () => member.lag().get('0') === 15);
    world.registry.isAway = false;
    await world.until('all records decoded', () => member.metrics.decoded.value() === 15);
    await world.until('no lag', () => member.lag().get('0') === 0);
    await member.stop();
  });

  it('leaves out a partition that was revoked', async () => {
    const world = await MemberWorld.open({ partitions: 2 });
    for (const partition of [0, 1]) await world.append(partition, [world.good()]);
    const first = world.member();
    await world.until('the lag of both partitions', () => first.lag().size === 2);
    const second = world.member();
    await world.until(
      'the lag of one partition each',
      () => first.lag().size === 1 && second.lag().size === 1,
    );
    expect(new Set([...first.lag().keys(), ...second.lag().keys()])).toEqual(new Set(['0', '1']));
    await first.stop();
    await second.stop();
  });
});
