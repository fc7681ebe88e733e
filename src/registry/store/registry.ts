/** Registry: reads answer from memory; a write is decided, made durable, and only then visible.
 *
 *  Invariants:
 *  1. Writes are decided one at a time, on a state that holds every acknowledged write.
 *  2. A change becomes visible after it is durable, so no reader sees a change that a crash can
 *     undo.
 *  3. A text that the subject already has is answered with its id before any check.
 *  4. An answer to a write rests on every write that was acknowledged before the request, also when
 *     another instance leads meanwhile and this one does not know.
 */
import type { Timers } from '../../core/clock.ts';
import { invariant } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Schema } from '../../formats/schema.ts';
import { type Verdict, type VerdictPolicy, verdictOf } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { Checks, Deferred, type JudgeRequest } from '../worker/checks.ts';
import type { TaskRunner } from '../worker/thread.ts';
import type { LogRecord, RegistryLog } from './log.ts';
import { isBlank, Registration, type RegistrationRequest } from './registering.ts';
import { deleteSubject, deleteVersion, referrersOf } from './removal.ts';
import type {
  Deleted,
  Judgement,
  Registered,
  RegisterInput,
  RegistryCounts,
  RegistryMode,
  RegistryService,
  SchemaInput,
  SchemaTextFormat,
  StoredSchema,
  StoredVersion,
  SubjectConfig,
} from './service.ts';
import { State, textKeyOf, type VersionEntry } from './state/model.ts';
import {
  checkScope,
  checkSubject,
  DEFAULT_CONTEXT,
  parseSubject,
  parseVersion,
  prefixTest,
  qualify,
  qualifyWith,
  subjectNotFound,
  versionNotFound,
} from './state/names.ts';
import { anySubjectOf, Parser } from './state/parsing.ts';
import { decodeRecord, isForeign } from './state/records.ts';
import {
  configInForce,
  configOf,
  metadataProperty,
  modeOf,
  policyOf,
  readMode,
  removeConfig,
  removeMode,
  setMode,
  settingConfig,
} from './state/settings.ts';
import { type Draft, Notices, Writer } from './writer.ts';

export { verdictLines } from './registering.ts';

export interface RegistryOptions {
  readonly clock: Timers;
  /** Runs checks of large inputs; absent: this thread runs them. The registry closes it. */
  readonly checkRunner?: TaskRunner;
  /** False: new Avro texts may have defaults that do not fit and any namespace, unless a setting
   *  says otherwise. Default true.
   */
  readonly validatesNewSchemas?: boolean;
}

const isWanted = (stored: StoredVersion, deleted: Deleted): boolean =>
  deleted === 'also' || stored.deleted === (deleted === 'only');

const storedOf = ({ stored }: VersionEntry): StoredVersion => stored;

export class Registry implements RegistryService {
  private readonly log: RegistryLog;
  private readonly logger: Logger;
  private readonly state = new State();
  private readonly checks: Checks;
  private readonly checkRunner: TaskRunner | undefined;
  private readonly parser: Parser;
  private readonly writer: Writer;
  private readonly notices: Notices;
  /** Sorted subject names, valid while the state has this `shape`. */
  private names: { readonly shape: number; readonly sorted: readonly string[] } = { shape: 0, sorted: [] };

  private constructor(log: RegistryLog, logger: Logger, options: RegistryOptions) {
    this.log = log;
    this.logger = logger;
    this.checkRunner = options.checkRunner;
    this.checks = new Checks(options.checkRunner);
    const { validatesNewSchemas = true } = options;
    this.parser = new Parser(logger, this.checks, { validatesNewSchemas });
    const { clock } = options;
    this.notices = new Notices(log.name, logger, clock);
    this.writer = new Writer({ log, logger, clock, state: this.state, notices: this.notices });
  }

