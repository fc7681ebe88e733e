/** Client of a schema registry, with caches of schemas and ids.
 *  Invariants: (1) concurrent requests for one schema id or guid, or for one referenced version,
 *  share one HTTP request, and a schema is cached for the life of the process. A request without an
 *  answer is repeated.
 *  (2) An id or guid that the registry does not know is cached briefly, and requests for such ids
 *  are rate-limited: a topic full of garbage does not become a stream of requests. An unreadable
 *  schema is cached for good.
 *  (3) A registry that does not answer is an error to wait on, never a fact about an id.
 *  (4) If the registry refuses one schema (401, 403) but answers for another one, that schema is
 *  unknown to this process.
 *  (5) An id is requested and cached with its context, because each context counts its ids from 1.
 */
import type { Random, Timers } from '../core/clock.ts';
import { findMillraceError, type MillraceError } from '../core/errors.ts';
import type { Counter, Histogram, Metrics } from '../core/metrics.ts';
import { subjectWithin } from '../core/subject.ts';
import type { Json, Reference, ResolvedReference } from '../formats/content.ts';
import type { SchemaFormat } from '../formats/format.ts';
import { guidOf } from '../formats/guid.ts';
import { parseSchema, type Schema } from '../formats/schema.ts';
import { SERDE_ERRORS, serdeError } from './errors.ts';
import { inTurns, ReferenceCache, type SchemaDocument, schemaDocument } from './references.ts';
import {
  contextOfVersion,
  contextSubject,
  errorNumber,
  isSuccess,
  messageOf,
  type RegistryRequests,
  RetriedRequests,
  schemaPath,
} from './requests.ts';
import type { RegistryTransport, TransportAnswer } from './transport.ts';
import { UnknownIds } from './unknown-ids.ts';

/** Options of a client's caches. */
export interface RegistryCacheOptions {
  readonly clock: Timers;
  readonly metrics: Metrics;
  /** Time to live of an entry of the negative cache. */
  readonly unknownForMs: number;
  /** Number of clients in this process that share the limit of requests for unknown ids; default 1.
   */
  readonly sharers?: number;
}

export interface RegistryClientOptions extends RegistryCacheOptions {
  readonly transport: RegistryTransport;
  /** Jitter of repeated requests. */
  readonly random: Pick<Random, 'fraction'>;
  /** Further attempts when the registry answers 5xx or 429, or does not answer. */
  readonly retries: number;
  readonly retryDelayMs: number;
}

export interface SubjectVersion {
  readonly subject: string;
  readonly version: number;
  readonly id: number;
  /** Context of the id, such as `.staging`; empty: that of the registry's address. */
  readonly context: string;
  readonly schema: Schema;
  readonly guid: string;
  readonly metadata?: Json;
}

/** Registry's verdict on a schema. */
export interface RegistryVerdict {
  readonly compatible: boolean;
  readonly messages: readonly string[];
}

/** Key of a schema in the caches: its id in the context of the registry's address, its id in
 *  another context as `:.context:id`, or its guid. */
type SchemaKey = number | string;

const keyOf = (id: number | string, context: string): SchemaKey =>
  typeof id === 'string' || context === '' ? id : `:${context}:${id}`;

/** Most ids cached as unreadable; further ids are requested again. */
const UNREADABLE_IDS_MAX = 10_000;
/** Most requests in flight for the ids of one call. */
const LOOKUPS_IN_FLIGHT_MAX = 8;
/** Number of likely ids of a call that are requested even above the limit of unknown ids. */
const LOOKUPS_ALWAYS = 4;
/** Registries assign ascending ids: an id at most this far above the greatest known one is likely
 *  to be a new schema. */
const LIKELY_ID_DISTANCE = 10_000;
/** Most versions of a subject that `prefetch` loads: the newest. */
const PREFETCHED_VERSIONS_MAX = 1000;
/** Most paths kept for checking a refusal: the latest paths that the registry answered with a
 *  schema. */
const PROBE_PATHS_MAX = 3;

