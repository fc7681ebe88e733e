/** A reader with an end before a registry that does not answer, under virtual time. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { consumerMetrics } from '../../../../src/registry/consumer/member.ts';
import { prepared } from '../../../../src/registry/consumer/partitions.ts';
import { RegistryWait } from '../../../../src/registry/consumer/registry-wait.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';
import { MemberWorld, SCHEMA } from './consumer-kit.ts';

const LIMIT_MS = 10_000;
const HOUR_MS = 3_600_000;

describe('a member of a group', () => {
  it('a registry that never answers ends the member after the limit, and no record is judged', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    world.registry.isUnavailable = true;
    await world.append(0, [world.good()]);
    const startMs = world.clock.monotonicMs();
    const member = world.member({ registryWaitMs: LIMIT_MS });
    const error = findMillraceError(await world.running(member.ended));
    expect(error).toMatchObject({ code: 'registry_unavailable', row: { exit: 3 } });
    expect(error?.message).toContain('it never answered, for 10s (-connect-timeout); no record was read');
    expect(error?.next).toContain('without -exit-at-end the consumer waits for it');
    const tookMs = world.clock.monotonicMs() - startMs;
    expect(tookMs).toBeGreaterThanOrEqual(LIMIT_MS);
    expect(tookMs).toBeLessThan(2 * LIMIT_MS);
    expect(member.metrics.consumed.value()).toBe(0);
    expect(await world.committed(0)).toBeLessThan(0n);
  });

  it('a registry that went away ends the member after the limit, and what is finished is committed', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    const member = world.member({ registryWaitMs: LIMIT_MS });
    await world.append(0, [world.good(1), world.good(2)]);
    await world.until('two records', () => member.metrics.decoded.value() === 2);
    world.registry.isUnavailable = true;
    await world.append(0, [world.good(3, 2)]);
    const error = findMillraceError(await world.running(member.ended));
    expect(error?.code).toBe('registry_unavailable');
    expect(error?.message).toContain('it answered before, then not for 10s (-connect-timeout)');
    expect(error?.next).toContain('run the command again');
    expect(await world.committed(0)).toBe(2n);
  });

  it('each answer gives the member the whole limit again', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    const member = world.member({ registryWaitMs: LIMIT_MS });
    for (const id of [2, 3, 4]) {
      world.registry.isUnavailable = true;
      await world.append(0, [world.good(id, id)]);
      const waits = member.metrics.registryWaits;
      await world.until('an outage', () => waits.value() === id - 1);
      await world.sleep(0.6 * LIMIT_MS);
      world.registry.schemas.set(id, SCHEMA);
      world.registry.isUnavailable = false;
      await world.until('its record', () => member.metrics.decoded.value() === id - 1);
    }
    await member.stop();
  });

  it('a member without a limit waits for an hour and then reads on', async () => {
    const world = await MemberWorld.open({ partitions: 1 });
    world.registry.isUnavailable = true;
    await world.append(0, [world.good()]);
    const member = world.member();
    await world.sleep(HOUR_MS);
    world.registry.isUnavailable = false;
    await world.until('the record', () => member.metrics.decoded.value() === 1);
    await member.stop();
  });
});

describe('a reader without a group', () => {
  const waiting = (failures: number, error: Error, limit: boolean) => {
    const clock = new VirtualClock(0);
    let left = failures;
    const read = prepared(
      {
        clock,
        drain: new AbortController().signal,
        log: silentLogger,
        metrics: consumerMetrics(new Metrics()),
        decoder: {
          prepare: async () => {
            if (left-- > 0) throw error;
          },
        },
        registryWait: limit ? new RegistryWait(clock, LIMIT_MS, true) : undefined,
      },
      RecordBatch.create(1, 64),
    );
    return { clock, read };
  };
  const away = registryError('registry_unavailable', 'ECONNREFUSED');

  it('the wait ends at its limit with the error of the last request', async () => {
    const refused = registryError('unauthenticated', 'the registry answers 401', {
      next: 'give credentials',
    });
    for (const error of [away, refused]) {
      const { clock, read } = waiting(Number.POSITIVE_INFINITY, error, true);
      const thrown = findMillraceError(await clock.run(read.catch((failure: unknown) => failure)));
      expect(thrown).toMatchObject({ code: error.code, row: error.row });
      expect(thrown?.message).toContain(error.message);
      expect(clock.monotonicMs()).toBe(LIMIT_MS);
    }
  });

  it('a registry that answers within the limit, or later without one, is read from', async () => {
    const short = waiting(5, away, true);
    expect(await short.clock.run(short.read)).toBe(true);
    const long = waiting(50, away, false);
    expect(await long.clock.run(long.read)).toBe(true);
    expect(long.clock.monotonicMs()).toBeGreaterThan(LIMIT_MS);
  });
});