  /** Replays the log. @throws store_corrupt, store_locked, not_writable, unreachable */
  static async open(log: RegistryLog, logger: Logger, options: RegistryOptions): Promise<Registry> {
    const registry = new Registry(log, logger, options);
    const { records, tornBytes } = await log.open({
      apply: (batch) => registry.apply(batch),
      summary: () => registry.state.summary(),
    });
    if (tornBytes > 0)
      logger.warn(
        { store: log.name, tornBytes },
        'cut off an incomplete last write; a crash during a write leaves one, and that write was never acknowledged',
      );
    logger.info(
      { store: log.name, records, unread: registry.notices.unread, ...registry.counts() },
      'registry store open',
    );
    return registry;
  }

  /** Finishes all queued writes, then closes the check runner and the log. */
  async close(): Promise<void> {
    await this.writer.close();
    await this.checkRunner?.close();
    await this.log.close();
  }

  private apply(batch: readonly LogRecord[]): void {
    this.writer.noteApplied();
    for (const encoded of batch) {
      this.notices.count();
      const decoded = decodeRecord(encoded);
      if (this.log.shared === true || isForeign(decoded)) this.state.foreign = true;
      if ('record' in decoded) {
        this.notices.record(decoded.record);
        const keyText = decoded.keyIsExact ? undefined : Buffer.from(encoded.key).toString('utf8');
        this.state.apply(decoded.record, encoded.ts ?? 0, keyText);
        continue;
      }
      this.notices.unreadRecord(encoded, decoded.unread);
    }
  }

  /** Number of records without effect and of failed appends, and whether the last append failed. */
  storeFaults(): { readonly unread: number; readonly failures: number; readonly failing: boolean } {
    const { unread, failures, failing } = this.notices;
    return { unread, failures, failing };
  }

  step<T>(run: () => T): T {
    return this.checks.step(run);
  }

  async fresh(): Promise<void> {
    await (this.log.catchUpToRead?.() ?? this.log.catchUp());
  }

  counts(): RegistryCounts {
    return this.state.counts();
  }

  contexts(): readonly string[] {
    return this.state.contexts();
  }

  subjects({ prefix, deleted }: { readonly prefix: string; readonly deleted: Deleted }): readonly string[] {
    const isMeant = prefixTest(prefix);
    return this.sortedNames().filter((subject) => {
      if (!isMeant(subject)) return false;
      const isLive = this.state.latest(subject) !== undefined;
      return deleted === 'also' || isLive === (deleted === 'no');
    });
  }

  private sortedNames(): readonly string[] {
    const { shape } = this.state;
    if (this.names.shape !== shape) this.names = { shape, sorted: this.state.subjectNames().sort() };
    return this.names.sorted;
  }

  meant(subject: string): string {
    return meantIn(this.state, subject);
  }

  versions(subject: string, deleted: Deleted): readonly StoredVersion[] {
    const name = this.meant(subject);
    const wanted = this.state
      .versions(name)
      .map(storedOf)
      .filter((stored) => isWanted(stored, deleted));
    if (wanted.length === 0) throw subjectNotFound(subject);
    return wanted;
  }

  version(subject: string, wanted: string, options: { readonly deleted?: boolean } = {}): StoredVersion {
    return this.entry(this.meant(subject), wanted, options.deleted === true).stored;
  }

  private entry(subject: string, wanted: string, deleted: boolean): VersionEntry {
    const number = parseVersion(wanted);
    const latest = this.state.latest(subject);
    if (deleted ? this.state.versions(subject).length === 0 : latest === undefined)
      throw subjectNotFound(subject);
    const entry =
      number === 'latest'
        ? (latest ?? this.state.versions(subject).at(-1))
        : this.state.version(subject, number);
    if (entry === undefined || (entry.stored.deleted && !deleted)) throw versionNotFound(wanted);
    return entry;
  }

  latestWithMetadata(subject: string, wanted: ReadonlyMap<string, string>, deleted: boolean): StoredVersion {
    const found = this.versions(subject, deleted ? 'also' : 'no').findLast(({ content }) =>
      [...wanted].every(([name, value]) => metadataProperty(content, name) === value),
    );
    if (found === undefined)
      throw registryError('metadata_not_found', `No version of subject '${subject}' has this metadata.`);
    return found;
  }

