/** The registry's HTTP interface, in the shapes that existing clients expect. */
import { STATUS_CODES } from 'node:http';
import type { HttpFallbacks, HttpHandler, HttpRequest, HttpResponse, HttpRoute } from '../../io/http/port.ts';
import { findingLine } from '../compatibility/finding.ts';
import type { Comparison } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { SCHEMA_FORMATS } from '../schemas/format.ts';
import { SCHEMA_ID_MAX } from '../store/event.ts';
import { type Registry, verdictLines } from '../store/registry.ts';
import type { StoredVersion } from '../store/state.ts';
import { answer, answerOf, errorAnswer, negotiate, readBody, readSchemaRequest } from './bodies.ts';

/** Larger than the largest schema text in its JSON string. */
export const REGISTRY_BODY_BYTES_MAX = 4 << 20;

/** A document, or a response that is complete already. */
type Make = (request: HttpRequest) => unknown | Promise<unknown>;

function handler(make: Make): HttpHandler {
  return async (request) => {
    try {
      const type = negotiate(request);
      return answer(200, await make(request), type);
    } catch (thrown) {
      const response = answerOf(thrown);
      if (response === undefined) throw thrown;
      return response;
    }
  };
}

const param = (request: HttpRequest, name: string): string => request.params[name] as string;
const flag = (request: HttpRequest, name: string): boolean =>
  request.query.get(name)?.toLowerCase() === 'true';

/** @throws schema_not_found for what can be no id */
function idOf(request: HttpRequest): number {
  const text = param(request, 'id');
  const id = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  if (id < 1 || id > SCHEMA_ID_MAX) throw registryError('schema_not_found', `Schema ${text} not found`);
  return id;
}

function versionDocument(version: StoredVersion): unknown {
  return {
    subject: version.subject,
    version: version.version,
    id: version.id,
    schemaType: version.schema.format,
    schema: version.schema.text,
  };
}

/** What is allowed and still worth saying: losses and renames. */
function remarks(comparisons: readonly Comparison[]): string[] {
  return comparisons.flatMap(({ findings }) =>
    findings.filter(({ severity }) => severity === 'lossy' || severity === 'note').map(findingLine),
  );
}

/** @param registryOf the registry, or an error while it is not open yet */
export function registryRoutes(registryOf: () => Registry): readonly HttpRoute[] {
  const route = (method: string, path: string, make: Make): HttpRoute => ({
    method,
    path,
    handler: handler(make),
  });
  return [
    route('GET', '/', () => ({})),
    route('GET', '/schemas/types', () => [...SCHEMA_FORMATS].reverse()),
    route('GET', '/schemas/ids/{id}', (request) => {
      const { schema, uses } = registryOf().schema(idOf(request));
      const subject = request.query.get('subject');
      const use = subject === null ? undefined : uses.findLast((one) => one.subject === subject);
      return { schemaType: schema.format, schema: schema.text, ...(use === undefined ? {} : use) };
    }),
    route('GET', '/schemas/ids/{id}/versions', (request) => registryOf().schema(idOf(request)).uses),
    {
      method: 'GET',
      path: '/schemas/ids/{id}/schema',
      handler: rawSchema((request) => registryOf().schema(idOf(request)).schema.text),
    },
    route('GET', '/subjects', (request) => {
      const prefix = request.query.get('subjectPrefix') ?? '';
      // `:*:` asks for every context; there is one.
      return registryOf()
        .subjects()
        .filter((subject) => prefix === ':*:' || subject.startsWith(prefix));
    }),
    route('POST', '/subjects/{subject}', (request) => {
      const { format, text } = readSchemaRequest(request);
      return versionDocument(registryOf().lookup(param(request, 'subject'), format, text));
    }),
    route('GET', '/subjects/{subject}/versions', (request) =>
      registryOf()
        .versionsOf(param(request, 'subject'))
        .map(({ version }) => version),
    ),
    route('POST', '/subjects/{subject}/versions', async (request) => {
      const { format, text } = readSchemaRequest(request);
      return { id: (await registryOf().register(param(request, 'subject'), format, text)).id };
    }),
    route('GET', '/subjects/{subject}/versions/{version}', (request) =>
      versionDocument(registryOf().version(param(request, 'subject'), param(request, 'version'))),
    ),
    {
      method: 'GET',
      path: '/subjects/{subject}/versions/{version}/schema',
      handler: rawSchema(
        (request) => registryOf().version(param(request, 'subject'), param(request, 'version')).schema.text,
      ),
    },
    route('POST', '/compatibility/subjects/{subject}/versions/{version}', (request) =>
      compatibility(request, (format, text) =>
        registryOf().compatibility(param(request, 'subject'), param(request, 'version'), format, text),
      ),
    ),
    route('POST', '/compatibility/subjects/{subject}/versions', (request) =>
      compatibility(request, (format, text) =>
        registryOf().compatibilityAsRegistered(param(request, 'subject'), format, text),
      ),
    ),
    route('GET', '/config', () => ({ compatibilityLevel: registryOf().level(null, true) })),
    route('PUT', '/config', (request) => setLevel(registryOf(), null, request)),
    route('GET', '/config/{subject}', (request) => ({
      compatibilityLevel: registryOf().level(param(request, 'subject'), flag(request, 'defaultToGlobal')),
    })),
    route('PUT', '/config/{subject}', (request) =>
      setLevel(registryOf(), param(request, 'subject'), request),
    ),
    route('GET', '/mode', () => ({ mode: 'READWRITE' })),
    route('GET', '/contexts', () => ['.']),
  ];
}

async function setLevel(registry: Registry, subject: string | null, request: HttpRequest): Promise<unknown> {
  return { compatibility: await registry.setLevel(subject, readBody(request)['compatibility']) };
}

function compatibility(
  request: HttpRequest,
  judge: (
    format: string,
    text: string,
  ) => { readonly compatible: boolean; readonly comparisons: readonly Comparison[] },
): unknown {
  const { format, text } = readSchemaRequest(request);
  const verbose = flag(request, 'verbose');
  try {
    const verdict = judge(format, text);
    const messages = [...verdictLines(verdict), ...remarks(verdict.comparisons)];
    return { is_compatible: verdict.compatible, ...(verbose ? { messages } : {}) };
  } catch (thrown) {
    // With verbose a text that cannot be parsed is an answer, not an error.
    const response = verbose ? answerOf(thrown) : undefined;
    if (response?.status !== 422 || !/"error_code":42201\b/.test(String(response.body))) throw thrown;
    return { is_compatible: false, messages: [(thrown as Error).message] };
  }
}

/** The stored text itself as the body. */
function rawSchema(text: (request: HttpRequest) => string): HttpHandler {
  return async (request): Promise<HttpResponse> => {
    try {
      return { status: 200, headers: { 'content-type': negotiate(request) }, body: text(request) };
    } catch (thrown) {
      const response = answerOf(thrown);
      if (response === undefined) throw thrown;
      return response;
    }
  };
}

/** What the server answers by itself, in the registry's error shape. */
export const registryFallbacks: HttpFallbacks = {
  error: (status) =>
    errorAnswer(status, status === 500 ? 50001 : status, `HTTP ${status} ${STATUS_CODES[status] ?? 'Error'}`),
};
