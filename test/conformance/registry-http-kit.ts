/** Registry behind a real server, and a client that validates every answer against the served
 *  description. */
import { Agent, type OutgoingHttpHeaders, request } from 'node:http';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { silentLogger } from '../../src/core/log.ts';
import { nodeHttpDriver } from '../../src/io/http/node/server.ts';
import type { HttpDriver } from '../../src/io/http/port.ts';
import { registryFallbacks } from '../../src/registry/api/answers.ts';
import { type RegistryApiOptions, registryRoutes } from '../../src/registry/api/routes.ts';
import type { RegistryLog } from '../../src/registry/store/log.ts';
import { MemoryLog } from '../../src/registry/store/log.ts';
import type { RegistryOptions } from '../../src/registry/store/registry.ts';
import { Registry } from '../../src/registry/store/registry.ts';
import { realClock } from '../wait.ts';

export const TYPE = 'application/vnd.schemaregistry.v1+json';
export const BODY_BYTES_MAX = 100_000;

interface DescribedResponse {
  readonly content: Readonly<Record<string, { readonly schema: object }>>;
  readonly 'x-error-codes'?: readonly number[];
}
export interface Described {
  readonly operationId: string;
  readonly parameters: ReadonlyArray<{ readonly name: string; readonly in: 'path' | 'query' }>;
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<Record<string, DescribedResponse>>;
}
export interface Description {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

export interface Answer {
  readonly status: number;
  readonly type: string | null;
  readonly headers: Headers;
  readonly text: string;
  /** Body, parsed if it is JSON. */
  readonly body: unknown;
}

export interface CallOptions {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface RawOptions {
  readonly body?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
}

const AGENT = new Agent({ keepAlive: true, maxSockets: 64 });
/** Maximum number of requests in flight of one client. A fetch connection has 10 s to open, and a
 *  stalled machine opens few at a time. */
const IN_FLIGHT_MAX = 128;
/** Timeout of an answer. */
const HANG_MS = 240_000;

function rawAnswer(base: string, method: string, target: string, options: RawOptions): Promise<Answer> {
  const { hostname, port } = new URL(base);
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        hostname,
        port,
        method,
        path: target,
        agent: AGENT,
        timeout: HANG_MS,
        // node's client frames the body of some methods only with an explicit header.
        headers: {
          ...(options.headers as OutgoingHttpHeaders),
          ...(options.body === undefined ? {} : { 'content-length': Buffer.byteLength(options.body) }),
        },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const headers = new Headers();
          for (let i = 0; i < response.rawHeaders.length; i += 2)
            headers.append(response.rawHeaders[i] as string, response.rawHeaders[i + 1] as string);
          const text = Buffer.concat(chunks).toString();
          resolve({
            status: response.statusCode ?? 0,
            type: headers.get('content-type'),
            headers,
            text,
            body: parsedOf(text),
          });
        });
      },
    );
    sent.on('timeout', () => sent.destroy(new Error(`no answer to ${method} ${target} in ${HANG_MS} ms`)));
    sent.on('error', reject);
    sent.end(options.body);
  });
}

function parsedOf(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}

function patternOf(path: string): RegExp {
  const source = path
    .split('/')
    .map((segment) => (segment.startsWith('{') ? '[^/]+' : segment.replaceAll('.', '\\.')))
    .join('/');
  return new RegExp(`^${source}/?$`);
}

export interface ServerOptions {
  readonly driver?: HttpDriver;
  readonly requestTimeoutMs?: number;
  /** Log of the registry; default: an empty log in memory. */
  readonly log?: RegistryLog;
  readonly registry?: RegistryOptions;
}

export class Conformance {
  private inFlight = 0;
  private readonly waiting: (() => void)[] = [];
  readonly base: string;
  readonly description: Description;
  readonly registry: Registry;
  /** Ids of the operations that have answered 200. */
  readonly succeeded = new Set<string>();
  private readonly ajv: Ajv2020;
  private readonly validators = new Map<string, ValidateFunction>();
  private readonly patterns: ReadonlyArray<readonly [string, RegExp]>;
  private readonly stop: () => Promise<void>;

  private constructor(base: string, description: Description, registry: Registry, stop: () => Promise<void>) {
    this.base = base;
    this.description = description;
    this.registry = registry;
    this.stop = stop;
    this.ajv = new Ajv2020({ strict: true, allowUnionTypes: true, strictTypes: false });
    this.ajv.addKeyword('components');
    this.ajv.addSchema({ $id: 'api', components: description.components });
    // Paths with fewer parameters are matched first.
    this.patterns = Object.keys(description.paths)
      .sort((a, b) => a.split('{').length - b.split('{').length)
      .map((path) => [path, patternOf(path)] as const);
  }

  static async start(
    options: RegistryApiOptions = {},
    {
      driver = nodeHttpDriver,
      requestTimeoutMs = 10_000,
      log = new MemoryLog(),
      registry: how,
    }: ServerOptions = {},
  ): Promise<Conformance> {
    const registry = await Registry.open(log, silentLogger, { clock: realClock, ...how });
    const server = await driver.listen({
      host: '127.0.0.1',
      port: 0,
      routes: registryRoutes(() => registry, options),
      fallbacks: registryFallbacks(BODY_BYTES_MAX),
      bodyBytesMax: BODY_BYTES_MAX,
      headerBytesMax: 16_384,
      requestTimeoutMs,
      // A stalled client must not find its connection closed when it sends the next request.
      keepAliveTimeoutMs: 600_000,
      log: silentLogger,
    });
    const base = `http://127.0.0.1:${server.port}`;
    const description = (await (await fetch(`${base}/openapi.json`)).json()) as Description;
    return new Conformance(base, description, registry, async () => {
      await server.drain(1000);
      await registry.close();
    });
  }

