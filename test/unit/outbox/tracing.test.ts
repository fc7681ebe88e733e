/** Traces of the library: each part continues the trace of its cause, and nothing happens without
 *  the API of OpenTelemetry, without an SDK, or for a trace that is not sampled. */
import { createTraceState, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterEach, describe, expect, it } from 'vitest';
import { append } from '../../../src/outbox/append/events.ts';
import { effect } from '../../../src/outbox/effects/add.ts';
import { inTrace, toRecord, tracestateOf } from '../../../src/outbox/relay/pipeline/event.ts';
import type { OutboxRow } from '../../../src/outbox/relay/store.ts';
import {
  activeTrace,
  isSampled,
  startSpan,
  type TraceApi,
  traced,
  useTraceApi,
} from '../../../src/outbox/tracing.ts';

const UUID = '01890a5d-ac96-774b-bcce-b302099a8057';
const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const UNSAMPLED = PARENT.replace(/01$/, '00');
const STATE = 'rojo=00f067aa0ba902b7,congo@t=ucf';
const CAUSE = { traceparent: PARENT, tracestate: STATE };

const managers: AsyncLocalStorageContextManager[] = [];
afterEach(() => {
  useTraceApi(undefined);
  for (const manager of managers.splice(0)) manager.disable();
});

/** Uses an SDK of its own, so that no other test of the process is traced. */
function sdk(isOn = true) {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
    ...(isOn ? {} : { sampler: new AlwaysOffSampler() }),
  });
  const manager = new AsyncLocalStorageContextManager().enable();
  managers.push(manager);
  const api = {
    createTraceState,
    ROOT_CONTEXT,
    context: {
      active: () => manager.active(),
      with: <T>(at: ReturnType<typeof manager.active>, work: () => T): T => manager.with(at, work),
    },
    trace: {
      getTracer: (name: string) => provider.getTracer(name),
      getSpan: trace.getSpan,
      setSpan: trace.setSpan,
      setSpanContext: trace.setSpanContext,
    },
  } as unknown as TraceApi;
  useTraceApi(api);
  return { exporter, api };
}

/** Transaction that answers each statement as open, on a table with or without a column for
 *  traces. */
function transaction(traceColumn = '1') {
  const inserts: Array<readonly unknown[]> = [];
  const query = async (text: string, params: readonly unknown[]) => {
    if (text.includes('pg_attribute')) return { rows: [{ n: traceColumn }] };
    inserts.push(params);
    return { rows: [{ open: 'true' }] };
  };
  return { inserts, tx: { query } };
}

const event = { aggregateId: UUID, eventType: 'a', payload: 1 };

const causeOf = (traceparent: string | null | undefined) =>
  traceparent === undefined || traceparent === null ? undefined : { traceparent, tracestate: STATE };

describe('no recorder', () => {
  it.each([
    ['no API', () => useTraceApi(null)],
    ['a tracer that records nothing', () => void sdk(false)],
  ])('the work runs and no trace is written with %s', async (_, prepare) => {
    prepare();
    expect(startSpan('a', 'producer', {})).toBeUndefined();
    expect(activeTrace()).toBeUndefined();
    expect(await traced('a', 'consumer', {}, CAUSE, async () => 7)).toBe(7);
    const { inserts, tx } = transaction();
    await append(tx, 'no_recorder', event);
    expect(inserts[0]).toHaveLength(4);
    await append(tx, 'no_recorder', { ...event, traceparent: PARENT });
    expect(inserts[1]?.[4]).toEqual([PARENT]);
  });

  it('a context whose sampled flag is not set, or that is malformed, starts no span', async () => {
    const { exporter } = sdk();
    for (const parent of [UNSAMPLED, 'nonsense', '', null, undefined, PARENT.toUpperCase()]) {
      expect(isSampled(parent)).toBe(false);
      const seen = await traced('a', 'consumer', {}, causeOf(parent), async () => activeTrace());
      expect(seen, 'spans of the work follow the decision').toEqual(
        parent === UNSAMPLED ? causeOf(parent) : undefined,
      );
    }
    expect(isSampled(PARENT.replace(/01$/, '03'))).toBe(true);
    expect(exporter.getFinishedSpans()).toEqual([]);
  });
});