  referencedBy(
    subject: string,
    wanted: string,
    deleted: boolean,
    isSeen: (subject: string) => boolean = () => true,
  ): readonly number[] {
    const name = this.meant(subject);
    const { version } = this.entry(name, wanted, deleted).stored;
    const found = referrersOf(this.state, name, version).filter(
      (one) => (deleted || !one.deleted) && isSeen(one.subject),
    );
    return [...new Set(found.map(({ id }) => id))].sort((a, b) => a - b);
  }

  schema(id: number, subject?: string): StoredSchema {
    const found = this.state.schema(this.contextOfId(id, subject), id);
    if (found === undefined) throw registryError('schema_not_found', `Schema ${id} not found`);
    return found;
  }

  /** Context in which an id is looked up: that of the subject. Where the default context lacks the
   *  id, a context that has it, preferably with a subject of this name.
   */
  private contextOfId(id: number, subject: string | undefined): string {
    if (subject === undefined || subject === '') return DEFAULT_CONTEXT;
    const { context, name } = parseSubject(this.meant(subject));
    if (context !== DEFAULT_CONTEXT || this.state.schema(context, id) !== undefined) return context;
    const holders = this.state.contexts().filter((one) => this.state.schema(one, id) !== undefined);
    const uses = (one: string): boolean =>
      this.state.uses(one, id).some((use) => use.subject === qualify({ context: one, name }));
    return holders.find(uses) ?? holders[0] ?? DEFAULT_CONTEXT;
  }

  uses(
    id: number,
    { subject, deleted }: { readonly subject?: string; readonly deleted: boolean },
  ): readonly StoredVersion[] {
    const { context } = this.schema(id, subject);
    return this.state
      .uses(context, id)
      .flatMap((use) => this.state.version(use.subject, use.version)?.stored ?? [])
      .filter((stored) => deleted || !stored.deleted)
      .sort((a, b) => (a.subject < b.subject ? -1 : a.subject > b.subject ? 1 : a.version - b.version));
  }

  maxId(context: string): number {
    return this.state.maxId(context);
  }

  schemaByGuid(guid: string): StoredSchema {
    const at = this.idsOfGuid(guid)[0];
    const found = at === undefined ? undefined : this.state.schema(at.context, at.id);
    if (found === undefined) throw registryError('schema_not_found', `Schema ${guid} not found`);
    return found;
  }

  idsOfGuid(guid: string): ReadonlyArray<{ readonly context: string; readonly id: number }> {
    return [...this.state.byGuid(guid)].sort((a, b) =>
      a.context < b.context ? -1 : a.context > b.context ? 1 : a.id - b.id,
    );
  }

  browse(options: {
    readonly prefix: string;
    readonly deleted: boolean;
    readonly latestOnly: boolean;
  }): readonly StoredVersion[] {
    const deleted = options.deleted ? 'also' : 'no';
    return this.subjects({ prefix: options.prefix, deleted }).flatMap((subject) => {
      const wanted = this.state
        .versions(subject)
        .map(storedOf)
        .filter((stored) => isWanted(stored, deleted));
      return options.latestOnly ? wanted.slice(-1) : wanted;
    });
  }

  textOf(schema: StoredSchema, format: SchemaTextFormat): string {
    if (format === '') return schema.content.text;
    const { guid, content, context, id } = schema;
    const text = this.state.textOfId(context, id) ?? { key: textKeyOf(content.format, guid), guid, content };
    return this.parser.textOf(this.state, anySubjectOf(context), text, format);
  }

  lookup(
    subject: string,
    input: SchemaInput,
    options: { readonly normalize?: boolean; readonly deleted?: boolean },
  ): StoredVersion {
    const name = this.meant(subject);
    const versions = options.deleted === true ? this.state.versions(name) : this.state.live(name);
    if (versions.length === 0) throw subjectNotFound(subject);
    if (isBlank(input)) throw registryError('schema_not_found', 'Schema not found');
    const found = this.registration({ subject: name, input, normalize: options.normalize }).findVersion(
      versions,
    );
    if (found === undefined) throw registryError('schema_not_found', 'Schema not found');
    return found.stored;
  }

