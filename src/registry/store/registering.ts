/** Decides a registration: whether the subject has the schema, whether the schema is allowed, and
 *  its id and version.
 */
import { findMillraceError, invariant } from '../../core/errors.ts';
import type { SchemaContent } from '../../formats/content.ts';
import { type Finding, findingLine, isCompatible } from '../compatibility/finding.ts';
import type { Comparison, Level, Verdict, VerdictPolicy } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { CHECK_CHARS_MAX, Deferred, type JudgeRequest, type OriginOf } from '../worker/checks.ts';
import { tooLongHistory } from '../worker/judge.ts';
import type { Registered, RegisterInput, RegistryMode, SchemaInput, SubjectConfig } from './service.ts';
import { isSameContent, type State, type Text, type VersionEntry } from './state/model.ts';
import { contextOf, DEFAULT_CONTEXT } from './state/names.ts';
import { type Memo, type Parser, type Prepared, verbatimContent } from './state/parsing.ts';
import { SCHEMA_ID_MAX, VERSION_MAX } from './state/records.ts';
import {
  complete,
  configInForce,
  isReadOnly,
  levelOf,
  metadataProperty,
  modeInForce,
  notPermitted,
  policyOf,
} from './state/settings.ts';
import { hasSameText, textLengthOf } from './state/table.ts';
import type { Draft } from './writer.ts';

export interface RegistrationRequest {
  /** Canonical name, with its alias resolved. */
  readonly subject: string;
  readonly input: RegisterInput;
  readonly normalize: boolean | undefined;
  readonly memo?: Memo;
}

const REFUSALS: readonly unknown[] = ['invalid_schema', 'schema_too_large'];

export const isBlank = ({ text }: SchemaInput): boolean => text.trim() === '';

/** Fills in the subject's latest text when a request has none. */
function withPreviousText(input: RegisterInput, latest: VersionEntry | undefined): RegisterInput {
  if (latest === undefined || !isBlank(input)) return input;
  const { text, references, format } = latest.text.content;
  return { ...input, text, references, format };
}

/** A request with everything of one state that decides it: settings, mode and versions of its
 *  subject, read once. It is valid until that state changes.
 */
export class Registration {
  readonly live: readonly VersionEntry[];
  readonly level: Level;
  readonly policy: VerdictPolicy;
  private readonly state: State;
  private readonly parser: Parser;
  private readonly subject: string;
  private readonly input: RegisterInput;
  private readonly memo: Memo | undefined;
  private readonly config: SubjectConfig;
  private readonly mode: RegistryMode;
  private readonly versions: readonly VersionEntry[];
  private readonly isNormalized: boolean;
  /** True in modes that take ids and versions from the client. */
  private readonly takesNumbers: boolean;

  constructor(state: State, parser: Parser, { subject, input, normalize, memo }: RegistrationRequest) {
    this.state = state;
    this.parser = parser;
    this.subject = subject;
    this.memo = memo;
    this.config = configInForce(state, subject);
    this.mode = modeInForce(state, subject);
    this.level = levelOf(this.config);
    this.policy = policyOf(this.config);
    this.versions = state.versions(subject);
    this.live = state.live(subject);
    this.input = withPreviousText(input, this.live.at(-1));
    this.isNormalized = normalize === true || this.config.normalize === true;
    this.takesNumbers = this.mode === 'IMPORT' || this.mode === 'FORWARD';
  }

  /** Parses the text. In modes that take ids from the client, texts are read leniently, because
   *  they were valid in another registry. @throws invalid_schema, schema_too_large
   */
  private prepare(how: { readonly lenient: boolean }): Prepared {
    const { state, parser, subject, policy } = this;
    // Releases 7.x of the existing registries, whose answers STRICT gives, validate neither
    // defaults nor namespaces of new Avro texts; from 8.0 on the setting decides.
    const validates = this.config.validateNewSchemas ?? (policy !== 'STRICT' && parser.validatesNewSchemas);
    const options = {
      unvalidated: !validates,
      looseImports: policy === 'STRICT',
      lenient: how.lenient || this.takesNumbers,
      normalize: this.isNormalized,
    };
    return parser.prepare(state, subject, this.input, options, this.memo);
  }

