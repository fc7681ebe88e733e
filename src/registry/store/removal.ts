/** Deletion of versions and subjects: soft, so that ids keep working, and for good. */
import { invariant } from '../../core/errors.ts';
import { registryError } from '../errors.ts';
import type { StoredVersion } from './service.ts';
import type { State, VersionEntry } from './state/model.ts';
import { parseVersion, subjectNotFound, versionNotFound } from './state/names.ts';
import { checkWritable, removeSettings } from './state/settings.ts';
import type { Draft } from './writer.ts';

/** Versions that refer to a version, soft-deleted ones included. */
export function referrersOf(state: State, subject: string, version: number): readonly StoredVersion[] {
  return state
    .referrers(subject, version)
    .flatMap((use) => state.version(use.subject, use.version)?.stored ?? []);
}

/** @throws reference_exists */
function checkUnreferenced(state: State, subject: string, version: number): void {
  if (referrersOf(state, subject, version).every(({ deleted }) => deleted)) return;
  throw registryError(
    'reference_exists',
    `One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=${subject},version=${version}}.`,
    { next: 'delete the schemas that refer to it first' },
  );
}

function removeForGood(draft: Draft, subject: string, versions: readonly VersionEntry[]): void {
  draft.putTombstones(subject, versions);
  for (const { stored } of versions)
    draft.put({ kind: 'schema', subject, version: stored.version, value: null });
  const left = draft.state.versions(subject);
  invariant(
    versions.every(({ stored }) => left.every((one) => one.stored.version !== stored.version)),
    'a version that was deleted for good is gone',
  );
  if (left.length === 0) removeSettings(draft, subject, { mode: true });
}

function softDelete(draft: Draft, { stored, extra }: VersionEntry): void {
  const { subject, version, id, content, ts } = stored;
  const { format, text, references, metadata, ruleSet } = content;
  const value = {
    id,
    format,
    text,
    references,
    ...(metadata === undefined ? {} : { metadata }),
    ...(ruleSet === undefined ? {} : { ruleSet }),
    deleted: true,
    ...(extra === undefined ? {} : { extra }),
  };
  // Keeps the registration time, also when log compaction leaves only this record.
  draft.put({ kind: 'schema', subject, version, value }, ts === 0 ? undefined : ts);
}

export function deleteVersion(draft: Draft, subject: string, wanted: string, permanent: boolean): number {
  const { state } = draft;
  const number = parseVersion(wanted);
  const versions = state.versions(subject);
  if (versions.length === 0 || (!permanent && state.latest(subject) === undefined && number === 'latest'))
    throw subjectNotFound(subject);
  const entry =
    number === 'latest' ? (state.latest(subject) ?? versions.at(-1)) : state.version(subject, number);
  if (entry === undefined) throw versionNotFound(wanted);
  const { version, deleted } = entry.stored;
  if (!permanent && deleted) {
    throw registryError(
      'version_soft_deleted',
      // The existing registries omit the blank too; clients match the whole message.
      `Subject '${subject}' Version ${version} was soft deleted.Set permanent=true to delete permanently`,
    );
  }
  checkWritable(state, subject);
  checkUnreferenced(state, subject, version);
  if (permanent && !deleted) {
    throw registryError(
      'version_not_soft_deleted',
      `Subject '${subject}' Version ${version} was not deleted first before being permanently deleted`,
    );
  }
  if (permanent) removeForGood(draft, subject, [entry]);
  else {
    softDelete(draft, entry);
    if (draft.state.latest(subject) === undefined) removeSettings(draft, subject, { mode: true });
  }
  return version;
}

export function deleteSubject(draft: Draft, subject: string, permanent: boolean): readonly number[] {
  const { state } = draft;
  const all = state.versions(subject);
  if (all.length === 0) throw subjectNotFound(subject);
  const live = state.live(subject);
  if (!permanent && live.length === 0) {
    throw registryError(
      'subject_soft_deleted',
      `Subject '${subject}' was soft deleted.Set permanent=true to delete permanently`,
    );
  }
  checkWritable(state, subject);
  const meant = permanent ? all : live;
  for (const { stored } of meant) checkUnreferenced(state, subject, stored.version);
  if (permanent && live.length > 0) {
    throw registryError(
      'subject_not_soft_deleted',
      `Subject '${subject}' was not deleted first before being permanently deleted`,
    );
  }
  const numbers = meant.map(({ stored }) => stored.version);
  if (permanent) removeForGood(draft, subject, all);
  else {
    draft.put({ kind: 'deleteSubject', subject, value: numbers.at(-1) as number });
    removeSettings(draft, subject, { mode: true });
  }
  return numbers;
}