  holds(subject: string, input: SchemaInput, options: { readonly normalize?: boolean }): boolean {
    const request = { subject: this.meant(subject), input, normalize: options.normalize };
    return this.registration(request).findVerbatim() !== undefined;
  }

  /** Resolves a request on the visible state. */
  private registration(request: RegistrationRequest): Registration {
    return new Registration(this.state, this.parser, request);
  }

  async register(
    subject: string,
    input: RegisterInput,
    options: { readonly normalize?: boolean },
  ): Promise<Registered> {
    const name = this.meant(checkSubject(subject));
    const { normalize } = options;
    const request: RegistrationRequest = { subject: checkSubject(name), input, normalize, memo: {} };
    // A new schema is queued in this turn, so that writes keep the order of their requests.
    const known = this.findNow(request);
    const found = known === undefined ? undefined : await this.confirmed(subject, request, known);
    if (found !== undefined) return { version: found.stored, created: false, comparisons: [] };
    const registered = await this.writeTo(subject, name, (draft) =>
      this.step(() => new Registration(draft.state, this.parser, request).decide(draft)),
    );
    const { version, id, content } = registered.version;
    if (registered.created)
      this.logger.info({ subject: name, version, id, format: content.format }, 'schema registered');
    return registered;
  }

  /** Version that answers the registration after all that other processes wrote before the request;
   *  `known` answered it before. @throws not_leader, Deferred
   */
  private async confirmed(
    asked: string,
    request: RegistrationRequest,
    known: VersionEntry,
  ): Promise<VersionEntry | undefined> {
    const { applied } = this.writer;
    await this.writer.catchUp();
    if (applied === this.writer.applied) return known;
    checkAlias(this.state, asked, request.subject);
    return this.step(() => this.findNow(request));
  }

  /** Queues a write to `name`, the subject behind `asked`. @throws Deferred */
  private writeTo<T>(asked: string, name: string, decide: (draft: Draft) => T): Promise<T> {
    return this.writer.write((draft) => {
      checkAlias(draft.state, asked, name);
      return decide(draft);
    });
  }

  /** Finds an existing version that answers the registration, without a place in the write queue.
   */
  private findNow(request: RegistrationRequest): VersionEntry | undefined {
    if (this.state.latest(request.subject) === undefined) return undefined;
    try {
      return this.registration(request).lookUp().found;
    } catch (thrown) {
      if (thrown instanceof Deferred) throw thrown;
      // The text may refer to a schema that is still being written; the queued decision will find
      // it.
      return undefined;
    }
  }

  compatibility(
    subject: string,
    wanted: string | undefined,
    input: SchemaInput,
    options: { readonly normalize?: boolean; readonly explain?: boolean },
  ): Judgement {
    const name = this.meant(subject);
    const number = wanted === undefined ? undefined : parseVersion(wanted);
    const registration = this.registration({ subject: name, input, normalize: options.normalize });
    const { live, level, policy } = registration;
    if (typeof number === 'number' && live.every(({ stored }) => stored.version !== number))
      throw versionNotFound(String(number));
    if (isBlank(input)) throw registryError('invalid_schema', 'Empty schema');
    const one = number === 'latest' ? live.slice(-1) : live.filter(({ stored }) => stored.version === number);
    // A stored text that is registered again is answered before any check.
    const isAnswer = (found: VersionEntry): boolean => number === undefined || found === one[0];
    const verbatim = registration.findVerbatim(live);
    const held = verbatim !== undefined && isAnswer(verbatim) ? verbatim : undefined;
    const proposed = held === undefined ? registration.prepareNewOrHeld() : undefined;
    const same = proposed === undefined ? held : registration.find(proposed, live);
    const content = proposed?.content ?? (held as VersionEntry).text.content;
    const group = registration.inGroup(content);
    const compared =
      number === undefined ? registration.comparedBy(content) : one.filter((v) => group.includes(v));
    const basis = { compared: compared.map(storedOf), level, policy };
    if (proposed === undefined || (same !== undefined && isAnswer(same)))
      return { ...verdictOf([]), ...basis, explained: () => [] };
    const explain = options.explain === true && policy === 'PROVEN';
    const verdict = registration.judge(proposed, compared, explain);
    return {
      ...verdict,
      ...basis,
      explained: () => {
        const question = registration.questionOf(proposed, compared);
        return this.checks.explain(question) ?? explainedHere(question, verdict);
      },
    };
  }

