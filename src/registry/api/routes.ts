/** The registry's HTTP interface: every row of the operations as a route, and the description of
 *  them all.
 *
 *  A request passes, in this order: on its head, before its body is read, who asks and whether they
 *  may; what they accept, the leader where it changes something, what others wrote where it reads,
 *  the subject behind an alias; then its row's `run`. An error at any step is an answer in the one
 *  shape.
 */
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

/** Larger than the largest schema text in its JSON string. */
export const REGISTRY_BODY_BYTES_MAX = 4 << 20;
/** Items of one list. */
export const REGISTRY_PAGE_MAX = 100_000;

export interface RegistryApiOptions {
  readonly wire?: Wire;
  readonly pageMax?: number;
  readonly bodyBytesMax?: number;
  readonly limits?: SchemaLimits;
  /** Time of one request on the thread that checks schemas, ms. */
  readonly checkMs?: number;
  readonly version?: string;
  readonly clusterId?: string;
  /** Absent: everybody may do everything. */
  readonly gate?: RequestGate;
  /** Absent: every write is decided here. Otherwise it calls `here`, which throws what went wrong,
   *  or asks another instance. */
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

/** Every operation; the last one answers with the description of them all. */
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

/** The description of the interface as a document. */
export function registryDescription(options: RegistryApiOptions = {}): Readonly<Record<string, unknown>> {
  const api = settingsOf(options);
  return openApi(operationsOf(api), api);
}

/** What follows now, or when it has settled: a promise is made only where something is waited for.
 */
function after<T, R>(value: T | Promise<T>, next: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** @param serviceOf the registry, or an error while it is not open yet */
export function registryRoutes(
  serviceOf: () => RegistryService,
  options: RegistryApiOptions = {},
): readonly HttpRoute[] {
  const api = settingsOf(options);
  const atLeader = options.writeAtLeader ?? ((_request, here) => here());

  const execute = (call: Call, type: string): HttpResponse | Promise<HttpResponse> => {
    const { operation, service } = call;
    // An alias may name another subject when a step runs again.
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

  /** Requests whose head was authorised; a handler gets the object that `admit` got. */
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
    // The body is of no concern here; the driver adds it to this object.
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
