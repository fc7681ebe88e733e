/** The decision on a registration: is it there already, may it be, under which id and version. */
import type { Comparison } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import type { SchemaContent } from '../schemas/content.ts';
import { complete } from './contracts.ts';
import type { Draft } from './draft.ts';
import { comparedBy, inGroup, judgeAgainst, verdictLines } from './judging.ts';
import { contextOf, DEFAULT_CONTEXT } from './names.ts';
import type { Memo, Parser, Prepared } from './parsing.ts';
import { SCHEMA_ID_MAX, VERSION_MAX } from './records.ts';
import { removeReplaced } from './removal.ts';
import type { Registered, RegisterInput, RegistryMode, SubjectConfig } from './service.ts';
import { checkWritable, configInForce, levelOf, modeInForce, notPermitted, policyOf } from './settings.ts';
import { isSameContent, type State, type VersionEntry } from './state.ts';

export interface Registering {
  readonly subject: string;
  readonly input: RegisterInput;
  readonly normalize: boolean | undefined;
  readonly memo?: Memo;
}

const takesNumbers = (mode: RegistryMode): boolean => mode === 'IMPORT' || mode === 'FORWARD';

/** Texts that come with their own ids were valid somewhere else; a lookup says whether, not what should be. */
export function prepare(
  state: State,
  parser: Parser,
  { subject, input, normalize, memo }: Registering,
  how: { readonly lenient: boolean },
): Prepared {
  const config = configInForce(state, subject);
  const asked = {
    lenient: how.lenient || takesNumbers(modeInForce(state, subject)),
    normalize: normalize === true || config.normalize === true,
  };
  return parser.prepare(state, subject, withPreviousText(state, subject, input), asked, memo);
}

/** Metadata or rules alone belong to the text that the subject has. */
function withPreviousText(state: State, subject: string, input: RegisterInput): RegisterInput {
  if (input.text.trim() !== '' || (input.metadata === undefined && input.ruleSet === undefined)) return input;
  const previous = state.latest(subject)?.text.content;
  if (previous === undefined) return input;
  const { text, references, format } = previous;
  return { ...input, text, references, format };
}

/** The version that answers a registration without a write, if there is one. */
export function findRegistered(
  state: State,
  parser: Parser,
  registering: Registering,
  prepared: Prepared,
): VersionEntry | undefined {
  const { subject, input } = registering;
  const live = state.live(subject);
  const at = parser.find(state, subject, prepared, live);
  const found = at < 0 ? findCompleted(state, parser, registering, prepared, live) : live[at];
  if (found === undefined || input.id === undefined || input.id === found.stored.id) return found;
  if (!takesNumbers(modeInForce(state, subject))) throw notPermitted(subject, 'not in import mode');
  throw registryError(
    'id_mismatch',
    `Schema already registered with id ${found.stored.id} instead of input id ${input.id}`,
    { next: 'leave the id out, or give the one it has' },
  );
}

/** As it would be stored: with the metadata of the settings and of the version before. */
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
        next: 'leave the version out, or change the mode to IMPORT',
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

/** Decides on a draft. @throws invalid_schema, incompatible, not_permitted, id_mismatch */
export function register(draft: Draft, parser: Parser, registering: Registering): Registered {
  const { state } = draft;
  const { subject, input } = registering;
  const prepared = prepare(state, parser, registering, { lenient: false });
  const found = findRegistered(state, parser, registering, prepared);
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
    // The one that comes back stands for it; a version that somebody refers to must stay.
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