/** Client of any registry with the usual HTTP interface. It caches schemas by id without limit of
 *  time, because an id never changes its schema, and shares concurrent requests for the same id.
 *  @example
 *  const clock = systemClock;
 *  const client = new RegistryClient({
 *    transport: fetchTransport({ url: 'http://127.0.0.1:8081', timeoutMs: 5000, clock }),
 *    clock,
 *    random: systemRandom,
 *    metrics: new Metrics(),
 *    unknownForMs: 60_000,
 *    retries: 3,
 *    retryDelayMs: 200,
 *  });
 */
export class RegistryClient {
  private readonly clock: Timers;
  private readonly sent: RegistryRequests;
  private readonly schemas = new Map<SchemaKey, Schema>();
  private readonly unreadable = new Map<SchemaKey, MillraceError>();
  private readonly unknown: UnknownIds;
  /** Latest first. */
  private probePaths: readonly string[] = [];
  private readonly fetching = new Map<SchemaKey, Promise<Schema>>();
  private readonly ids = new Map<string, Promise<number>>();
  /** Versions by subject, in ascending order; see `prefetch`. */
  private readonly prefetched = new Map<string, readonly SubjectVersion[]>();
  private readonly references: ReferenceCache;
  /** Ids that the registry answered. */
  private readonly asked = new Set<SchemaKey>();
  /** Greatest known id of each context. */
  private readonly greatestIds = new Map<string, number>();
  private readonly lookups: Counter;
  private readonly skipped: Counter;
  private readonly lookupSeconds: Histogram;
  private readonly warm: number;
  private readonly cold: number;
  private readonly series: Readonly<
    Record<'read' | 'write', { readonly hit: number; readonly miss: number }>
  >;

  /** @param options `requests` in place of a transport: requests that several clients share */
  constructor(
    options: RegistryClientOptions | (RegistryCacheOptions & { readonly requests: RegistryRequests }),
  ) {
    this.clock = options.clock;
    this.sent = 'requests' in options ? options.requests : new RetriedRequests(options);
    this.unknown = new UnknownIds(options.clock, options.unknownForMs, options.sharers);
    this.references = new ReferenceCache((subject, version) => this.fetchReference(subject, version));
    const { metrics } = options;
    this.lookups = metrics.counter('schema_cache_lookups_total', 'Lookups in the schema caches.', [
      'cache',
      'result',
    ]);
    this.skipped = metrics.counter(
      'schema_lookups_skipped_total',
      'Lookups of ids that the registry was not asked for, because too many before were unknown to it.',
    );
    this.lookupSeconds = metrics.histogram(
      'schema_lookup_seconds',
      'Time to find the schema of an id: warm from memory (as the mean of its batch), cold with its round trip.',
      ['cache'],
    );
    this.warm = this.lookupSeconds.series('warm');
    this.cold = this.lookupSeconds.series('cold');
    const both = (cache: string): { hit: number; miss: number } => ({
      hit: this.lookups.series(cache, 'hit'),
      miss: this.lookups.series(cache, 'miss'),
    });
    this.series = { read: both('id_to_schema'), write: both('schema_to_id') };
    const ratio = metrics.gauge(
      'schema_cache_hit_ratio',
      'Share of lookups answered without the registry.',
      ['cache'],
      'own',
    );
    const entries = metrics.gauge('schema_cache_entries', 'Distinct schemas in the schema caches.', [
      'cache',
    ]);
    const distinct = metrics.gauge(
      'registry_client_distinct_ids',
      'Distinct ids the registry gave a schema for.',
      [],
      'own',
    );
    metrics.onCollect(() => {
      distinct.set(Math.max(this.asked.size, this.sent.distinctIds?.() ?? 0));
      entries.set(new Set(this.schemas.values()).size, entries.series('id_to_schema'));
      entries.set(this.ids.size, entries.series('schema_to_id'));
      for (const [cache, { hit, miss }] of [
        ['id_to_schema', this.series.read],
        ['schema_to_id', this.series.write],
      ] as const) {
        const hits = this.lookups.value(hit);
        const all = hits + this.lookups.value(miss);
        ratio.set(all === 0 ? 0 : hits / all, ratio.series(cache));
      }
    });
  }

