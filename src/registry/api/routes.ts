/** The registry's HTTP interface: a route for every operation, and the OpenAPI description of all
 *  of them.
 *  A request passes these steps in order. On its head, before its body is read: authentication and
 *  authorisation. Then content negotiation; forwarding to the leader for a write; waiting for the
 *  writes of other instances for a read; the right to the subject behind an alias; the operation's
 *  `run`. An error at any step becomes an answer in the one error shape. */
import { type Access, openGate, type RequestGate } from '../../access/request.ts';
import type {
  HttpAdmission,
  HttpRequest,
  HttpRequestHead,
  HttpResponse,
  HttpRoute,
} from '../../io/http/port.ts';
import type { RegistryService } from '../store/service.ts';
import { CHECK_MS_MAX, untilDone } from '../worker/checks.ts';
import { answer, answerOf, Ready, type Wire } from './answers.ts';
import { ByteCache } from './byte-cache.ts';
import { ABOUT_OPERATIONS } from './handlers/about.ts';
import { COMPATIBILITY_OPERATIONS } from './handlers/compatibility.ts';
import { SCHEMA_OPERATIONS } from './handlers/schemas.ts';
import { SETTING_OPERATIONS } from './handlers/settings.ts';
import { SUBJECT_OPERATIONS } from './handlers/subjects.ts';
import { SCHEMA_LIMITS, type SchemaLimits } from './limits.ts';
import { negotiate } from './media.ts';
import { openApi, pathsOf } from './openapi/document.ts';
import { type ApiSettings, Call, type Operation } from './operation.ts';

/** Default limit of a request body in bytes, larger than the largest schema text as a JSON string.
 */
export const REGISTRY_BODY_BYTES_MAX = 4 << 20;
/** Default limit of items of one list. */
export const REGISTRY_PAGE_MAX = 100_000;

export interface RegistryApiOptions {
  readonly wire?: Wire;
  readonly pageMax?: number;
  readonly bodyBytesMax?: number;
  readonly limits?: SchemaLimits;
  /** Limit of one request's time on the thread that checks schemas, in ms. */
  readonly checkMs?: number;
  readonly version?: string;
  readonly clusterId?: string;
  /** Absent: every caller may do everything. */
  readonly gate?: RequestGate;
  /** Decides a write by calling `here`, which throws its error, or by asking another instance.
   *  Absent: every write is decided here. */
  readonly writeAtLeader?: (request: HttpRequest, here: () => Promise<HttpResponse>) => Promise<HttpResponse>;
  readonly masterAvailable?: () => boolean;
}

const OPERATIONS: readonly Operation[] = [
  ...SUBJECT_OPERATIONS,
  ...SCHEMA_OPERATIONS,
  ...COMPATIBILITY_OPERATIONS,
  ...SETTING_OPERATIONS,
  ...ABOUT_OPERATIONS,
];

function settingsOf(options: RegistryApiOptions): ApiSettings {
  return {
    wire: options.wire ?? 'own',
    pageMax: options.pageMax ?? REGISTRY_PAGE_MAX,
    bodyBytesMax: options.bodyBytesMax ?? REGISTRY_BODY_BYTES_MAX,
    limits: options.limits ?? SCHEMA_LIMITS,
    checkMs: options.checkMs ?? CHECK_MS_MAX,
    version: options.version ?? '0.0.0',
    clusterId: options.clusterId ?? 'schema-registry',
    gate: options.gate ?? openGate,
    open: options.gate === undefined || options.gate === openGate,
    byId: new ByteCache(),
    masterAvailable: options.masterAvailable ?? (() => true),
  };
}

/** Returns every operation; the last one serves the description of all of them. */
function operationsOf(api: ApiSettings): readonly Operation[] {
  let description: Ready | undefined;
  const operations: readonly Operation[] = [
    ...OPERATIONS,
    {
      id: 'describe',
      method: 'GET',
      path: '/openapi.json',
      summary: 'This description.',
      tag: 'service',
      right: undefined,
      answer: {
        type: 'object',
        properties: { openapi: { const: '3.1.0' }, paths: { type: 'object' } },
        required: ['openapi', 'paths'],
      },
      errors: [],
      everywhere: true,
      settled: true,
      run: () => {
        description ??= new Ready(JSON.stringify(openApi(operations, api)), 'application/json');
        return description;
      },
    },
  ];
  return operations;
}

/** Returns the OpenAPI description of the interface. */
export function registryDescription(options: RegistryApiOptions = {}): Readonly<Record<string, unknown>> {
  const api = settingsOf(options);
  return openApi(operationsOf(api), api);
}

/** Applies `next` synchronously if `value` is not a promise, which saves a turn of the event loop.
 */
function after<T, R>(value: T | Promise<T>, next: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** @param serviceOf returns the registry; throws while it is not open yet */
export function registryRoutes(
  serviceOf: () => RegistryService,
  options: RegistryApiOptions = {},
): readonly HttpRoute[] {
  const api = settingsOf(options);
  const atLeader = options.writeAtLeader ?? ((_request, here) => here());

  const execute = (call: Call, type: string): HttpResponse | Promise<HttpResponse> => {
    const { operation, service } = call;
    // An alias may point to another subject when a step runs again.
    const run = (): unknown => {
      call.demandBehind();
      return operation.run(call);
    };
    const finish = (): HttpResponse | Promise<HttpResponse> =>
      after(
        untilDone(() => service.step(run), api.checkMs),
        (value) => answer(value, type),
      );
    if (operation.write === true) return atLeader(call.request, async () => finish());
    return operation.settled === true ? finish() : service.fresh().then(finish);
  };

  /** Access of requests whose head was authorised. The driver passes the same object to `admit` and
   *  to the handler. */
  const admitted = new WeakMap<HttpRequestHead, Access>();

  const authorise = (call: Call): Access | Promise<Access> | undefined => {
    const { right } = call.operation;
    return api.open || right === undefined ? undefined : api.gate.authorise(call.request, call.need(right));
  };

  const respond = (request: HttpRequest, operation: Operation): HttpResponse | Promise<HttpResponse> => {
    const call = new Call(request, operation, serviceOf(), api);
    return after(admitted.get(request) ?? authorise(call), (access) => {
      if (access !== undefined) call.access = access;
      return execute(call, negotiate(request));
    });
  };

  const admit = (head: HttpRequestHead, operation: Operation): HttpAdmission | Promise<HttpAdmission> => {
    // The head suffices here; the driver adds the body to the same object later.
    const call = new Call(head as HttpRequest, operation, serviceOf(), api);
    return after(authorise(call), (access) => {
      if (access !== undefined) admitted.set(head, access);
      return undefined;
    });
  };

  const refuse = (thrown: unknown): HttpResponse => {
    const response = answerOf(thrown, api.wire);
    if (response === undefined) throw thrown;
    return response;
  };

  const guarded = <T>(work: () => T | Promise<T>): T | HttpResponse | Promise<T | HttpResponse> => {
    try {
      const made = work();
      return made instanceof Promise ? made.catch(refuse) : made;
    } catch (thrown) {
      return refuse(thrown);
    }
  };

  const routeOf = (operation: Operation, path: string): HttpRoute => ({
    method: operation.method,
    path,
    ...(api.open || operation.right === undefined
      ? {}
      : { admit: (head) => guarded(() => admit(head, operation)) }),
    handler: (request) => guarded(() => respond(request, operation)),
  });

  return operationsOf(api).flatMap((operation) => pathsOf(operation).map((path) => routeOf(operation, path)));
}
