/** One row of the registry's HTTP interface: from it follow the route and its description. */

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

/** What the routes need to know beside the registry. */
export interface ApiSettings {
  readonly wire: Wire;
  /** Items of one list. */
  readonly pageMax: number;
  /** Bytes of a request body; enforced by the server, described here. */
  readonly bodyBytesMax: number;
  readonly limits: SchemaLimits;
  /** Time of one request on the thread that checks schemas, ms. */
  readonly checkMs: number;
  /** Of this program. */
  readonly version: string;
  readonly clusterId: string;
  readonly gate: RequestGate;
  /** False: somebody else's requests are possible, so what they see is looked at. */
  readonly open: boolean;
  readonly byId: ByteCache;
  /** Whether writes can be taken, here or by forwarding. */
  readonly masterAvailable: () => boolean;
}

export interface Operation {
  /** Unique; the operationId of the description. */
  readonly id: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly summary: string;
  readonly tag: 'subjects' | 'schemas' | 'compatibility' | 'config' | 'mode' | 'contexts' | 'service';
  /** undefined: nothing of what is stored, so nobody is asked who they are. */
  readonly right: Right | undefined;
  readonly query?: readonly QueryParameter[];
  /** Name of a schema of the description. */
  readonly body?: string;
  /** `text`: the body is the text itself. */
  readonly answer: OpenApiSchema | 'text' | ((wire: Wire) => OpenApiSchema);
  readonly errors: readonly RegistryErrorCode[];
  /** Absent below `/contexts/{context}`. */
  readonly everywhere?: true;
  /** Answers from what never changes, so it need not wait for writes of others. */
  readonly settled?: true;
  /** Changes something: only the leader decides it. */
  readonly write?: true;
  readonly run: (call: Call) => unknown;
}

/** The context of a path, as a subject without a name; '' is the default one. @throws
 *  invalid_subject */
function contextOfPath(context: string | undefined): string {
  if (context === undefined) return '';
  const name = context.replace(/^:|:$/g, '');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what is refused
  if (/[:\u0000-\u001f\u007f-\u009f]/.test(name) || name === '*')
    throw registryError('invalid_subject', `The specified context '${name.slice(0, 64)}' is not valid.`);
  return qualify({ context: name.startsWith('.') ? name : `.${name}`, name: '' });
}

/** Who was not asked may see nothing that is filtered. */
const UNASKED: Access = {
  principal: '',
  may: () => false,
  mayRead: () => false,
  mayReadContext: () => false,
};

/** One request under way. */
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
    this.access = UNASKED;
    this.context = contextOfPath(request.params['context']);
    this.subject = this.qualified(request.params['subject'] ?? '');
  }

  /** A subject in its one spelling, which is what rights are asked for; '' is the context itself.
   */
  qualified(subject: string): string {
    return subject.startsWith(':') ? qualify(parseSubject(subject)) : this.context + subject;
  }

  /** Undefined where a setting of the whole registry is meant. @throws invalid_subject */
  scope(): string | undefined {
    return checkScope(this.subject === '' ? undefined : this.subject) ?? undefined;
  }

  /** What the caller needs before the handler runs; a schema's readers are known only when it is
   *  found. */
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
    this.mustKnow(name);
    return this.request.query.get(name);
  }

  flag(name: QueryParameter): boolean {
    this.mustKnow(name);
    return flagOf(this.request, name);
  }

  /** All values of a parameter, in their order. */
  all(name: QueryParameter): readonly string[] {
    this.mustKnow(name);
    return this.request.query.getAll(name);
  }

  /** Where nothing is asked for, the subject's config decides. `false` is what clients send by
   *  default. */
  normalize(): { readonly normalize?: true } {
    return this.flag('normalize') ? { normalize: true } : {};
  }

  page<T>(all: readonly T[]): readonly T[] {
    this.mustKnow('limit');
    return pageOf(this.request, all, this.api.pageMax);
  }

  /** A parameter that is read is described. */
  private mustKnow(name: QueryParameter): void {
    invariant(this.operation.query?.includes(name), `${this.operation.id} does not describe ?${name}`);
  }

  /** The subjects that the caller may know of. */
  readable(subjects: readonly string[]): readonly string[] {
    return this.api.open ? subjects : subjects.filter((subject) => this.access.mayRead(subject));
  }

  get limits(): SchemaLimits {
    return this.api.limits;
  }

  /** The schema of the body, within the limits, read once. What it refers to is read with it.
   *  @throws unsupported_media_type, malformed_request, invalid_schema, schema_too_large, forbidden
   */
  schema(): RegisterInput {
    this.input ??= this.readSchema();
    return this.input;
  }

  private input: RegisterInput | undefined;

  private readSchema(): RegisterInput {
    const input = readSchemaBody(this.request);
    const references = input.references ?? [];
    // They stand in the context of the subject behind an alias.
    const parent = references.length === 0 ? this.subject : this.service.meant(this.subject);
    if (!this.api.open) {
      for (const { subject } of references) this.demandRead([qualifyWith(parent, subject)]);
    }
    // The limits bound what is parsed anew; a stored text is found without a parser.
    if (!this.service.holds(this.subject, input, this.normalize()))
      checkLimits(parent, input, this.limits, this.service);
    return input;
  }

  /** What is asked of an alias is asked of the subject behind it, so it takes the same right there.
   *  Runs right before the handler, which finds the same subject: nothing comes between. @throws
   *  forbidden */
  demandBehind(): void {
    const { right } = this.operation;
    if (this.api.open || right === undefined || this.subject === '' || this.isSetting) return;
    const subject = this.service.meant(this.subject);
    if (subject !== this.subject)
      this.api.gate.demand(this.request, this.access, { operation: right, subject });
  }

  /** Settings belong to the name as it stands, an alias or not. */
  private get isSetting(): boolean {
    return this.operation.tag === 'config' || this.operation.tag === 'mode';
  }

  /** @throws forbidden */
  demandAlias(alias: string): void {
    const subject = qualifyWith(this.subject, alias);
    if (!this.api.open) this.api.gate.demand(this.request, this.access, { operation: 'admin', subject });
  }

  /** A second look at a request that was let in. @throws forbidden */
  demandRead(subjects: readonly string[]): void {
    if (!this.api.open)
      this.api.gate.demand(this.request, this.access, { operation: 'read', anyOf: subjects });
  }
}