  /** Counts lookups that the caller answered from its own cache, and observes their time if
   *  `tookMs`, the total of all of them, is given. */
  countHits(count: number, tookMs?: number): void {
    this.lookups.add(count, this.series.read.hit);
    if (tookMs !== undefined && count > 0)
      this.lookupSeconds.observeMany(tookMs / 1000 / count, count, this.warm);
  }

  /** Clock for the times that `countHits` gets. */
  nowMs(): number {
    return this.clock.monotonicMs();
  }

  /** Returns the schema of an id, with its references.
   *  @param context of the id, such as `.staging`; default: that of the registry's address
   *  @throws schema_not_found, incompatible_schema, registry_unavailable, registry_protocol
   *  @throws unauthenticated, forbidden: see `isRegistryAway` */
  schemaById(id: number, context = ''): Promise<Schema> {
    return this.lookUp(id, context, () => true) as Promise<Schema>;
  }

  /** Returns the schema of a guid, with its references. @throws as schemaById */
  schemaByGuid(guid: string): Promise<Schema> {
    return this.lookUp(guid, '', () => true) as Promise<Schema>;
  }

  /** Undefined: the id or guid is not cached, and `mayAsk` does not allow a request. */
  private lookUp(id: number | string, context: string, mayAsk: () => boolean): Promise<Schema> | undefined {
    const startMs = this.nowMs();
    const key = keyOf(id, context);
    const known = this.schemas.get(key);
    if (known !== undefined) {
      this.countHits(1, this.nowMs() - startMs);
      return Promise.resolve(known);
    }
    const failed = this.unreadable.get(key) ?? this.unknown.errorOf(key);
    if (failed !== undefined) {
      this.lookups.add(1, this.series.read.hit);
      return Promise.reject(failed);
    }
    this.lookups.add(1, this.series.read.miss);
    let pending = this.fetching.get(key);
    if (pending === undefined) {
      if (!mayAsk()) {
        this.skipped.add();
        return undefined;
      }
      pending = this.fetchSchema(id, context).finally(() => this.fetching.delete(key));
      this.fetching.set(key, pending);
    }
    return pending;
  }

  /** Returns the schemas of several ids, as `schemasOf`. */
  schemasById(
    records: ReadonlyMap<number, number>,
    context = '',
  ): Promise<ReadonlyMap<number, Schema | MillraceError>> {
    return this.schemasOf(records, context);
  }

  /** Returns the schemas of several ids and guids, or the error of each that has none. Ids of many
   *  records are requested first, then small ids, then guids. The first LOOKUPS_ALWAYS likely ids
   *  are always requested. The others may exceed the limit of unknown ids; they then share one
   *  unknown_schema_id error.
   *  @param records number of records by id or guid
   *  @param context of the ids, such as `.staging`; default: that of the registry's address
   *  @throws errors for which `isRegistryAway` is true: the state of some ids is unknown */
  async schemasOf<Id extends number | string>(
    records: ReadonlyMap<Id, number>,
    context = '',
  ): Promise<ReadonlyMap<Id, Schema | MillraceError>> {
    const ids = [...records].sort(([a, of], [b, than]) => than - of || ascending(a, b)).map(([id]) => id);
    const found = new Map<Id, Schema | MillraceError>();
    const rest = ids.entries();
    let away: unknown;
    let skipped: MillraceError | undefined;
    const lookUp = async (): Promise<void> => {
      for (const [index, id] of rest) {
        if (away !== undefined) return;
        let isReserved = false;
        const mayAsk = (): boolean => {
          const isLikely = (records.get(id) as number) > 1 || this.isNear(id, context);
          if (index < LOOKUPS_ALWAYS && isLikely) return true;
          isReserved = this.unknown.reserve();
          return isReserved;
        };
        let isUnknown = false;
        try {
          const asked = this.lookUp(id, context, mayAsk);
          if (asked === undefined) skipped ??= notRequested();
          found.set(id, asked === undefined ? (skipped as MillraceError) : await asked);
        } catch (thrown) {
          const error = findMillraceError(thrown);
          isUnknown = isUnknownId(error);
          if (error === undefined || isRegistryAway(error)) away ??= thrown;
          else found.set(id, error);
        }
        if (isReserved && !isUnknown) this.unknown.unreserve();
      }
    };
    await Promise.all(Array.from({ length: Math.min(LOOKUPS_IN_FLIGHT_MAX, ids.length) }, lookUp));
    if (away !== undefined) throw away;
    return found;
  }

