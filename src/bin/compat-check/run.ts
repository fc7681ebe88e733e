/** Loads the proposed and the earlier schemas, from files or a registry, and runs the check. */
import { coreError, findMillraceError } from '../../core/errors.ts';
import { resolvedAvroText } from '../../formats/avro/schema.ts';
import type { ResolvedReference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import type { Schema } from '../../formats/schema.ts';
import { type GateInput, gateReport } from '../../registry/check/gate.ts';
import { type GateQuestion, judgeProposed } from '../../registry/check/judge.ts';
import { type Mended, mend } from '../../registry/check/mend.ts';
import { prove } from '../../registry/check/prove.ts';
import { type Earlier, type GateReport, type RegistryAnswer, readable } from '../../registry/check/report.ts';
import { isLevel, type Level, type VerdictPolicy } from '../../registry/compatibility/modes.ts';
import type { RegistryClient } from '../../serde/client.ts';
import type { CommandContext } from '../../shell/command.ts';
import { registryClient } from '../registry-clients/shared.ts';
import { gateError } from './errors.ts';
import { formatOf, parseProposed, readSchemaFile, referenceFiles, type SchemaFile } from './files.ts';
import type { GATE_SETTINGS } from './settings.ts';
import {
  gatherFiles,
  gatherSubject,
  type NamedFile,
  type RegisteredVersion,
  readReferences,
} from './sources.ts';

type Context = CommandContext<typeof GATE_SETTINGS>;

interface Given {
  readonly file: SchemaFile;
  readonly format: SchemaFormat;
  readonly references: readonly NamedFile[];
}

/** @throws usage */
function required<T>(flag: string, value: T | undefined, what: string): T {
  if (value !== undefined && value !== ('' as unknown)) return value;
  throw coreError('usage', `-${flag} is required`, { next: `give -${flag}=${what}` });
}

export interface Checked {
  readonly report: GateReport;
  /** The corrected file, if -fix was given and a fix was found. */
  readonly mended: Mended | undefined;
}

export async function checkProposed(context: Context): Promise<Checked> {
  const { settings } = context;
  const path = required('proposed', settings.proposed, 'FILE');
  const offline = settings.against !== undefined;
  const subject = offline ? settings.subject : required('subject', settings.subject, 'SUBJECT');
  const references = referenceFiles(settings.reference);
  const file = readSchemaFile(path, 'proposed');
  const given = { file, format: formatOf(file, settings.format), references };
  return settings.against === undefined
    ? againstRegistry(context, given, subject as string)
    : againstFiles(context, given, settings.against);
}

/** Mode and policies: from the flags, else from the subject's configuration, else the defaults. */
interface Terms {
  readonly level: Level;
  readonly policy: VerdictPolicy;
  readonly lossy: 'ACCEPT' | 'REJECT';
}

function termsOf(settings: Context['settings'], config: Readonly<Record<string, unknown>>): Terms {
  const level = config['compatibilityLevel'];
  const own = config['verdictPolicy'] === 'STRICT' ? 'STRICT' : 'PROVEN';
  return {
    level: (settings.mode as Level | undefined) ?? (isLevel(level) ? level : 'BACKWARD'),
    policy: (settings.policy as VerdictPolicy | undefined) ?? own,
    lossy: config['lossy'] === 'REJECT' ? 'REJECT' : 'ACCEPT',
  };
}

async function againstFiles(context: Context, given: Given, against: string): Promise<Checked> {
  const { settings } = context;
  const { file, format } = given;
  const proposed = parseProposed(file, format, readReferences(given.references, format));
  const { earlier, notes } = await gatherFiles(against, format, given.references, context.drain);
  if (earlier.length === 0 && !settings['allow-new'])
    throw gateError('gate_unknown_subject', `no schema exists at ${against}`, {
      next: 'check the path, or give -allow-new for the first version of a schema',
    });
  const question: GateQuestion = {
    proposed,
    ...termsOf(settings, {}),
    earlier,
    all: settings['all-versions'],
    known: false,
  };
  return answered(context, question, {
    ...question,
    subject: settings.subject,
    file: file.name,
    against,
    registry: { asked: false, why: `compared with ${against}, without a registry` },
    already: undefined,
    notes,
    proof: proofOf(context, question),
  });
}

function answered({ settings }: Context, question: GateQuestion, input: GateInput): Checked {
  const report = gateReport(input);
  return { report, mended: settings.fix && !report.judged ? mend(question) : undefined };
}

function proofOf({ settings }: Context, question: GateQuestion) {
  return settings.prove ? prove(question, judgeProposed(question)) : undefined;
}

async function againstRegistry(context: Context, given: Given, subject: string): Promise<Checked> {
  const { settings } = context;
  const { file, format } = given;
  const client = registryClient(context);
  // Bad reference files are reported before the first request to the registry. The proposed
  // schema may parse only with the references of the latest version.
  const files = readReferences(given.references, format);
  const early = attempt(() => parseProposed(file, format, files));
  const config = await configOf(client, subject);
  const mode = await client.mode(subject);
  const terms = termsOf(settings, config);
  const all = settings['all-versions'] || terms.level.endsWith('_TRANSITIVE');
  const { known, live, ...gathered } = await gatherSubject(client, subject, {
    all,
    ever: format === 'PROTOBUF',
  });
  const earlier = inGroup(gathered.earlier, config['compatibilityGroup']);
  const latest = earlier
    .filter((one) => one.live)
    .map(readable)
    .at(-1);
  const inherited = (latest?.references ?? []).filter(({ name }) => files.every((one) => one.name !== name));
  const references = [...inherited, ...files];
  const proposed =
    early.value !== undefined && inherited.length === 0
      ? early.value
      : parseProposed(file, format, references);
  if (!known && !settings['allow-new'])
    throw gateError('gate_unknown_subject', `the registry has no subject ${subject}`, {
      next: 'check -subject, or give -allow-new for the first schema of a subject',
    });
  const named = await registered(client, references, inherited, latest);
  const already =
    known && live > 0 && named.every((one) => one.version !== undefined)
      ? await knownVersion(client, subject, proposed, named)
      : undefined;
  // With overriding flags the caller wants a verdict on those terms, even for a registered schema.
  const asIs = settings.mode === undefined && settings.policy === undefined && !settings['all-versions'];
  const question: GateQuestion = { proposed, ...terms, earlier, all, known: asIs && already !== undefined };
  return answered(context, question, {
    ...question,
    subject,
    file: file.name,
    against: new URL(settings.registry).origin,
    registry: await askRegistry(client, subject, proposed, named),
    already,
    notes: [
      ...(known ? [] : [`the registry has no subject ${subject} yet`]),
      ...(mode?.startsWith('READONLY')
        ? [`the subject is in mode ${mode}: the registry takes no schema until that is changed`]
        : []),
    ],
    proof: proofOf(context, question),
  });
}

/** Keeps live only the versions of the latest version's compatibility group. The group is a
 *  property of the schema's metadata; the proposed schema joins the group of the latest version. */
function inGroup(earlier: readonly RegisteredVersion[], group: unknown): readonly Earlier[] {
  if (typeof group !== 'string') return earlier;
  const groupOf = ({ metadata }: RegisteredVersion): unknown => {
    const { properties } = (metadata ?? {}) as {
      readonly properties?: Readonly<Record<string, unknown>> | null;
    };
    return properties?.[group];
  };
  const latest = earlier.findLast(({ live }) => live);
  return earlier.map((one) => ({
    ...one,
    live: one.live && latest !== undefined && groupOf(one) === groupOf(latest),
  }));
}

function attempt<T>(run: () => T): { readonly value: T | undefined } {
  try {
    return { value: run() };
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'gate_unparsable') throw thrown;
    return { value: undefined };
  }
}

