/** Trace context of an order: from the request to the effect that a service adds when it handles the
 *  event, through a relay on the outbox of orders. */
import { describe, expect, it } from 'vitest';
import { effect } from '../../src/outbox/effects/add.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { recordsOf, rowsWorld } from './library-rows-kit.ts';
import { createdOf, newKey, ordersKit, post, stop } from './orders-kit.ts';
import { dropSlots } from './wal-kit.ts';

const own = launcher();
const { postgres } = await sharedStack();
const kit = ordersKit(own, postgres);

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const STATE = 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE';
const PARTS = { outboxTable: 'sent', inbox: 'received', parkedTable: 'aside', effectsTable: 'effects' };

describe('trace of an order', () => {
  it.each(['poll', 'wal'] as const)(
    'the trace context of an order reaches its record and its effect, with a relay in %s mode',
    async (mode) => {
      const world = await rowsWorld();
      const orders = await kit.serve(world.schema);
      const service = await world.open();
      const called: Array<{ readonly traceparent?: string; readonly tracestate?: string }> = [];
      try {
        await service.migrate([], PARTS);
        await service.relay({ mode, table: 'outbox', topic: world.topic });
        service.consume({
          topic: world.topic,
          inbox: PARTS.inbox,
          parkedTable: PARTS.parkedTable,
          handle: (tx, { msgId }) =>
            effect(tx, PARTS.effectsTable, { name: 'notify', key: msgId, input: {}, id: msgId }),
        });
        service.effects({
          effectsTable: PARTS.effectsTable,
          pollMs: 10,
          handlers: { notify: { call: async (given) => void called.push(given) } },
        });
        const asked = post(newKey());
        const trace = { traceparent: `00-${TRACE_ID}-b7ad6b7169203331-01`, tracestate: STATE };
        createdOf(await orders.ask({ ...asked, headers: { ...asked.headers, ...trace } }), false);
        createdOf(await orders.ask(post(newKey())), false);
        await until('two effects', () => called.length === 2);
        const records = await recordsOf(world.topic);
        expect(records.map((record) => record.text('tracestate')).sort()).toEqual([STATE, undefined]);
        expect(called.map(({ tracestate }) => tracestate).sort()).toEqual([STATE, undefined]);
        const traced = called.find(({ tracestate }) => tracestate === STATE);
        expect(traced?.traceparent).toContain(TRACE_ID);
      } finally {
        await stop(orders);
        await service.close();
        await dropSlots(world.pool, world.schema);
      }
    },
  );
});