  /** Garbage rarely repeats an id in a batch, and its ids are rarely close to existing ids. */
  private isNear(id: number | string, context: string): boolean {
    return typeof id === 'number' && id <= (this.greatestIds.get(context) ?? 0) + LIKELY_ID_DISTANCE;
  }

  /** Returns the guid of an id: the registry's own, or the one computed by its definition where the
   *  registry's answers have none. A computed guid is confirmed, because answers omit an empty
   *  `metadata` or `ruleSet`, which is a part of the guid. A registry older than guids cannot
   *  confirm it.
   *  @param subject that uses the id, so that the id is one of its context; default: the context of
   *    the registry's address
   *  @throws schema_not_found, registry_unavailable, registry_protocol */
  async guidOf(id: number, subject = ''): Promise<string> {
    const document = this.expect(await this.askSchema('schema_by_id', schemaPath(id, subject)));
    const guid = guidOfDocument(document);
    if (document['guid'] === guid) return guid;
    const answer = await this.askSchema('schema_by_guid', guidPath(guid));
    if (isUnknownSchema(answer))
      throw serdeError(
        'schema_not_found',
        `the registry does not know the guid ${guid}, computed from its answer for the schema id ${id}: the answer lacks a part of the schema, such as empty metadata`,
        { next: "write with header: 'prefix', or run Millrace's registry with -wire=8, which answers guids" },
      );
    if (answer.status !== 404) this.expect(answer);
    return guid;
  }

  private async fetchSchema(id: number | string, context: string): Promise<Schema> {
    try {
      return await this.readSchema(id, context);
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (isUnknownId(error)) this.unknown.remember(keyOf(id, context), error);
      throw thrown;
    }
  }

