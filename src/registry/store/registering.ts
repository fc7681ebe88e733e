/** Decides a registration: whether the subject has the schema, whether the schema is allowed, and
 *  its id and version.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { SchemaContent } from '../../formats/content.ts';
import type { Comparison } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { Deferred } from '../worker/checks.ts';
import type { Draft } from './draft.ts';
import { comparedBy, inGroup, judgeAgainst, verdictLines } from './judging.ts';
import { removeReplaced } from './removal.ts';
import type { Registered, RegisterInput, RegistryMode, SchemaInput, SubjectConfig } from './service.ts';
import { complete } from './state/contracts.ts';
import { isSameContent, type State, type VersionEntry } from './state/model.ts';
import { contextOf, DEFAULT_CONTEXT } from './state/names.ts';
import { type Memo, type Parser, type Prepared, verbatimContent } from './state/parsing.ts';
import { SCHEMA_ID_MAX, VERSION_MAX } from './state/records.ts';
import {
  checkWritable,
  configInForce,
  levelOf,
  modeInForce,
  notPermitted,
  policyOf,
} from './state/settings.ts';

export interface Registering {
  readonly subject: string;
  readonly input: RegisterInput;
  readonly normalize: boolean | undefined;
  readonly memo?: Memo;
}

const takesNumbers = (mode: RegistryMode): boolean => mode === 'IMPORT' || mode === 'FORWARD';

/** Parses what a client sent. In modes that take ids from the client, texts are read leniently,
 *  because they were valid in another registry. @throws invalid_schema, schema_too_large
 */
function prepare(
  state: State,
  parser: Parser,
  registering: Registering,
  how: { readonly lenient: boolean },
): Prepared {
  const { subject, memo } = registering;
  const config = configInForce(state, subject);
  const asked = {
    unvalidated: !validatesNewSchemas(config, parser),
    looseImports: policyOf(config) === 'STRICT',
    lenient: how.lenient || takesNumbers(modeInForce(state, subject)),
    normalize: isNormalized(state, registering),
  };
  return parser.prepare(state, subject, inputOf(state, registering), asked, memo);
}

/** True when new Avro texts are validated. Releases 7.x of the existing registries, whose answers
 *  STRICT gives, validate neither defaults nor namespaces; from 8.0 on the setting decides.
 */
function validatesNewSchemas(config: SubjectConfig, parser: Parser): boolean {
  return config.validateNewSchemas ?? (policyOf(config) !== 'STRICT' && parser.validatesNewSchemas);
}

const isNormalized = (state: State, { subject, normalize }: Registering): boolean =>
  normalize === true || configInForce(state, subject).normalize === true;

const inputOf = (state: State, { subject, input }: Registering): RegisterInput =>
  withPreviousText(state, subject, input);

/** Newest version that stores the text as it was sent; undefined where the text must be normalized
 *  first.
 */
export function findVerbatim(
  state: State,
  registering: Registering,
  versions: readonly VersionEntry[],
): VersionEntry | undefined {
  if (versions.length === 0 || isNormalized(state, registering)) return undefined;
  const content = verbatimContent(state, registering.subject, inputOf(state, registering));
  return versions[state.newestWith(content, versions)];
}

const REFUSALS: readonly unknown[] = ['invalid_schema', 'schema_too_large'];

/** Parses a text as a new one. A text that is refused as new is read leniently when the registry
 *  holds it already: another registry or an earlier release accepted it, and its producers register
 *  it again at each start.
 *  @throws invalid_schema, schema_too_large for a text that is refused and not held
 */
export function prepareNewOrHeld(state: State, parser: Parser, registering: Registering): Prepared {
  try {
    return prepare(state, parser, registering, { lenient: false });
  } catch (refusal) {
    if (!REFUSALS.includes(findMillraceError(refusal)?.code)) throw refusal;
    const prepared = prepareLeniently(state, parser, registering);
    if (prepared === undefined || !isHeld(state, parser, registering, prepared)) throw refusal;
    return prepared;
  }
}