  /** Parses a text as a new one. A text that is refused as new is read leniently when the registry
   *  holds it already: another registry or an earlier release accepted it, and its producers
   *  register it again at each start.
   *  @throws invalid_schema, schema_too_large for a text that is refused and not held
   */
  prepareNewOrHeld(): Prepared {
    try {
      return this.prepare({ lenient: false });
    } catch (refusal) {
      if (!REFUSALS.includes(findMillraceError(refusal)?.code)) throw refusal;
      const prepared = this.prepareLeniently();
      if (prepared === undefined || !this.isHeld(prepared)) throw refusal;
      return prepared;
    }
  }

  private prepareLeniently(): Prepared | undefined {
    try {
      return this.prepare({ lenient: true });
    } catch (thrown) {
      if (thrown instanceof Deferred) throw thrown;
      // The caller reports the strict reader's refusal, which names the first thing to correct.
      return undefined;
    }
  }

  /** True when a version of the subject has this content, soft-deleted or not, or when this exact
   *  text has an id in the context. In another subject no other spelling counts, because a lenient
   *  reader drops what it cannot use.
   */
  private isHeld(prepared: Prepared): boolean {
    const { state, subject, versions } = this;
    const verbatim = verbatimContent(state, subject, this.input);
    if (state.idOf(contextOf(subject), verbatim) !== undefined) return true;
    return (
      this.find(prepared, versions) !== undefined || this.findCompleted(prepared, versions) !== undefined
    );
  }

  /** Newest of `versions` with the content of a parsed text, in any spelling. */
  find(prepared: Prepared, versions: readonly VersionEntry[]): VersionEntry | undefined {
    return versions[this.parser.find(this.state, this.subject, prepared, versions)];
  }

  /** Newest version that stores the text as it was sent; undefined where the text must be
   *  normalized first.
   */
  findVerbatim(versions = this.versions): VersionEntry | undefined {
    if (versions.length === 0 || this.isNormalized) return undefined;
    const content = verbatimContent(this.state, this.subject, this.input);
    return versions[this.state.newestWith(content, versions)];
  }

  /** Version among `versions` that a look-up finds. @throws invalid_schema, schema_too_large */
  findVersion(versions: readonly VersionEntry[]): VersionEntry | undefined {
    const verbatim = this.findVerbatim(versions);
    if (verbatim !== undefined) return verbatim;
    const prepared = this.prepare({ lenient: true });
    return this.find(prepared, versions) ?? this.findRegistered(prepared);
  }

  /** Live version that has the content of a parsed text.
   *  @throws id_mismatch, not_permitted for a version with an id other than the sent id
   */
  private findRegistered(prepared: Prepared): VersionEntry | undefined {
    const found = this.find(prepared, this.live) ?? this.findCompleted(prepared, this.live);
    return found === undefined ? undefined : this.withSentId(found);
  }

  /** @throws id_mismatch, not_permitted */
  private withSentId(found: VersionEntry): VersionEntry {
    const { id } = this.input;
    if (id === undefined || id === found.stored.id) return found;
    if (!this.takesNumbers) throw notPermitted(this.subject, 'not in import mode');
    throw registryError(
      'id_mismatch',
      `Schema already registered with id ${found.stored.id} instead of input id ${id}`,
      { next: 'omit the id, or send the existing id' },
    );
  }

  /** Live version that answers a registration without a write; for a new schema its parsed text
   *  instead.
   *  @throws invalid_schema, schema_too_large, id_mismatch, not_permitted
   */
  lookUp():
    | { readonly found: VersionEntry; readonly prepared?: undefined }
    | { readonly found: undefined; readonly prepared: Prepared } {
    const verbatim = this.findVerbatim(this.live);
    if (verbatim !== undefined) return { found: this.withSentId(verbatim) };
    const prepared = this.prepareNewOrHeld();
    const found = this.findRegistered(prepared);
    return found === undefined ? { found, prepared } : { found };
  }

  /** Content as it would be stored: with the metadata and rules of the settings and of the previous
   *  version.
   */
  private completed(content: SchemaContent, version: number | undefined): SchemaContent {
    if (this.takesNumbers) return content;
    const previous = this.live.at(-1)?.text.content;
    const number = version === undefined ? undefined : { version, asked: this.input.version !== undefined };
    return complete(content, this.config, previous, number);
  }

  private findCompleted(prepared: Prepared, versions: readonly VersionEntry[]): VersionEntry | undefined {
    const content = this.completed(prepared.content, undefined);
    return isSameContent(content, prepared.content)
      ? undefined
      : this.find({ ...prepared, content }, versions);
  }