  private async readSchema(id: number | string, context: string): Promise<Schema> {
    const startMs = this.nowMs();
    const isId = typeof id === 'number';
    const answer = isId
      ? await this.askSchema('schema_by_id', schemaPath(id, contextSubject(context)))
      : await this.askSchema('schema_by_guid', guidPath(id));
    if (isUnknownSchema(answer)) throw unknownId(id, context);
    const document = this.expect(answer);
    // The time of a cold lookup is the round trip of its id. Requests for references are counted
    // separately.
    this.lookupSeconds.observe((this.nowMs() - startMs) / 1000, this.cold);
    const key = keyOf(id, context);
    try {
      const schema = await this.schemaOf(document, isId ? context : '');
      if (isId) this.keep(id, context, schema);
      else this.schemas.set(id, schema);
      if (isId) this.asked.add(key);
      return schema;
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error?.code === 'incompatible_schema' && this.unreadable.size < UNREADABLE_IDS_MAX) {
        this.unreadable.set(key, error);
        if (isId) this.asked.add(key);
      }
      throw thrown;
    }
  }

  private keep(id: number, context: string, schema: Schema): void {
    this.schemas.set(keyOf(id, context), schema);
    this.greatestIds.set(context, Math.max(this.greatestIds.get(context) ?? 0, id));
  }

  /** Requests a schema. To check a refusal, requests a known schema with the same credentials, and
   *  then the refused schema again.
   *  @throws unauthenticated, forbidden if this schema alone is refused (see `isRefusedAlone`)
   *  @throws registry_unavailable */
  private async askSchema(operation: string, path: string): Promise<TransportAnswer> {
    const first = await this.sent.ask(operation, 'GET', path);
    if (isSuccess(first)) {
      this.probePaths = [path, ...this.probePaths.filter((one) => one !== path)].slice(0, PROBE_PATHS_MAX);
      return first;
    }
    if (ACCESS[first.status] === undefined) return first;
    for (const probe of this.probePaths) {
      if (!isSuccess(await this.sent.ask('probe', 'GET', probe))) continue;
      // The credentials may have been renewed between the two answers.
      const second = await this.sent.ask(operation, 'GET', path);
      const refused = ACCESS[second.status];
      if (refused === undefined) return second;
      throw serdeError(
        refused.code,
        `the registry refuses ${path} to this client with ${second.status} and answers for ${probe}: ${messageOf(second)}`,
        { next: refused.next, details: REFUSED_ALONE },
      );
    }
    return first;
  }

  private async fetchReference(subject: string, version: number): Promise<SchemaDocument> {
    // Registries refuse to delete a referenced version, but some allow a soft deletion.
    const path = `/subjects/${encodeURIComponent(subject)}/versions/${version}?deleted=true`;
    const document = this.expect(await this.askSchema('reference', path));
    return schemaDocument(document, contextOfVersion(subject, document['subject']));
  }

  /** Resolves references of a schema that the caller has, transitively.
   *  @param context of the schema: subjects that name none belong to it
   *  @throws subject_not_found, version_not_found, registry_unavailable, registry_protocol;
   *    incompatible_schema for a cycle */
  async resolve(references: readonly Reference[], context = ''): Promise<readonly ResolvedReference[]> {
    try {
      return await this.references.resolve(
        references.map((one) => ({ ...one, subject: subjectWithin(context, one.subject) })),
      );
    } catch (thrown) {
      // A missing reference makes a record unreadable; here the caller named it.
      const code = findMillraceError((thrown as Error).cause)?.code;
      if (code !== 'subject_not_found' && code !== 'version_not_found') throw thrown;
      throw serdeError(code, (thrown as Error).message, {
        next: 'correct subject and version in references, or register that schema first',
        cause: thrown,
      });
    }
  }

  /** Parses a schema. Records of a schema that cannot be parsed are unreadable.
   *  @throws incompatible_schema, registry_unavailable, registry_protocol */
  private async schemaOf(document: Readonly<Record<string, unknown>>, context: string): Promise<Schema> {
    const { format, text, references } = schemaDocument(document, context);
    const resolved = await this.references.resolve(references);
    try {
      return parseSchema(format, text, { references: resolved, lenient: true });
    } catch (cause) {
      throw serdeError(
        'incompatible_schema',
        `the registry's schema cannot be parsed: ${findMillraceError(cause)?.message ?? String(cause)}`,
        { cause },
      );
    }
  }

  /** Registers a text, or finds its id. Concurrent calls for one subject and text share one
   *  request.
   *  @throws incompatible, invalid_schema, registry_unavailable, registry_protocol */
  register(
    subject: string,
    format: SchemaFormat,
    text: string,
    references: readonly Reference[] = [],
  ): Promise<number> {
    const key = JSON.stringify([subject, format, text, references]);
    const known = this.ids.get(key);
    if (known !== undefined) {
      this.lookups.add(1, this.series.write.hit);
      return known;
    }
    this.lookups.add(1, this.series.write.miss);
    const asked = this.postSchema(subject, format, text, references);
    this.ids.set(key, asked);
    // A refusal is not cached, because a change of the level may lift it.
    asked.catch(() => this.ids.delete(key));
    return asked;
  }

  private async postSchema(
    subject: string,
    format: SchemaFormat,
    text: string,
    references: readonly Reference[],
  ): Promise<number> {
    const path = versionsOf(subject);
    const body = { schema: text, schemaType: format, ...(references.length === 0 ? {} : { references }) };
    const answer = this.expect(await this.sent.ask('register', 'POST', path, body));
    const id = answer['id'];
    if (typeof id !== 'number' || !Number.isInteger(id) || id < 1)
      throw protocol('register answered without an id');
    return id;
  }

  /** @param version number or `latest`
   *  @param deleted true: softly deleted versions too
   *  @throws subject_not_found, version_not_found, incompatible_schema, registry_unavailable */
  async version(subject: string, version: string, deleted = false): Promise<SubjectVersion> {
    const path = `${versionsOf(subject)}/${encodeURIComponent(version)}${deleted ? '?deleted=true' : ''}`;
    const answer = this.expect(await this.askSchema('version', path));
    const { version: number, id, metadata } = answer;
    if (typeof number !== 'number' || typeof id !== 'number')
      throw protocol('a version without its number or id');
    const context = contextOfVersion(subject, answer['subject']);
    const schema = await this.schemaOf(answer, context);
    this.keep(id, context, schema);
    const rest = metadata === undefined ? {} : { metadata: metadata as Json };
    return { subject, version: number, id, context, schema, guid: guidOfDocument(answer), ...rest };
  }

  /** Loads the newest PREFETCHED_VERSIONS_MAX versions of a subject into the caches. Versions whose
   *  schema cannot be parsed are left out; a subject that does not exist has none.
   *  @returns the versions in ascending order
   *  @throws registry_unavailable, registry_protocol, unauthenticated, forbidden */
  async prefetch(subject: string): Promise<readonly SubjectVersion[]> {
    const numbers = await absentAs([], ['subject_not_found'], this.versions(subject, false));
    const found = await inTurns(LOOKUPS_IN_FLIGHT_MAX, numbers.slice(-PREFETCHED_VERSIONS_MAX), (version) =>
      // A version may be deleted meanwhile.
      absentAs(
        undefined,
        ['subject_not_found', 'version_not_found', 'incompatible_schema'],
        this.version(subject, String(version)),
      ),
    );
    const versions = found.filter((one) => one !== undefined);
    for (const { guid, schema } of versions) this.schemas.set(guid, schema);
    this.prefetched.set(subject, versions);
    return versions;
  }

  /** Returns the cached versions of a subject in ascending order; undefined before its prefetch. */
  cachedVersions(subject: string): readonly SubjectVersion[] | undefined {
    return this.prefetched.get(subject);
  }

  /** Returns the cached schema of an id or guid.
   *  @param context of an id; default: that of the registry's address */
  cachedSchema(id: number | string, context = ''): Schema | undefined {
    return this.schemas.get(keyOf(id, context));
  }

  /** Returns the versions in ascending order.
   *  @param deleted true: softly deleted versions too
   *  @throws subject_not_found, registry_unavailable */
  async versions(subject: string, deleted: boolean): Promise<readonly number[]> {
    const path = `${versionsOf(subject)}${deleted ? '?deleted=true' : ''}`;
    const answer = await this.sent.ask('versions', 'GET', path);
    if (!isSuccess(answer)) this.expect(answer);
    const list = jsonOf(answer);
    if (!Array.isArray(list) || !list.every((one) => Number.isInteger(one)))
      throw protocol('versions that are no numbers');
    return (list as number[]).sort((a, b) => a - b);
  }

  /** Returns the effective settings of a subject. @throws registry_unavailable */
  async config(subject: string): Promise<Readonly<Record<string, unknown>>> {
    const path = `/config/${encodeURIComponent(subject)}?defaultToGlobal=true&verdictPolicy=true`;
    return this.expect(await this.sent.ask('config', 'GET', path));
  }

  /** Returns the effective mode; undefined if the registry does not report it. @throws
   *  registry_unavailable */
  async mode(subject: string): Promise<string | undefined> {
    const path = `/mode/${encodeURIComponent(subject)}?defaultToGlobal=true`;
    const answer = await this.sent.ask('mode', 'GET', path);
    const mode = answer.status === 200 ? documentOf(answer)['mode'] : undefined;
    return typeof mode === 'string' ? mode : undefined;
  }

  /** Requests the registry's verdict on a text: against the versions of the level, or against one
   *  version.
   *  @throws invalid_schema, registry_unavailable */
  async judge(
    subject: string,
    format: SchemaFormat,
    text: string,
    references: readonly Reference[],
    version?: 'latest',
  ): Promise<RegistryVerdict> {
    const one = version === undefined ? '' : `/${version}`;
    const path = `/compatibility${versionsOf(subject)}${one}?verbose=true`;
    const body = { schema: text, schemaType: format, ...(references.length === 0 ? {} : { references }) };
    const answer = this.expect(await this.sent.ask('compatibility', 'POST', path, body));
    const { is_compatible: compatible, messages } = answer;
    if (typeof compatible !== 'boolean') throw protocol('a verdict that is neither true nor false');
    const lines = Array.isArray(messages) ? messages.filter((one) => typeof one === 'string') : [];
    return { compatible, messages: lines };
  }

  /** Returns the version that holds this text; undefined if none does.
   *  @throws subject_not_found, registry_unavailable */
  async find(
    subject: string,
    format: SchemaFormat,
    text: string,
    references: readonly Reference[],
  ): Promise<number | undefined> {
    return (await this.findVersion(subject, format, text, references))?.version;
  }

  /** Returns the version and the id of this text in the subject; undefined if it has none.
   *  @throws subject_not_found, registry_unavailable */
  async findVersion(
    subject: string,
    format: SchemaFormat,
    text: string,
    references: readonly Reference[],
  ): Promise<{ readonly version: number; readonly id: number } | undefined> {
    const body = { schema: text, schemaType: format, ...(references.length === 0 ? {} : { references }) };
    const answer = await this.sent.ask('lookup', 'POST', `/subjects/${encodeURIComponent(subject)}`, body);
    if (isUnknownSchema(answer)) return undefined;
    const { version, id } = this.expect(answer);
    return typeof version === 'number' && typeof id === 'number' ? { version, id } : undefined;
  }

  /** @throws invalid_level, registry_unavailable */
  async setLevel(subject: string, level: string): Promise<void> {
    this.expect(
      await this.sent.ask('config', 'PUT', `/config/${encodeURIComponent(subject)}`, {
        compatibility: level,
      }),
    );
  }

  /** Returns the document of a success.
   *  @throws the registry's own error by its number, registry_protocol */
  private expect(answer: TransportAnswer): Readonly<Record<string, unknown>> {
    if (isSuccess(answer)) return documentOf(answer);
    const number = errorNumber(answer);
    // Newer registries answer 40901, older ones 409.
    const code = Object.entries(SERDE_ERRORS).find(
      ([, row]) => 'number' in row && (row.number === number || (number === 40901 && row.number === 409)),
    )?.[0] as keyof typeof SERDE_ERRORS | undefined;
    const refused = ACCESS[answer.status];
    if (refused !== undefined && (code === undefined || code === refused.code))
      throw serdeError(refused.code, `the registry answers ${answer.status}: ${messageOf(answer)}`, {
        next: refused.next,
      });
    if (code === undefined) throw protocol(`status ${answer.status}: ${messageOf(answer)}`);
    throw serdeError(code, `the registry answers ${number}: ${messageOf(answer)}`);
  }
}

