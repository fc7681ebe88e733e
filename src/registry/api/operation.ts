/** One operation of the registry's HTTP interface. Its route and its description are derived from
 *  it. */

import type { Access, Need, RequestGate, AccessOperation as Right } from '../../access/request.ts';
import { invariant } from '../../core/errors.ts';
import type { HttpRequest } from '../../io/http/port.ts';
import { type REGISTRY_ERRORS, registryError } from '../errors.ts';
import type { RegisterInput, RegistryService } from '../store/service.ts';
import { checkScope, parseSubject, qualify, qualifyWith } from '../store/state/names.ts';
import type { Wire } from './answers.ts';
import { readSchemaBody } from './bodies.ts';
import type { ByteCache } from './byte-cache.ts';
import { checkLimits, type SchemaLimits } from './limits.ts';
import { flagOf, type OpenApiSchema, type PathParameter, pageOf, type QueryParameter } from './parameters.ts';

export type RegistryErrorCode = keyof typeof REGISTRY_ERRORS;

/** Settings and shared state of the routes. */
export interface ApiSettings {
  readonly wire: Wire;
  /** Limit of items of one list. */
  readonly pageMax: number;
  /** Limit of a request body in bytes; the server enforces it, the description shows it. */
  readonly bodyBytesMax: number;
  readonly limits: SchemaLimits;
  /** Limit of one request's time on the thread that checks schemas, in ms. */
  readonly checkMs: number;
  /** Version of this program. */
  readonly version: string;
  readonly clusterId: string;
  readonly gate: RequestGate;
  /** True if there are no access rules, so that no right needs to be checked. */
  readonly open: boolean;
  readonly byId: ByteCache;
  /** True if writes are accepted, here or by forwarding. */
  readonly masterAvailable: () => boolean;
}

export interface Operation {
  /** Unique; the operationId of the description. */
  readonly id: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly summary: string;
  readonly tag: 'subjects' | 'schemas' | 'compatibility' | 'config' | 'mode' | 'contexts' | 'service';
  /** Undefined: the operation shows nothing that is stored, so the caller is not authenticated. */
  readonly right: Right | undefined;
  readonly query?: readonly QueryParameter[];
  /** Name of a schema of the description. */
  readonly body?: string;
  /** `text`: the body is the text itself. */
  readonly answer: OpenApiSchema | 'text' | ((wire: Wire) => OpenApiSchema);
  readonly errors: readonly RegistryErrorCode[];
  /** Absent below `/contexts/{context}`. */
  readonly everywhere?: true;
  /** Answers from immutable data, so it need not wait until this instance has read the latest
   *  writes. */
  readonly settled?: true;
  /** Writes; only the leader decides it. */
  readonly write?: true;
  readonly run: (call: Call) => unknown;
}

/** Returns the context of a path as a subject without a name; '' is the default context. @throws
 *  invalid_subject */
function contextOfPath(context: string | undefined): string {
  if (context === undefined) return '';
  const name = context.replace(/^:|:$/g, '');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what is refused
  if (/[:\u0000-\u001f\u007f-\u009f]/.test(name) || name === '*')
    throw registryError('invalid_subject', `The specified context '${name.slice(0, 64)}' is not valid.`);
  return qualify({ context: name.startsWith('.') ? name : `.${name}`, name: '' });
}

/** Access of a caller that was not authenticated: lists show it nothing. */
const NO_ACCESS: Access = {
  principal: '',
  may: () => false,
  mayRead: () => false,
  mayReadContext: () => false,
};

/** One request in flight. */
export class Call {
  readonly request: HttpRequest;
  readonly operation: Operation;
  readonly service: RegistryService;
  readonly api: ApiSettings;
  access: Access;
  /** '' or `:.context:`. */
  readonly context: string;
  readonly subject: string;

  constructor(request: HttpRequest, operation: Operation, service: RegistryService, api: ApiSettings) {
    this.request = request;
    this.operation = operation;
    this.service = service;
    this.api = api;
    this.access = NO_ACCESS;
    this.context = contextOfPath(request.params['context']);
    this.subject = this.qualified(request.params['subject'] ?? '');
  }

  /** Returns the canonical name of a subject, the name that rights are checked for; '' is the
   *  context itself. */
  qualified(subject: string): string {
    return subject.startsWith(':') ? qualify(parseSubject(subject)) : this.context + subject;
  }

