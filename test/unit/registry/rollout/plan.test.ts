/** Safe orders of an upgrade, from the mode and the verdict on the two schemas. */
import { describe, expect, test } from 'vitest';
import { parseSchema } from '../../../../src/formats/schema.ts';
import type { OrderShape } from '../../../../src/gen/order.ts';
import { orderSchema } from '../../../../src/gen/order-versions.ts';
import type { Level } from '../../../../src/registry/compatibility/modes.ts';
import { planRollout, type RolloutPlan } from '../../../../src/registry/rollout/plan.ts';

const plan = (from: OrderShape, to: OrderShape, mode: Level): RolloutPlan =>
  planRollout(
    parseSchema('AVRO', orderSchema(from, 'avro')),
    parseSchema('AVRO', orderSchema(to, 'avro')),
    mode,
  );

describe('plans', () => {
  test.each<[OrderShape, OrderShape, Level, boolean, readonly string[], string | undefined]>([
    [1, 2, 'FULL', true, ['consumers-first', 'producers-first'], 'consumers-first'],
    [1, 2, 'FORWARD', true, ['consumers-first', 'producers-first'], 'producers-first'],
    [3, 4, 'BACKWARD', true, ['consumers-first'], 'consumers-first'],
    [3, 4, 'FORWARD', false, ['consumers-first'], 'consumers-first'],
    [5, 6, 'FORWARD', true, ['producers-first'], 'producers-first'],
    [5, 6, 'BACKWARD', false, ['producers-first'], 'producers-first'],
    [6, 'rename', 'NONE', true, [], undefined],
  ])(
    'the plan from %s to %s under %s has accepted %s, safe %j, order %s',
    (from, to, mode, accepted, safe, order) => {
      expect(plan(from, to, mode)).toMatchObject({ accepted, safe, order });
    },
  );

  test('the reasons name the field and the rule that break the other order', () => {
    const { why, steps } = plan(5, 6, 'FORWARD');
    expect(why[0]).toBe('FORWARD guarantees producers first, and the new schema is accepted under it');
    expect(why[1]).toMatch(/do not: .*region.*AVRO_READER_FIELD_WITHOUT_DEFAULT/);
    expect(why[2]).toContain('they do');
    expect(steps).toContain('wait until every group has read and committed all old records');
  });

  test('an upgrade without a safe order has no steps and says what to do instead', () => {
    const { why, steps } = plan(6, 'rename', 'NONE');
    expect(steps).toEqual([]);
    expect(why.at(-1)).toContain('no order is safe');
  });
});