/** Errors by HTTP status, because registries and the proxies before them use their own error
 *  numbers for these. */
const ACCESS: Readonly<
  Record<number, { readonly code: 'unauthenticated' | 'forbidden'; readonly next: string }>
> = {
  401: {
    code: 'unauthenticated',
    next: 'give credentials that it accepts: -registry-user or -registry-token-file, or auth in the library',
  },
  403: {
    code: 'forbidden',
    next: 'give -registry-user or -registry-token-file, or auth in the library, of a user with the permission, or grant the permission',
  },
};

/** Error details that mark a refusal of one schema. */
const REFUSED_ALONE = { refusedAlone: true } as const;

const versionsOf = (subject: string): string => `/subjects/${encodeURIComponent(subject)}/versions`;

/** Path of the schema of a guid. Several contexts may have it, so the references name theirs. */
const guidPath = (guid: string): string =>
  `/schemas/guids/${encodeURIComponent(guid)}?referenceFormat=qualified`;

/** Order of ids before guids, the ids ascending. */
function ascending(a: number | string, b: number | string): number {
  if (typeof a === 'string' || typeof b === 'string')
    return Number(typeof a === 'string') - Number(typeof b === 'string');
  return a - b;
}

const isUnknownSchema = (answer: TransportAnswer): boolean =>
  answer.status === 404 && errorNumber(answer) === SERDE_ERRORS.schema_not_found.number;

