/** One trace from a request to the call of a third party: append, publish, handle and effect, with
 *  the SDK of OpenTelemetry on a real broker and database. */
import { context, createTraceState, SpanKind, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AlwaysOnSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  ParentBasedSampler,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { beforeEach, describe, expect, it } from 'vitest';
import { append } from '../../src/outbox/append/events.ts';
import { effect } from '../../src/outbox/effects/add.ts';
import type { Service } from '../../src/outbox/service.ts';
import { until } from '../wait.ts';
import { type RowsWorld, recordsOf, rowsWorld } from './library-rows-kit.ts';
import { dropSlots } from './wal-kit.ts';

const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(
  new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
    sampler: new ParentBasedSampler({ root: new AlwaysOnSampler() }),
  }),
);
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const shop = trace.getTracer('shop');
beforeEach(() => exporter.reset());

/** tracestate of each call of a third party. */
const called: Array<string | undefined> = [];

const PARTS = {
  outboxTable: 'sent',
  inbox: 'received',
  parkedTable: 'aside',
  effectsTable: 'effects',
};

/** Service whose handler adds an effect; the handler fails as often as `failures` says. */
async function shopIn(world: RowsWorld, mode: 'poll' | 'wal', failures = 0): Promise<Service> {
  const service = await world.open();
  await service.migrate([], PARTS);
  await service.relay({ mode, table: PARTS.outboxTable, topic: world.topic });
  let failed = 0;
  const { inbox, parkedTable } = PARTS;
  service.consume({
    topic: world.topic,
    inbox,
    parkedTable,
    retry: { firstDelayMs: 1, maxDelayMs: 5 },
    handle: async (tx, { msgId }) => {
      if (failed++ < failures) throw new Error('the stock is locked');
      await effect(tx, PARTS.effectsTable, { name: 'notify', key: 'k', input: {}, id: msgId });
    },
  });
  service.effects({
    effectsTable: PARTS.effectsTable,
    pollMs: 10,
    handlers: {
      notify: {
        call: async ({ tracestate }) => {
          called.push(tracestate);
          shop.startSpan('POST /mails', { kind: SpanKind.CLIENT }).end();
          return null;
        },
      },
    },
  });
  return service;
}

/** Handles a request that appends an event. */
const request = (service: Service): Promise<unknown> =>
  shop.startActiveSpan('POST /parcels', { kind: SpanKind.SERVER }, async (span) => {
    await service.pool.transaction((tx) =>
      append(tx, PARTS.outboxTable, { aggregateId: 'parcel 7', eventType: 'parcel.sent.v1', payload: 1 }),
    );
    span.end();
  });

const spanOf = (name: string): ReadableSpan | undefined =>
  exporter.getFinishedSpans().find((span) => span.name === name);
const parentOf = (span: ReadableSpan | undefined): string | undefined => {
  const parent = span?.parentSpanContext?.spanId;
  return exporter.getFinishedSpans().find((one) => one.spanContext().spanId === parent)?.name;
};