  /** @throws not_permitted */
  private checkMode(): void {
    const { mode, subject, input } = this;
    if (isReadOnly(mode)) throw notPermitted(subject, 'in read-only mode');
    if (input.id !== undefined && !this.takesNumbers) throw notPermitted(subject, 'not in import mode');
    if (input.id === undefined && mode !== 'READWRITE') throw notPermitted(subject, 'not in read-write mode');
  }

  private chooseVersion(): number {
    const { versions, subject, input } = this;
    const next = (versions.at(-1)?.stored.version ?? 0) + 1;
    const wanted = input.version === undefined || input.version <= 0 ? next : input.version;
    if (wanted > VERSION_MAX)
      throw registryError(
        'invalid_version',
        `version ${wanted} of subject ${subject} is past ${VERSION_MAX}`,
      );
    if (!this.takesNumbers) {
      if (wanted !== next)
        throw registryError('invalid_schema', `Version is not one more than previous version ${next - 1}`, {
          next: 'omit the version, or change the mode to IMPORT',
        });
      return next;
    }
    if (versions.some(({ stored }) => stored.version === wanted))
      throw registryError(
        'not_permitted',
        `Overwrite version ${wanted} of subject ${subject} is not permitted.`,
      );
    return wanted;
  }

  private chooseId(context: string, content: SchemaContent): number {
    const { state } = this;
    const wanted = this.input.id;
    if (wanted === undefined) {
      const known = state.idOf(context, content);
      if (known !== undefined) return known;
      const id = state.maxId(context) + 1;
      if (id > SCHEMA_ID_MAX)
        throw registryError('store_failed', `the ids of context ${context} are used up at ${SCHEMA_ID_MAX}`);
      return id;
    }
    const holder = state.schema(context, wanted);
    if (holder !== undefined && !isSameContent(holder.content, content)) {
      const name = context === DEFAULT_CONTEXT ? '' : `:${context}:`;
      throw registryError(
        'not_permitted',
        `Overwrite new schema with id ${wanted} in context ${name} is not permitted.`,
      );
    }
    return wanted;
  }

  /** Decides the registration and writes its records into `draft`, whose state this is.
   *  @throws invalid_schema, incompatible, not_permitted, id_mismatch
   */
  decide(draft: Draft): Registered {
    const { state, subject } = this;
    const { found, prepared } = this.lookUp();
    if (found !== undefined) return { version: found.stored, created: false, comparisons: [] };
    this.checkMode();
    const version = this.chooseVersion();
    const proposed: Prepared = { ...prepared, content: this.completed(prepared.content, version) };
    const comparisons = this.takesNumbers ? [] : this.check(proposed);
    const context = contextOf(subject);
    const { content } = proposed;
    const id = this.chooseId(context, content);
    if (!state.hasContext(context)) draft.put({ kind: 'context', context, value: true });
    const { format, text, references, metadata, ruleSet } = content;
    draft.put({
      kind: 'schema',
      subject,
      version,
      value: {
        id,
        format,
        text,
        references,
        ...(metadata === undefined ? {} : { metadata }),
        ...(ruleSet === undefined ? {} : { ruleSet }),
        deleted: false,
      },
    });
    for (const { stored } of this.versions) {
      // The new version replaces soft-deleted versions of its content, except versions that others
      // refer to. No tombstone is needed, because the content stays.
      if (stored.id !== id || !stored.deleted || stored.version >= version) continue;
      if (state.referrers(subject, stored.version).length === 0)
        draft.put({ kind: 'schema', subject, version: stored.version, value: null });
    }
    const entry = state.version(subject, version);
    invariant(entry?.stored.id === id, 'a draft has the version that it decided');
    return { version: entry.stored, created: true, comparisons };
  }

  private check(proposed: Prepared): readonly Comparison[] {
    const { subject, level, policy } = this;
    const against = this.comparedBy(proposed.content);
    const verdict = this.judge(proposed, against);
    if (verdict.compatible) return verdict.comparisons;
    const lines = verdictLines(verdict);
    throw registryError(
      'incompatible',
      `schema for subject "${subject}" is incompatible (level ${level}): ${lines.join('; ')}`,
      {
        next: 'change the schema, or the level of the subject',
        details: { subject, level, policy, lines, verdict, compared: against.map(({ stored }) => stored) },
      },
    );
  }