  close(): Promise<void> {
    return this.stop();
  }

  /** Returns the described operation of a request, or undefined. */
  find(method: string, path: string): Described | undefined {
    const plain = (path.split('?')[0] as string) || '/';
    const verb = method === 'HEAD' ? 'get' : method.toLowerCase();
    for (const [template, pattern] of this.patterns) {
      const operation = this.description.paths[template]?.[verb];
      if (operation !== undefined && pattern.test(plain)) return operation;
    }
    return undefined;
  }

  /** Waits until fewer than IN_FLIGHT_MAX requests are in flight. */
  private async slot(): Promise<void> {
    while (this.inFlight >= IN_FLIGHT_MAX) await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.inFlight++;
  }

  /** Sends a request and validates the answer: its status is described, the body matches its
   *  schema, and the error_code is listed. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const { body } = options;
    await this.slot();
    let response: Response;
    let text: string;
    try {
      response = await fetch(this.base + path, {
        method,
        headers: options.headers ?? { 'content-type': TYPE },
        ...(body === undefined
          ? {}
          : { body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body) }),
      });
      text = await response.text();
    } finally {
      this.inFlight--;
      this.waiting.shift()?.();
    }
    const type = response.headers.get('content-type');
    const answer: Answer = {
      status: response.status,
      type,
      headers: response.headers,
      text,
      body: parsedOf(text),
    };
    this.check(method, path, answer);
    return answer;
  }

  /** Like `call`, but sends the target unchanged, without normalization. */
  async target(method: string, target: string, options: RawOptions = {}): Promise<Answer> {
    const answer = await rawAnswer(this.base, method, target, options);
    this.check(method, target, answer);
    return answer;
  }

  /** Checks an answer against the description.
   *  @throws if the answer differs from the description */
  check(method: string, path: string, answer: Answer): void {
    const where = `${method} ${path}: ${answer.status} ${answer.text.slice(0, 300)}`;
    if (method === 'OPTIONS' && answer.status === 204 && answer.headers.has('allow')) return;
    if (answer.headers.get('cache-control') !== 'no-cache, no-store, must-revalidate')
      throw new Error(`unexpected cache-control: ${where}`);
    const operation = this.find(method, path);
    if (operation === undefined) {
      if (method === 'HEAD') return;
      if (answer.status < 400) throw new Error(`the description lacks this answer: ${where}`);
      this.validate('Error', { $ref: 'api#/components/schemas/Error' }, answer.body, where);
      return;
    }
    const described = operation.responses[String(answer.status)];
    if (described === undefined) throw new Error(`the description lacks this status: ${where}`);
    const media = described.content[answer.type?.split(';')[0] ?? ''];
    if (media === undefined) throw new Error(`unexpected content type ${answer.type}: ${where}`);
    if (answer.status === 200) this.succeeded.add(operation.operationId);
    if (method === 'HEAD') return;
    const isText = (media.schema as { type?: string }).type === 'string';
    const absolute = JSON.parse(
      JSON.stringify(media.schema).replaceAll('"#/components', '"api#/components'),
    ) as object;
    this.validate(
      `${operation.operationId} ${answer.status}`,
      absolute,
      isText ? answer.text : answer.body,
      where,
    );
    const codes = described['x-error-codes'];
    const code = (answer.body as { error_code?: number } | undefined)?.error_code;
    if (codes !== undefined && !codes.includes(code ?? 0))
      throw new Error(`error_code ${code} is not among ${codes.join(', ')}: ${where}`);
  }

  private validate(name: string, schema: object, value: unknown, where: string): void {
    let validator = this.validators.get(name);
    if (validator === undefined) {
      validator = this.ajv.compile(schema);
      this.validators.set(name, validator);
    }
    if (!validator(value)) throw new Error(`${this.ajv.errorsText(validator.errors)}: ${where}`);
  }

  /** Registers a schema and returns its id. */
  async register(subject: string, schema: string, rest: object = {}): Promise<number> {
    const answer = await this.call('POST', `/subjects/${encodeURIComponent(subject)}/versions`, {
      body: { schema, ...rest },
    });
    if (answer.status !== 200) throw new Error(`${subject} is refused: ${answer.text}`);
    return (answer.body as { id: number }).id;
  }
}

export interface FieldOptions {
  readonly default?: unknown;
  readonly aliases?: readonly string[];
}
export const field = (name: string, type: unknown, rest: FieldOptions = {}): object => ({
  name,
  type,
  ...rest,
});
export const record = (name: string, ...fields: readonly object[]): string =>
  JSON.stringify({ type: 'record', name, fields });

export const ORDER_1 = record('Order', field('id', 'string'), field('amount', 'long'));
export const ORDER_2 = record(
  'Order',
  field('id', 'string'),
  field('amount', 'long'),
  field('note', 'string', { default: '' }),
);
/** Incompatible with ORDER_1 for a reader. */
export const ORDER_BROKEN = record('Order', field('id', 'string'), field('amount', 'string'));
export const PROTO = 'syntax = "proto3"; message Order { string id = 1; }';