interface Named {
  readonly name: string;
  readonly subject: string;
  /** Undefined if the registry does not hold the schema. */
  readonly version: number | undefined;
}

/** Finds the subject and version under which the registry holds each reference. */
async function registered(
  client: RegistryClient,
  references: readonly ResolvedReference[],
  inherited: readonly ResolvedReference[],
  latest: Schema | undefined,
): Promise<readonly Named[]> {
  const named: Named[] = [];
  for (const reference of references) {
    const { name, format, text } = reference;
    if (inherited.includes(reference)) {
      named.push({ name, subject: reference.subject, version: reference.version });
      continue;
    }
    const before = latest?.references.find((one) => one.name === name)?.subject;
    let found: Named = { name, subject: name, version: undefined };
    const inner = named.flatMap(({ version, ...rest }) =>
      version === undefined ? [] : [{ ...rest, version }],
    );
    for (const subject of new Set([...(before === undefined ? [] : [before]), name])) {
      for (const others of inner.length === 0 ? [[]] : [[], inner]) {
        const version = await orUndefined(client.find(subject, format, text, others));
        if (version !== undefined && found.version === undefined) found = { name, subject, version };
      }
    }
    named.push(found);
  }
  return named;
}

/** Undefined if the registry does not know the schema or cannot parse it without its references. */
async function orUndefined<T>(asked: Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (thrown) {
    const code = findMillraceError(thrown)?.code ?? '';
    if (['subject_not_found', 'invalid_schema', 'invalid_subject'].includes(code)) return undefined;
    throw thrown;
  }
}

const referencesOf = (named: readonly Named[]) =>
  named.flatMap(({ version, ...rest }) => (version === undefined ? [] : [{ ...rest, version }]));

function knownVersion(
  client: RegistryClient,
  subject: string,
  proposed: Schema,
  named: readonly Named[],
): Promise<number | undefined> {
  return orUndefined(client.find(subject, proposed.format, proposed.source, referencesOf(named)));
}

/** Asks the registry for its verdict. An Avro reference that the registry does not hold is inlined
 *  into the schema; other formats cannot inline one. */
async function askRegistry(
  client: RegistryClient,
  subject: string,
  proposed: Schema,
  named: readonly Named[],
): Promise<RegistryAnswer> {
  const missing = named.filter(({ version }) => version === undefined);
  let text = proposed.source;
  let references = referencesOf(named);
  if (missing.length > 0) {
    const names = missing.map(({ name }) => name).join(', ');
    if (proposed.format !== 'AVRO')
      return {
        asked: false,
        why: `it does not hold ${names}, which the schema refers to; register that first`,
      };
    text = resolvedAvroText(text, proposed.references);
    references = [];
  }
  try {
    const { compatible, messages } = await client.judge(subject, proposed.format, text, references);
    return { asked: true, compatible, messages };
  } catch (thrown) {
    const code = findMillraceError(thrown)?.code;
    // Some registries answer this for a subject that does not exist yet.
    if (code === 'subject_not_found' || code === 'version_not_found')
      return { asked: false, why: `it has no subject ${subject} yet` };
    // Some registries support only the check against a single version.
    if (code !== 'registry_protocol') throw thrown;
    const one = await client.judge(subject, proposed.format, text, references, 'latest');
    return { asked: true, compatible: one.compatible, messages: one.messages };
  }
}

/** Configuration of the subject. Empty if the registry has none and reports no default. */
async function configOf(client: RegistryClient, subject: string): Promise<Readonly<Record<string, unknown>>> {
  try {
    return await client.config(subject);
  } catch (thrown) {
    const code = findMillraceError(thrown)?.code ?? '';
    if (code === 'subject_level_not_set' || code === 'subject_not_found') return {};
    throw thrown;
  }
}