  /** Returns the subject or context of a setting; undefined: the whole registry. @throws
   *  invalid_subject */
  scope(): string | undefined {
    return checkScope(this.subject === '' ? undefined : this.subject) ?? undefined;
  }

  /** Returns the access that the caller needs before the handler runs. Who may read a schema is
   *  known only when the schema is found. */
  need(right: Right): Need {
    const subject = this.isSetting ? this.scope() : this.subject;
    return subject === undefined || subject === '' ? { operation: right } : { operation: right, subject };
  }

  param(name: PathParameter): string {
    const value = this.request.params[name];
    invariant(value !== undefined, `${this.operation.id} has no {${name}}`);
    return value;
  }

  text(name: QueryParameter): string | null {
    this.assertDescribed(name);
    return this.request.query.get(name);
  }

  flag(name: QueryParameter): boolean {
    this.assertDescribed(name);
    return flagOf(this.request, name);
  }

  /** All values of a parameter, in their order. */
  all(name: QueryParameter): readonly string[] {
    this.assertDescribed(name);
    return this.request.query.getAll(name);
  }

  /** `{}` leaves the decision to the subject's config. `false` counts as absent, because clients
   *  send it by default. */
  normalize(): { readonly normalize?: true } {
    return this.flag('normalize') ? { normalize: true } : {};
  }

  page<T>(all: readonly T[]): readonly T[] {
    this.assertDescribed('limit');
    return pageOf(this.request, all, this.api.pageMax);
  }

  /** Enforces that every parameter that is read is described. */
  private assertDescribed(name: QueryParameter): void {
    invariant(this.operation.query?.includes(name), `${this.operation.id} does not describe ?${name}`);
  }

  /** Returns the subjects that the caller may know about. */
  readable(subjects: readonly string[]): readonly string[] {
    return this.api.open ? subjects : subjects.filter((subject) => this.access.mayRead(subject));
  }

  get limits(): SchemaLimits {
    return this.api.limits;
  }

  /** Returns the schema of the body, checked against the limits and parsed once. The caller must be
   *  allowed to read the schemas that it refers to.
   *  @throws unsupported_media_type, malformed_request, invalid_schema, schema_too_large, forbidden
   */
  schema(): RegisterInput {
    const { read } = this;
    if (read !== undefined && read.parent === this.parentOf(read.input)) return read.input;
    this.read = this.readSchema();
    return this.read.input;
  }

  /** Schema of the body, and the subject for which the rights to its references were checked. */
  private read: { readonly input: RegisterInput; readonly parent: string } | undefined;

  /** References are relative to the context of the subject behind an alias, which another process
   *  may move before a step runs again. */
  private parentOf({ references = [] }: RegisterInput): string {
    return references.length === 0 ? this.subject : this.service.meant(this.subject);
  }

  private readSchema(): { readonly input: RegisterInput; readonly parent: string } {
    const input = readSchemaBody(this.request);
    const references = input.references ?? [];
    const parent = this.parentOf(input);
    if (!this.api.open) {
      for (const { subject } of references) this.demandRead([qualifyWith(parent, subject)]);
    }
    // The limits apply to schemas that must be parsed; a stored text is found without a parser.
    if (!this.service.holds(this.subject, input, this.normalize()))
      checkLimits(parent, input, this.limits, this.service);
    return { input, parent };
  }

  /** Checks the right of the operation for the subject behind an alias. Runs immediately before the
   *  handler, without an await between, so both resolve the same subject.
   *  @throws forbidden */
  demandBehind(): void {
    const { right } = this.operation;
    if (this.api.open || right === undefined || this.subject === '' || this.isSetting) return;
    const subject = this.service.meant(this.subject);
    if (subject !== this.subject)
      this.api.gate.demand(this.request, this.access, { operation: right, subject });
  }

  /** Settings belong to the name itself, even if it is an alias. */
  private get isSetting(): boolean {
    return this.operation.tag === 'config' || this.operation.tag === 'mode';
  }

  /** @throws forbidden */
  demandAlias(alias: string): void {
    const subject = qualifyWith(this.subject, alias);
    if (!this.api.open) this.api.gate.demand(this.request, this.access, { operation: 'admin', subject });
  }

  /** Checks the right to read after the request was admitted. @throws forbidden */
  demandRead(subjects: readonly string[]): void {
    if (!this.api.open)
      this.api.gate.demand(this.request, this.access, { operation: 'read', anyOf: subjects });
  }
}