function prepareLeniently(state: State, parser: Parser, registering: Registering): Prepared | undefined {
  try {
    return prepare(state, parser, registering, { lenient: true });
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
function isHeld(state: State, parser: Parser, registering: Registering, prepared: Prepared): boolean {
  const { subject } = registering;
  const verbatim = verbatimContent(state, subject, inputOf(state, registering));
  if (state.idOf(contextOf(subject), verbatim) !== undefined) return true;
  const versions = state.versions(subject);
  return (
    parser.find(state, subject, prepared, versions) >= 0 ||
    findCompleted(state, parser, registering, prepared, versions) !== undefined
  );
}

/** Version among `versions` that a look-up finds. @throws invalid_schema, schema_too_large */
export function findVersion(
  state: State,
  parser: Parser,
  registering: Registering,
  versions: readonly VersionEntry[],
): VersionEntry | undefined {
  if (isBlank(registering.input)) return undefined;
  const verbatim = findVerbatim(state, registering, versions);
  if (verbatim !== undefined) return verbatim;
  const prepared = prepare(state, parser, registering, { lenient: true });
  return (
    versions[parser.find(state, registering.subject, prepared, versions)] ??
    findRegistered(state, parser, registering, prepared)
  );
}

/** Fills in the subject's latest text when a request has none. */
function withPreviousText(state: State, subject: string, input: RegisterInput): RegisterInput {
  if (!isBlank(input)) return input;
  const previous = state.latest(subject)?.text.content;
  if (previous === undefined) return input;
  const { text, references, format } = previous;
  return { ...input, text, references, format };
}

export const isBlank = ({ text }: SchemaInput): boolean => text.trim() === '';

/** Live version that has the content of a parsed text.
 *  @throws id_mismatch, not_permitted for a version with an id other than the sent id
 */
function findRegistered(
  state: State,
  parser: Parser,
  registering: Registering,
  prepared: Prepared,
): VersionEntry | undefined {
  const { subject } = registering;
  const live = state.live(subject);
  const at = parser.find(state, subject, prepared, live);
  const found = at < 0 ? findCompleted(state, parser, registering, prepared, live) : live[at];
  return found === undefined ? undefined : withSentId(state, registering, found);
}

/** @throws id_mismatch, not_permitted */
function withSentId(state: State, { subject, input }: Registering, found: VersionEntry): VersionEntry {
  if (input.id === undefined || input.id === found.stored.id) return found;
  if (!takesNumbers(modeInForce(state, subject))) throw notPermitted(subject, 'not in import mode');
  throw registryError(
    'id_mismatch',
    `Schema already registered with id ${found.stored.id} instead of input id ${input.id}`,
    { next: 'omit the id, or send the existing id' },
  );
}

/** Live version that answers a registration without a write; for a new schema its parsed text
 *  instead.
 *  @throws invalid_schema, schema_too_large, id_mismatch, not_permitted
 */
export function lookUp(
  state: State,
  parser: Parser,
  registering: Registering,
):
  | { readonly found: VersionEntry; readonly prepared?: undefined }
  | { readonly found: undefined; readonly prepared: Prepared } {
  const verbatim = findVerbatim(state, registering, state.live(registering.subject));
  if (verbatim !== undefined) return { found: withSentId(state, registering, verbatim) };
  const prepared = prepareNewOrHeld(state, parser, registering);
  const found = findRegistered(state, parser, registering, prepared);
  return found === undefined ? { found, prepared } : { found };
}

/** Content as it would be stored: with the metadata and rules of the settings and of the previous
 *  version.
 */
function completed(
  state: State,
  { subject, input }: Registering,
  content: SchemaContent,
  config: SubjectConfig,
  version: number | undefined,
): SchemaContent {
  if (takesNumbers(modeInForce(state, subject))) return content;
  const previous = state.latest(subject)?.text.content;
  const number = version === undefined ? undefined : { version, asked: input.version !== undefined };
  return complete(content, config, previous, number);
}

function findCompleted(
  state: State,
  parser: Parser,
  registering: Registering,
  prepared: Prepared,
  live: readonly VersionEntry[],
): VersionEntry | undefined {
  const config = configInForce(state, registering.subject);
  const content = completed(state, registering, prepared.content, config, undefined);
  if (isSameContent(content, prepared.content)) return undefined;
  return live[parser.find(state, registering.subject, { ...prepared, content }, live)];
}

function checkMode(state: State, { subject, input }: Registering): RegistryMode {
  checkWritable(state, subject);
  const mode = modeInForce(state, subject);
  if (input.id !== undefined && !takesNumbers(mode)) throw notPermitted(subject, 'not in import mode');
  if (input.id === undefined && mode !== 'READWRITE') throw notPermitted(subject, 'not in read-write mode');
  return mode;
}

function chooseVersion(
  versions: readonly VersionEntry[],
  input: RegisterInput,
  mode: RegistryMode,
  subject: string,
): number {
  const next = (versions.at(-1)?.stored.version ?? 0) + 1;
  const wanted = input.version === undefined || input.version <= 0 ? next : input.version;
  if (wanted > VERSION_MAX)
    throw registryError('invalid_version', `version ${wanted} of subject ${subject} is past ${VERSION_MAX}`);
  if (!takesNumbers(mode)) {
    if (wanted !== next)
      throw registryError('invalid_schema', `Version is not one more than previous version ${next - 1}`, {
        next: 'omit the version, or change the mode to IMPORT',
      });
    return next;
  }
  if (versions.some(({ stored }) => stored.version === wanted)) {
    throw registryError(
      'not_permitted',
      `Overwrite version ${wanted} of subject ${subject} is not permitted.`,
    );
  }
  return wanted;
}

function chooseId(state: State, context: string, content: SchemaContent, wanted: number | undefined): number {
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

/** Decides a registration on a draft. @throws invalid_schema, incompatible, not_permitted,
 *  id_mismatch
 */
export function register(draft: Draft, parser: Parser, registering: Registering): Registered {
  const { state } = draft;
  const { subject, input } = registering;
  const { found, prepared } = lookUp(state, parser, registering);
  if (found !== undefined) return { version: found.stored, created: false, comparisons: [] };
  const mode = checkMode(state, registering);
  const versions = state.versions(subject);
  const version = chooseVersion(versions, input, mode, subject);
  const config = configInForce(state, subject);
  const proposed: Prepared = {
    ...prepared,
    content: completed(state, registering, prepared.content, config, version),
  };
  const comparisons = takesNumbers(mode) ? [] : check(state, parser, subject, proposed, config);
  const context = contextOf(subject);
  const { content } = proposed;
  const id = chooseId(state, context, content, input.id);
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
  for (const { stored } of versions) {
    // The new version replaces soft-deleted versions of its content, except versions that others
    // refer to.
    if (stored.id === id && stored.deleted && stored.version < version) {
      if (state.referrers(subject, stored.version).length === 0)
        removeReplaced(draft, subject, stored.version);
    }
  }
  const entry = draft.state.version(subject, version) as VersionEntry;
  return { version: entry.stored, created: true, comparisons };
}

function check(
  state: State,
  parser: Parser,
  subject: string,
  proposed: Prepared,
  config: SubjectConfig,
): readonly Comparison[] {
  const against = comparedBy(config, inGroup(config, proposed, state.live(subject)));
  const verdict = judgeAgainst(state, parser, subject, proposed, config, against);
  if (verdict.compatible) return verdict.comparisons;
  const lines = verdictLines(verdict);
  const level = levelOf(config);
  const policy = policyOf(config);
  throw registryError(
    'incompatible',
    `schema for subject "${subject}" is incompatible (level ${level}): ${lines.join('; ')}`,
    {
      next: 'change the schema, or the level of the subject',
      details: { subject, level, policy, lines, verdict, compared: against.map(({ stored }) => stored) },
    },
  );
}