  deleteVersion(subject: string, wanted: string, permanent: boolean): Promise<number> {
    const name = this.meant(subject);
    return this.writeTo(subject, name, (draft) => deleteVersion(draft, name, wanted, permanent));
  }

  deleteSubject(subject: string, permanent: boolean): Promise<readonly number[]> {
    const name = this.meant(subject);
    return this.writeTo(subject, name, (draft) => deleteSubject(draft, name, permanent));
  }

  config(subject: string | undefined, inForce: boolean): SubjectConfig {
    return configOf(this.state, checkScope(subject), inForce);
  }

  verdictPolicy(subject: string | undefined): VerdictPolicy {
    return policyOf(configInForce(this.state, checkScope(subject)));
  }

  async setConfig(
    subject: string | undefined,
    update: Readonly<Record<string, unknown>>,
  ): Promise<SubjectConfig> {
    return this.writer.write(settingConfig(checkScope(subject), update));
  }

  async deleteConfig(subject: string | undefined): Promise<SubjectConfig> {
    const scope = checkScope(subject);
    return this.writer.write((draft) => removeConfig(draft, scope));
  }

  mode(subject: string | undefined, inForce: boolean): RegistryMode {
    return modeOf(this.state, checkScope(subject), inForce);
  }

  async setMode(subject: string | undefined, mode: unknown, force: boolean): Promise<RegistryMode> {
    const scope = checkScope(subject);
    const wanted = readMode(mode);
    return this.writer.write((draft) => setMode(draft, scope, wanted, force));
  }

  async deleteMode(subject: string | undefined, recursive: boolean): Promise<RegistryMode> {
    const scope = checkScope(subject);
    return this.writer.write((draft) => removeMode(draft, scope, recursive));
  }
}

/** Resolves `subject` through its alias. */
function meantIn(state: State, subject: string): string {
  const name = qualify(parseSubject(subject));
  const alias = state.config(name)?.alias;
  return alias === undefined || alias === '' ? name : qualifyWith(name, alias);
}

/** Runs the whole step again if another subject is behind `asked` by now. The rights of the caller
 *  were checked for `name`. @throws Deferred
 */
function checkAlias(state: State, asked: string, name: string): void {
  if (meantIn(state, asked) !== name) throw new Deferred(async () => {});
}

/** Explains findings on this thread. Explanations run codecs, which are loaded on the first
 *  explanation.
 */
async function explainedHere(question: JudgeRequest, { comparisons }: Verdict): Promise<readonly object[]> {
  const { explainedFindings } = await import('../proof/explained.ts');
  const { against, ever = [], policy } = question;
  const proposed = question.proposed.read();
  invariant(proposed !== undefined, 'a proposed schema that was judged can be read');
  return explainedFindings({
    comparisons,
    proposed,
    policy,
    schemaOf: (version) => against.find((one) => one.version === version)?.origin?.read(),
    ever: (charsMax) => {
      const origins = ever.flatMap(({ origin }) => origin ?? []);
      const chars = origins.reduce((sum, { source }) => sum + source.text.length, 0);
      return chars > charsMax ? [] : origins.flatMap(({ read }): Schema | readonly Schema[] => read() ?? []);
    },
  });
}
