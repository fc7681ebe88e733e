/** Traces of the library: each part continues the trace of its cause, and nothing happens without
 *  the API of OpenTelemetry, without an SDK, or for a trace that is not sampled. */
import { ROOT_CONTEXT, trace } from '@opentelemetry/api';
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
import {
  activeTraceparent,
  isSampled,
  startSpan,
  type TraceApi,
  traced,
  useTraceApi,
} from '../../../src/outbox/tracing.ts';

const UUID = '01890a5d-ac96-774b-bcce-b302099a8057';
const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const UNSAMPLED = PARENT.replace(/01$/, '00');

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

describe('no recorder', () => {
  it.each([
    ['no API', () => useTraceApi(null)],
    ['a tracer that records nothing', () => void sdk(false)],
  ])('the work runs and no trace is written with %s', async (_, prepare) => {
    prepare();
    expect(startSpan('a', 'producer', {})).toBeUndefined();
    expect(activeTraceparent()).toBeUndefined();
    expect(await traced('a', 'consumer', {}, PARENT, async () => 7)).toBe(7);
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
      const seen = await traced('a', 'consumer', {}, parent, async () => activeTraceparent());
      expect(seen, 'spans of the work follow the decision').toBe(parent === UNSAMPLED ? parent : undefined);
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
    const span = startSpan('handle', 'consumer', {}, PARENT);
    expect(span?.traceparent.slice(3, 35)).toBe(PARENT.slice(3, 35));
    const { inserts, tx } = transaction();
    await span?.run(() => effect(tx, 'effects', { name: 'pay', key: 'k', input: 1 }));
    await effect(tx, 'effects', { name: 'pay', key: 'k', input: 1, traceparent: PARENT });
    expect(inserts.map((params) => params.at(-1))).toEqual([span?.traceparent, PARENT]);
  });

  it('traced work runs in its span, which ends with its outcome', async () => {
    const { exporter } = sdk();
    const seen: Array<string | undefined> = [];
    await traced('good', 'consumer', { n: 1 }, PARENT, async () => void seen.push(activeTraceparent()));
    const failure = new Error('no stock');
    await expect(traced('bad', 'client', {}, PARENT, () => Promise.reject(failure))).rejects.toBe(failure);
    const [good, bad] = exporter.getFinishedSpans();
    expect(seen[0]?.slice(36, 52)).toBe(good?.spanContext().spanId);
    expect([good?.kind, bad?.kind, good?.status.code, bad?.status.code]).toEqual([4, 2, 0, 2]);
    expect(good?.parentSpanContext).toMatchObject({ spanId: PARENT.slice(36, 52), isRemote: true });
  });
});