describe('recorder', () => {
  it('append is a span below the active one, and its context goes into each row without one', async () => {
    const { exporter } = sdk();
    const request = startSpan('request', 'client', {});
    const { inserts, tx } = transaction();
    await request?.run(() => append(tx, 'traced', [event, { ...event, traceparent: UNSAMPLED }]));
    request?.end();
    const [appended, parent] = exporter.getFinishedSpans();
    expect([appended?.name, parent?.name]).toEqual(['append traced', 'request']);
    expect(appended?.parentSpanContext?.spanId).toBe(parent?.spanContext().spanId);
    expect(appended?.attributes).toMatchObject({
      'messaging.operation.type': 'create',
      'messaging.batch.message_count': 2,
    });
    const { traceId, spanId } = appended?.spanContext() ?? {};
    expect(inserts[0]?.[4]).toEqual([`00-${traceId}-${spanId}-01`, UNSAMPLED]);
  });

  it('an append that fails is a failed span, and its error reaches the caller', async () => {
    const { exporter } = sdk();
    const failing = { query: async () => Promise.reject(new Error('the server left')) };
    await expect(append(failing, 'traced_failing', event)).rejects.toThrow('the server left');
    const [span] = exporter.getFinishedSpans();
    expect(span?.status).toEqual({ code: 2, message: 'the server left' });
    expect(span?.events.map(({ name }) => name)).toEqual(['exception']);
  });

  it('a table without a column for traces accepts events while a trace is active', async () => {
    sdk();
    const { inserts, tx } = transaction('0');
    await append(tx, 'by_hand_without_trace', event);
    expect(inserts[0]).toHaveLength(4);
  });

  it('an effect has the context of the active span', async () => {
    sdk();
    const span = startSpan('handle', 'consumer', {}, { traceparent: PARENT });
    expect(span?.traceparent.slice(3, 35)).toBe(PARENT.slice(3, 35));
    const { inserts, tx } = transaction();
    await span?.run(() => effect(tx, 'effects', { name: 'pay', key: 'k', input: 1 }));
    await effect(tx, 'effects', { name: 'pay', key: 'k', input: 1, traceparent: PARENT });
    expect(inserts.map((params) => params.at(-1))).toEqual([span?.traceparent, PARENT]);
  });

  it('traced work runs in its span, which ends with its outcome', async () => {
    const { exporter } = sdk();
    const seen: Array<string | undefined> = [];
    await traced('good', 'consumer', { n: 1 }, CAUSE, async () => void seen.push(activeTrace()?.traceparent));
    const failure = new Error('no stock');
    await expect(traced('bad', 'client', {}, CAUSE, () => Promise.reject(failure))).rejects.toBe(failure);
    const [good, bad] = exporter.getFinishedSpans();
    expect(seen[0]?.slice(36, 52)).toBe(good?.spanContext().spanId);
    expect([good?.kind, bad?.kind, good?.status.code, bad?.status.code]).toEqual([4, 2, 0, 2]);
    expect(good?.parentSpanContext).toMatchObject({ spanId: PARENT.slice(36, 52), isRemote: true });
  });

  it('the tracestate of the active span is a header of each row without a context of its own', async () => {
    sdk();
    const { inserts, tx } = transaction();
    await traced('request', 'client', {}, CAUSE, () =>
      append(tx, 'stated', [
        event,
        { ...event, headers: { a: 'b' } },
        { ...event, traceparent: PARENT },
        { ...event, traceparent: PARENT, tracestate: 'own=1' },
      ]),
    );
    const headers = (inserts[0] as Array<Array<string | null>>)[8]?.map((text) => text && JSON.parse(text));
    expect(headers).toEqual([
      { tracestate: STATE },
      { a: 'b', tracestate: STATE },
      null,
      { tracestate: 'own=1' },
    ]);
  });

  it('an effect has the tracestate of the active span, and a table without its column leaves it out', async () => {
    sdk();
    const { inserts, tx } = transaction();
    const older = transaction('0');
    const one = { name: 'pay', key: 'k', input: 1 };
    await traced('handle', 'consumer', {}, CAUSE, async () => {
      await effect(tx, 'stated_effects', one);
      await effect(older.tx, 'older_effects', one);
    });
    await effect(tx, 'stated_effects', { ...one, traceparent: PARENT });
    await effect(tx, 'stated_effects', { ...one, ...CAUSE });
    expect(inserts.map((params) => params.slice(5))).toEqual([[STATE], [], [STATE]]);
    expect(older.inserts[0]).toHaveLength(5);
  });

  it.each([
    ['a tracestate without its traceparent', { tracestate: STATE }],
    ['a tracestate that is no list', { traceparent: PARENT, tracestate: 'nonsense' }],
    ['a tracestate of more than 512 characters', { traceparent: PARENT, tracestate: `a=${'b'.repeat(511)}` }],
    ['a tracestate of more than 32 members', { traceparent: PARENT, tracestate: 'a=b,'.repeat(33) }],
  ])('an event or an effect with %s is refused', async (_what, given) => {
    const { tx, inserts } = transaction();
    await expect(append(tx, 'refusing', { ...event, ...given })).rejects.toMatchObject({ code: 'bad_event' });
    await expect(effect(tx, 'refusing', { name: 'pay', key: 'k', input: 1, ...given })).rejects.toMatchObject(
      { code: 'bad_effect' },
    );
    expect(inserts).toEqual([]);
  });

  it('a relay publishes a row with the tracestate of its span', () => {
    const row = {
      ...{ id: 1n, aggregateId: UUID, msgId: UUID, eventType: 'a', payload: Buffer.from('1') },
      createdAt: new Date(0),
      traceparent: PARENT,
    } as OutboxRow;
    const headersOf = (one: OutboxRow) =>
      new Map(
        toRecord(one, 'poll').headers?.map(([name, value]) => [name, Buffer.from(value ?? []).toString()]),
      );
    expect(tracestateOf(row)).toBeUndefined();
    const sent = inTrace(row, { traceparent: UNSAMPLED, tracestate: STATE });
    expect([headersOf(sent).get('traceparent'), headersOf(sent).get('tracestate')]).toEqual([
      UNSAMPLED,
      STATE,
    ]);
    expect(tracestateOf(sent)).toBe(STATE);
    expect(headersOf(inTrace(sent, { traceparent: PARENT, tracestate: 'other=1' })).get('tracestate')).toBe(
      'other=1',
    );
    expect(headersOf(inTrace(row, { traceparent: PARENT })).has('tracestate')).toBe(false);
  });
});