/** True if the registry has no schema of this id for this process. */
function isUnknownId(error: MillraceError | undefined): error is MillraceError {
  return error?.code === 'schema_not_found' || isRefusedAlone(error);
}

/** Error that several ids share, so its text names no id. */
function notRequested(): MillraceError {
  return serdeError(
    'unknown_schema_id',
    'the schema id was not asked for: the registry knows too few of the ids that are asked for at the same time',
  );
}

function unknownId(id: number | string, context: string): MillraceError {
  const named = typeof id === 'string' ? `guid ${id}` : `id ${id}`;
  const within = typeof id === 'string' || context === '' ? '' : ` in the context ${context}`;
  return serdeError('schema_not_found', `the registry knows no schema with ${named}${within}`);
}

function protocol(why: string): MillraceError {
  return serdeError('registry_protocol', `unexpected answer of the registry: ${why}`, {
    next: 'check that -registry is the address of a schema registry',
  });
}

function documentOf(answer: TransportAnswer): Readonly<Record<string, unknown>> {
  const value = jsonOf(answer);
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw protocol(`status ${answer.status} with a body that is no JSON object`);
}

/** Undefined: the body is not JSON, so it is not from a registry. */
function jsonOf(answer: TransportAnswer): unknown {
  try {
    return JSON.parse(answer.body);
  } catch {
    return undefined;
  }
}

