/** Traces through @opentelemetry/api, an optional peer dependency. Without it, or without an SDK
 *  that records, every function here does nothing.
 *
 *  A trace context travels as the texts of W3C Trace Context: in the columns traceparent and
 *  tracestate of effects, in the column traceparent and the header tracestate of an outbox row, and
 *  in the headers of a record. A span of a part that runs
 *  later (relay, consumer, runner of effects) starts only for a context whose sampled flag is set,
 *  so the sampling decision of the request holds for all of them.
 *
 *  Types are structural, so that the declarations of this package do not need the API.
 */
import { createRequire } from 'node:module';
import { isTraceparent, isTracestate } from './given-values.ts';

type Context = unknown;

interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
  readonly traceState?: { serialize(): string } | undefined;
}

interface ApiSpan {
  spanContext(): SpanContext;
  isRecording(): boolean;
  setStatus(status: { readonly code: number; readonly message: string }): unknown;
  recordException(thrown: unknown): void;
  end(): void;
}

type Attributes = Readonly<Record<string, string | number>>;

interface Tracer {
  startSpan(
    name: string,
    options: { readonly kind: number; readonly attributes: Attributes },
    at: Context,
  ): ApiSpan;
}

/** Part of @opentelemetry/api that is used; it exists in every version 1. */
export interface TraceApi {
  /** Missing before version 1.1 of the API. */
  createTraceState?(text: string): { serialize(): string };
  readonly ROOT_CONTEXT: Context;
  readonly context: {
    active(): Context;
    with<T>(at: Context, work: () => T): T;
  };
  readonly trace: {
    getTracer(name: string): Tracer;
    getSpan(at: Context): ApiSpan | undefined;
    setSpan(at: Context, span: ApiSpan): Context;
    setSpanContext(at: Context, span: SpanContext & { readonly isRemote: true }): Context;
  };
}

const KINDS = { client: 2, producer: 3, consumer: 4 } as const;
const STATUS_ERROR = 2;
const SAMPLED = 1;
/** Invalid ids, which mean that no span is active. */
const NO_TRACE = /^0+$/;

let loaded: TraceApi | null | undefined;

/** Returns the API; undefined where it is not installed. */
function api(): TraceApi | undefined {
  if (loaded === undefined) {
    try {
      loaded = createRequire(import.meta.url)('@opentelemetry/api') as TraceApi;
    } catch {
      loaded = null;
    }
  }
  return loaded ?? undefined;
}

/** Replaces the API; null: as if it were not installed. For tests. */
export function useTraceApi(given: TraceApi | null | undefined): void {
  loaded = given;
}

/** Texts of a trace context. */
export interface TraceContext {
  readonly traceparent: string;
  /** Data of tracing systems, for this traceparent only. */
  readonly tracestate?: string | undefined;
}

function contextTexts({ traceId, spanId, traceFlags, traceState }: SpanContext): TraceContext {
  const flags = (traceFlags & 0xff).toString(16).padStart(2, '0');
  const tracestate = traceState?.serialize();
  return {
    traceparent: `00-${traceId}-${spanId}-${flags}`,
    ...(isTracestate(tracestate) ? { tracestate } : {}),
  };
}

/** True when the context says that its trace is recorded. */
export const isSampled = (traceparent: string | null | undefined): traceparent is string =>
  isTraceparent(traceparent) && (Number.parseInt(traceparent.slice(-2), 16) & SAMPLED) === SAMPLED;

/** Context of the active span; undefined without one. */
export function activeTrace(): TraceContext | undefined {
  const otel = api();
  const span = otel?.trace.getSpan(otel.context.active());
  if (span === undefined) return undefined;
  const context = span.spanContext();
  return NO_TRACE.test(context.traceId) || NO_TRACE.test(context.spanId) ? undefined : contextTexts(context);
}

/** Span that records, with the context for the parts that it causes. */
export interface TraceSpan extends TraceContext {
  /** Runs work in which this span is the active one. */
  run<T>(work: () => T): T;
  end(): void;
  /** Ends the span as failed. */
  fail(thrown: unknown): void;
}

/** Starts a span. Undefined where nothing records it.
 *  @param parent context of the cause; default: the active span */
export function startSpan(
  name: string,
  kind: keyof typeof KINDS,
  attributes: Attributes,
  parent?: TraceContext,
): TraceSpan | undefined {
  const otel = api();
  if (otel === undefined) return undefined;
  const { trace, context } = otel;
  const at = parent === undefined ? context.active() : contextOf(otel, parent);
  const span = trace.getTracer('millrace').startSpan(name, { kind: KINDS[kind], attributes }, at);
  if (!span.isRecording()) return undefined;
  return {
    ...contextTexts(span.spanContext()),
    run: (work) => context.with(trace.setSpan(at, span), work),
    end: () => span.end(),
    fail(thrown) {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      span.recordException(error);
      span.setStatus({ code: STATUS_ERROR, message: error.message });
      span.end();
    },
  };
}

function contextOf(otel: TraceApi, { traceparent, tracestate }: TraceContext): Context {
  const { trace, ROOT_CONTEXT } = otel;
  const [, traceId, spanId, flags] = traceparent.split('-') as [string, string, string, string];
  const traceFlags = Number.parseInt(flags, 16);
  const traceState = isTracestate(tracestate) ? otel.createTraceState?.(tracestate) : undefined;
  const more = traceState === undefined ? {} : { traceState };
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true, ...more });
}

/** Runs work in a span below a context. Without a span it runs below the context itself, so that
 *  spans of the work follow its sampling decision; without a context, the work runs alone. */
export async function traced<T>(
  name: string,
  kind: keyof typeof KINDS,
  attributes: Attributes,
  parent: TraceContext | undefined,
  work: () => Promise<T>,
): Promise<T> {
  if (!isTraceparent(parent?.traceparent)) return work();
  const span = isSampled(parent.traceparent) ? startSpan(name, kind, attributes, parent) : undefined;
  if (span === undefined) {
    const otel = api();
    return otel === undefined ? work() : otel.context.with(contextOf(otel, parent), work);
  }
  try {
    const value = await span.run(work);
    span.end();
    return value;
  } catch (thrown) {
    span.fail(thrown);
    throw thrown;
  }
}