  /** Live versions with the proposed content's value of the metadata property that divides a
   *  subject into compatibility groups.
   */
  inGroup(proposed: SchemaContent): readonly VersionEntry[] {
    const group = this.config.compatibilityGroup;
    if (group === undefined) return this.live;
    const value = metadataProperty(proposed, group);
    return this.live.filter(({ text }) => metadataProperty(text.content, group) === value);
  }

  /** Versions of the group that the level compares with: the latest for a plain level, all for a
   *  transitive one, none for NONE.
   */
  comparedBy(proposed: SchemaContent): readonly VersionEntry[] {
    if (this.level === 'NONE') return [];
    const group = this.inGroup(proposed);
    return this.level.endsWith('_TRANSITIVE') ? group : group.slice(-1);
  }

  /** Comparisons that decide whether `proposed` may follow the versions `against`. */
  questionOf(proposed: Prepared, against: readonly VersionEntry[]): JudgeRequest {
    const { state, parser, subject, level, policy } = this;
    // The field numbers of a text that a version has keep their meaning, soft-deleted or not.
    const isNumbered =
      proposed.content.format === 'PROTOBUF' &&
      !this.versions.some(({ text }) => hasSameText(text.content, proposed.content));
    return {
      proposed: proposed.origin,
      level,
      policy,
      against: against.map(({ stored, text }) => ({
        version: stored.version,
        format: text.content.format,
        origin: parser.storedOrNone(state, subject, text),
      })),
      ever: isNumbered ? this.everHeld() : undefined,
    };
  }

  /** @throws Deferred, check_too_long */
  judge(proposed: Prepared, against: readonly VersionEntry[], explain = false): Verdict {
    const comparisons = this.parser.checks.judge(this.questionOf(proposed, against), explain);
    const refusesLoss = this.config.lossy === 'REJECT';
    const compatible = comparisons.every(
      ({ findings }) =>
        isCompatible(findings) && !(refusesLoss && findings.some(({ severity }) => severity === 'lossy')),
    );
    return { compatible, comparisons };
  }

  /** All Protobuf versions that the subject ever had, oldest first: those deleted for good, one
   *  life of the subject after the other, then the existing ones. A life ends when the last version
   *  is deleted for good; the next life counts versions from 1 again.
   *  @throws check_too_long
   */
  private everHeld(): readonly OriginOf[] {
    const { state, parser, subject } = this;
    this.checkHistoryLength();
    const ever: OriginOf[] = [];
    let life: Array<{ readonly version: number; readonly text: Text }> = [];
    const close = (): void => {
      life.sort((a, b) => a.version - b.version);
      for (const { version, text } of life) {
        const { format } = text.content;
        if (format !== 'PROTOBUF') continue;
        // The field numbers are in the text itself, so references may be missing.
        ever.push({ version, format, origin: parser.storedOrNone(state, subject, text, true) });
      }
      life = [];
    };
    for (const { version, text, last } of state.burned(subject)) {
      life.push({ version, text });
      if (last) close();
    }
    for (const { stored, text } of this.versions) life.push({ version: stored.version, text });
    close();
    return ever;
  }

  /** Counts each text of the history once, without decoding it. @throws check_too_long */
  private checkHistoryLength(): void {
    const { state, subject, versions } = this;
    const counted = new Set<string>();
    let chars = 0;
    for (const { text } of [...state.burned(subject), ...versions]) {
      if (text.content.format !== 'PROTOBUF' || counted.has(text.key)) continue;
      counted.add(text.key);
      chars += textLengthOf(text.content);
      if (chars > CHECK_CHARS_MAX) throw tooLongHistory(subject, CHECK_CHARS_MAX);
    }
  }
}

/** One line for each finding that refuses a schema. A lossy finding refuses only where losses do,
 *  and nothing else does.
 */
export function verdictLines(verdict: Verdict): string[] {
  const strict = verdict.comparisons.every(({ findings }) => isCompatible(findings)) && !verdict.compatible;
  return verdict.comparisons.flatMap((comparison) =>
    comparison.findings
      .filter((finding) => !isCompatible([finding]) || (strict && finding.severity === 'lossy'))
      .map((finding: Finding) =>
        comparison.version === undefined
          ? `in any mode: ${findingLine(finding)}`
          : `${comparison.direction} against version ${comparison.version}: ${findingLine(finding)}`,
      ),
  );
}