/** Guid of a registry's document: the registry's own, or its definition where the answers of the
 *  registry have none. */
function guidOfDocument(document: Readonly<Record<string, unknown>>): string {
  if (typeof document['guid'] === 'string') return document['guid'];
  // References as they are stored: without the context of the schema.
  const content = schemaDocument(document);
  const { metadata = null, ruleSet = null } = document as { metadata?: Json; ruleSet?: Json };
  return guidOf({ ...content, metadata, ruleSet });
}

/** Awaits work, with a value in place of these errors. */
async function absentAs<T, N>(
  value: N,
  codes: ReadonlyArray<keyof typeof SERDE_ERRORS>,
  work: Promise<T>,
): Promise<T | N> {
  try {
    return await work;
  } catch (thrown) {
    if (!(codes as readonly string[]).includes(findMillraceError(thrown)?.code ?? '')) throw thrown;
    return value;
  }
}

/** True if the registry refuses one schema to this process while it answers for others. */
function isRefusedAlone(error: MillraceError | undefined): error is MillraceError {
  return error?.details['refusedAlone'] === true;
}

/** Error codes that state no fact about a record: the registry is unavailable, fails, or rejects
 *  this process. */
const AWAY: readonly string[] = [
  'registry_unavailable',
  'registry_protocol',
  'unauthenticated',
  'forbidden',
] satisfies ReadonlyArray<keyof typeof SERDE_ERRORS>;

/** True if the call may succeed later: the registry is unavailable, or rejects this process
 *  altogether.
 *  @example
 *  try {
 *    await client.register('orders-value', schema);
 *  } catch (thrown) {
 *    if (!isRegistryAway(thrown)) throw thrown;
 *  }
 */
export function isRegistryAway(thrown: unknown): boolean {
  const error = findMillraceError(thrown);
  return AWAY.includes(error?.code ?? '') && !isRefusedAlone(error);
}