describe('trace of a request', () => {
  it.each(['poll', 'wal'] as const)(
    'one trace holds the request, append, publish, handle, effect and its call, with a relay in %s mode',
    async (mode) => {
      const world = await rowsWorld();
      const service = await shopIn(world, mode);
      try {
        await request(service);
        await until('the span of the call', () => spanOf('effect notify'));
        const chain = [
          'POST /parcels',
          `append ${PARTS.outboxTable}`,
          `publish ${world.topic}`,
          `process ${world.topic}`,
          'effect notify',
          'POST /mails',
        ];
        const spans = chain.map(spanOf);
        expect(spans.map((span) => span?.name)).toEqual(chain);
        expect(spans.map(parentOf)).toEqual([undefined, ...chain.slice(0, -1)]);
        expect(new Set(spans.map((span) => span?.spanContext().traceId)).size).toBe(1);
        expect(spans.map((span) => span?.kind)).toEqual([
          SpanKind.SERVER,
          SpanKind.PRODUCER,
          SpanKind.PRODUCER,
          SpanKind.CONSUMER,
          SpanKind.CLIENT,
          SpanKind.CLIENT,
        ]);
        const [record] = await recordsOf(world.topic);
        const published = spans[2]?.spanContext();
        expect(record?.text('traceparent')).toBe(`00-${published?.traceId}-${published?.spanId}-01`);
        expect(spans[3]?.attributes).toMatchObject({ 'messaging.message.id': record?.text('ce_id') });
      } finally {
        await service.close();
        await dropSlots(world.pool, world.schema);
      }
    },
  );

  it.each(['poll', 'wal'] as const)(
    'the tracestate of a request reaches record, spans and effect, with a relay in %s mode',
    async (mode) => {
      const world = await rowsWorld();
      const service = await shopIn(world, mode);
      const state = 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE';
      const traceId = '0af7651916cd43dd8448eb211c80319c';
      const remote = { traceId, spanId: 'b7ad6b7169203331', traceFlags: 1, isRemote: true };
      const at = trace.setSpanContext(context.active(), { ...remote, traceState: createTraceState(state) });
      try {
        await context.with(at, () => request(service));
        await until('the span of the call', () => spanOf('effect notify'));
        const [record] = await recordsOf(world.topic);
        expect(record?.text('tracestate')).toBe(state);
        for (const name of [`publish ${world.topic}`, `process ${world.topic}`, 'effect notify'])
          expect(spanOf(name)?.spanContext().traceState?.serialize(), name).toBe(state);
        expect(called.at(-1)).toBe(state);
        const { rows } = await world.pool.query('SELECT tracestate FROM effects');
        expect(rows).toEqual([{ tracestate: state }]);
      } finally {
        await service.close();
        await dropSlots(world.pool, world.schema);
      }
    },
  );

  it('a handler that fails is a failed span, and its retry is another one of the same trace', async () => {
    const world = await rowsWorld();
    const service = await shopIn(world, 'poll', 1);
    try {
      await request(service);
      await until('the span of the call', () => spanOf('effect notify'));
      const handled = exporter.getFinishedSpans().filter(({ name }) => name === `process ${world.topic}`);
      expect(handled.map(({ status }) => status.message)).toEqual(['the stock is locked', undefined]);
      expect(new Set(handled.map((span) => span.spanContext().traceId)).size).toBe(1);
    } finally {
      await service.close();
    }
  });

  it('a request that is not sampled leaves no span, and its trace id still reaches the record', async () => {
    const world = await rowsWorld();
    const service = await shopIn(world, 'poll');
    const traceId = '0af7651916cd43dd8448eb211c80319c';
    const remote = { traceId, spanId: 'b7ad6b7169203331', traceFlags: 0, isRemote: true };
    try {
      await context.with(trace.setSpanContext(context.active(), remote), () => request(service));
      await until('the effect', async () => {
        const { rowCount } = await world.pool.query(`SELECT FROM effects WHERE state = 'done'`);
        return rowCount === 1 || undefined;
      });
      const [record] = await recordsOf(world.topic);
      expect(record?.text('traceparent')).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`));
      expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual([]);
    } finally {
      await service.close();
    }
  });

  it('an event of a writer without traces starts none in the library, and spans of its handlers are their own', async () => {
    const world = await rowsWorld();
    const service = await shopIn(world, 'poll');
    try {
      await world.pool.query(
        `INSERT INTO sent (aggregate_id, msg_id, event_type, payload)
         VALUES (gen_random_uuid(), gen_random_uuid(), 'parcel.sent.v1', '{}')`,
      );
      const call = await until('the span of the call', () => spanOf('POST /mails'));
      expect(call.parentSpanContext).toBeUndefined();
      expect(exporter.getFinishedSpans()).toHaveLength(1);
    } finally {
      await service.close();
    }
  });
});
