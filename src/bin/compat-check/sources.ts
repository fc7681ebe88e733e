/** Loads the earlier schemas from a registry, files, a folder or a git revision. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { coreError, findMillraceError } from '../../core/errors.ts';
import type { ResolvedReference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { parseSchema } from '../../formats/schema.ts';
import type { Earlier } from '../../registry/check/report.ts';
import type { RegistryClient } from '../../serde/client.ts';
import { formatByName, readSchemaFile, referenceOf, type SchemaFile } from './files.ts';
import { fileAt, gitPlaceOf, gitVersions, versionNames } from './git.ts';

/** Number of requests in flight. */
const REQUESTS_MAX = 8;
/** Number of versions fetched for one subject. */
const VERSIONS_MAX = 10_000;

export interface Gathered {
  /** Oldest first. */
  readonly earlier: readonly Earlier[];
  readonly against: string;
  readonly notes: readonly string[];
}

export interface NamedFile {
  readonly name: string;
  readonly path: string;
}

/** Reads references in order; each may refer to those before it. @throws bad_file,
 *  gate_unparsable */
export function readReferences(
  files: readonly NamedFile[],
  format: SchemaFormat,
  read: (path: string) => SchemaFile = (path) => readSchemaFile(path, 'reference'),
): readonly ResolvedReference[] {
  const all: ResolvedReference[] = [];
  for (const { name, path } of files) all.push(referenceOf(name, read(path), format, all));
  return all;
}

function parsed(
  format: SchemaFormat,
  file: SchemaFile,
  references: readonly ResolvedReference[],
): Earlier['schema'] {
  try {
    // A folder may hold earlier versions in another format.
    const own = formatByName(file.name) ?? format;
    return parseSchema(own, file.text, { references: own === format ? references : [], lenient: true });
  } catch (thrown) {
    const known = findMillraceError(thrown);
    if (known === undefined) throw thrown;
    return { unreadable: known.message };
  }
}

/** @throws bad_file, bad_value, unreachable */
export async function gatherFiles(
  against: string,
  format: SchemaFormat,
  references: readonly NamedFile[],
  signal: AbortSignal,
): Promise<Gathered> {
  if (against.startsWith('git:')) {
    const { versions, notes } = await gitVersions(gitPlaceOf(against), signal);
    const earlier: Earlier[] = [];
    for (const [index, file] of versions.entries()) {
      // Read the references as they were at that revision.
      const then = new Map<string, string>();
      for (const { path } of references) {
        const text = await fileAt({ revision: file.revision, path }, signal);
        if (text !== undefined) then.set(path, text);
      }
      const read = (path: string): SchemaFile => {
        const text = then.get(path);
        return text === undefined ? readSchemaFile(path, 'reference') : { name: path, text };
      };
      const schema = parsed(format, file, readReferences(references, format, read));
      earlier.push({ version: index + 1, name: file.name, live: file.live, schema });
    }
    return { earlier, against, notes };
  }
  const paths = pathsOf(against);
  const resolved = readReferences(references, format);
  const earlier = paths.map((path, index) => ({
    version: index + 1,
    name: path,
    live: true,
    schema: parsed(format, readSchemaFile(path, 'against'), resolved),
  }));
  return { earlier, against, notes: [] };
}

/** @throws bad_file */
function pathsOf(against: string): readonly string[] {
  try {
    if (!statSync(against).isDirectory()) return [against];
    return versionNames(readdirSync(against), against).map((name) => join(against, name));
  } catch (thrown) {
    if (findMillraceError(thrown) !== undefined) throw thrown;
    const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw coreError('bad_file', `-against=${against} cannot be read (${code})`, {
      next: 'give a schema file, a folder of them, or git:REV:PATH',
      cause: thrown,
    });
  }
}

/** Version that a registry holds. */
export interface RegisteredVersion extends Earlier {
  readonly metadata?: unknown;
}

/** Versions of a subject: the requested live versions, or with `ever` all versions including
 *  deleted ones.
 *  @throws registry_unavailable, registry_protocol */
export async function gatherSubject(
  client: RegistryClient,
  subject: string,
  wanted: { readonly all: boolean; readonly ever: boolean },
): Promise<{
  readonly earlier: readonly RegisteredVersion[];
  readonly live: number;
  readonly known: boolean;
}> {
  const live = await orNone(client.versions(subject, false));
  const every = await orNone(client.versions(subject, true));
  const known = live !== undefined;
  const alive = new Set(live ?? []);
  const numbers = wanted.ever
    ? [...new Set([...(every ?? []), ...alive])].sort((a, b) => a - b)
    : wanted.all
      ? [...alive]
      : [...alive].slice(-1);
  if (numbers.length > VERSIONS_MAX)
    throw coreError('bad_value', `subject ${subject} has more than ${VERSIONS_MAX} versions`, {
      next: 'remove -all-versions',
    });
  const earlier: RegisteredVersion[] = [];
  for (let at = 0; at < numbers.length; at += REQUESTS_MAX) {
    const some = numbers.slice(at, at + REQUESTS_MAX);
    earlier.push(
      ...(await Promise.all(some.map((version) => versionOf(client, subject, version, alive.has(version))))),
    );
  }
  return { earlier, live: alive.size, known };
}

async function orNone<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (thrown) {
    if (findMillraceError(thrown)?.code === 'subject_not_found') return undefined;
    throw thrown;
  }
}

async function versionOf(
  client: RegistryClient,
  subject: string,
  version: number,
  live: boolean,
): Promise<RegisteredVersion> {
  const name = live ? `version ${version}` : `deleted version ${version}`;
  try {
    const { schema, metadata } = await client.version(subject, String(version), !live);
    return { version, name, live, schema, metadata };
  } catch (thrown) {
    const known = findMillraceError(thrown);
    if (known?.code !== 'incompatible_schema') throw thrown;
    return { version, name, live, schema: { unreadable: known.message } };
  }
}
