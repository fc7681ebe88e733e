/** State of the registry, built from records alone.
 *
 *  Invariants:
 *  1. Applying is total: any records in any order leave a state that can be served.
 *  2. Applying a record twice has the effect of applying it once.
 *  3. A text is held once, however many subjects and contexts use it; no parsed tree is held.
 *  4. A returned object never changes: a change makes new objects.
 *  5. An id that was seen in a context counts for its next id, also after the schema is removed.
 */

import type { Json, SchemaContent } from '../../../formats/content.ts';
import type { SchemaFormat } from '../../../formats/format.ts';
import { guidOf } from '../../../formats/guid.ts';
import type { VerdictPolicy } from '../../compatibility/modes.ts';
import type { LogRecord } from '../log.ts';
import type { RegistryCounts, RegistryMode, StoredSchema, StoredVersion, SubjectConfig } from '../service.ts';
import { contextOf, DEFAULT_CONTEXT, isWithin, qualifyWith } from './names.ts';
import {
  type BurnedVersion,
  encodeKey,
  encodeRecord,
  type Policy,
  type SchemaFields,
  type StoreRecord,
} from './records.ts';
import { BaseTable, ForkTable, hasSameText, Packer, type Table } from './table.ts';

/** One content, shared by every context that has it. */
export interface Text {
  /** Equal exactly where the contents are equal, unlike the guid; see `textKeyOf`. */
  readonly key: string;
  readonly guid: string;
  readonly content: SchemaContent;
}

interface TextEntry {
  readonly text: Text;
  readonly ids: ReadonlyArray<{ readonly context: string; readonly id: number }>;
}

export interface VersionEntry {
  readonly stored: StoredVersion;
  readonly text: Text;
  readonly extra: Readonly<Record<string, Json>> | undefined;
}

interface IdEntry {
  readonly schema: StoredSchema;
  readonly text: Text;
  readonly uses: readonly VersionUse[];
}

export interface VersionUse {
  readonly subject: string;
  readonly version: number;
}

/** Version that was deleted for good, with its packed text; see `BurnedVersion`. */
export interface BurnedEntry extends Pick<BurnedVersion, 'version' | 'last'> {
  readonly seq: number;
  readonly text: Text;
}

const NONE: readonly never[] = [];

/** Canonical form of a value, independent of the order of properties. */
function sorted(value: Json | undefined): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value ?? null;
  const object = value as Readonly<Record<string, Json>>;
  return Object.keys(object)
    .sort()
    .map((key) => [key, sorted(object[key])]);
}

/** Canonical text of everything of a content but its format and text; empty for a plain content. */
export const side = ({ references, metadata, ruleSet }: SchemaContent): string =>
  references.length === 0 && metadata === undefined && ruleSet === undefined
    ? ''
    : JSON.stringify([
        references.map(({ name, subject, version }) => [name, subject, version]),
        sorted(metadata),
        sorted(ruleSet),
      ]);

/** True when two contents are equal in everything that counts for identity. */
export function isSameContent(a: SchemaContent, b: SchemaContent): boolean {
  return a.format === b.format && hasSameText(a, b) && side(a) === side(b);
}

/** Key of a content: its format, which the guid does not hash, and its guid, with a number where
 *  these do not distinguish it from another content.
 */
export const textKeyOf = (format: string, guid: string, n = 0): string =>
  `${format} ${guid}${n === 0 ? '' : `/${n}`}`;
const idKey = (context: string, id: number): string => `${context}:${id}`;
/** A version contains no colon, so the first colon ends it. */
const versionKey = (subject: string, version: number): string => `${version}:${subject}`;

interface Tables {
  /** Versions of a subject, ascending; a subject without versions has no entry. */
  readonly subjects: Table<string, readonly VersionEntry[]>;
  readonly ids: Table<string, IdEntry>;
  /** Contents by guid: one, unless formats share a text or two texts share an MD5. */
  readonly texts: Table<string, readonly TextEntry[]>;
  /** Versions that refer to a version, by `versionKey`. */
  readonly referrers: Table<string, readonly VersionUse[]>;
  /** Settings by scope; null is the global scope. */
  readonly configs: Table<string | null, SubjectConfig>;
  readonly modes: Table<string | null, RegistryMode>;
  readonly policies: Table<string | null, Policy>;
  /** Verdict policy of the log's origin, under null; at most one entry. */
  readonly origins: Table<null, VerdictPolicy>;
  readonly contexts: Table<string, true>;
  readonly maxIds: Table<string, number>;
  readonly burned: Table<string, readonly BurnedEntry[]>;
  /** Other spellings of a key, by the exact spelling; a removal must remove them too. */
  readonly aliases: Table<string, readonly string[]>;
}

const TABLE_NAMES = [
  'subjects',
  'ids',
  'texts',
  'referrers',
  'configs',
  'modes',
  'policies',
  'origins',
  'contexts',
  'maxIds',
  'burned',
  'aliases',
] as const satisfies readonly (keyof Tables)[];

export class State {
  private readonly tables: Tables;
  private readonly parent: State | undefined;
  private readonly packer: Packer;
  private readonly forks: readonly ForkTable<unknown, unknown>[] | undefined;

  /** Counter that changes whenever a subject appears or disappears. */
  shape = 0;
  /** True when another registry left marks in the log, or may have written all of it. */
  foreign = false;

  constructor(parent?: State) {
    const made = TABLE_NAMES.map((name) =>
      parent === undefined ? new BaseTable() : new ForkTable(parent.tables[name] as Table<unknown, unknown>),
    );
    this.tables = Object.fromEntries(TABLE_NAMES.map((name, i) => [name, made[i]])) as unknown as Tables;
    this.parent = parent;
    this.packer = parent?.packer ?? new Packer();
    this.shape = parent?.shape ?? 0;
    this.foreign = parent?.foreign ?? false;
    this.forks = parent === undefined ? undefined : (made as ForkTable<unknown, unknown>[]);
  }

  /** Copy-on-write copy. While it lives, this state must not change. */
  fork(): State {
    return new State(this);
  }

  /** Applies the changes of a fork to its parent. */
  merge(): void {
    for (const table of this.forks ?? []) table.merge();
    if (this.parent !== undefined) this.parent.shape = this.shape;
  }

  // Queries.

  subjectNames(): string[] {
    return [...this.tables.subjects.entries()].map(([subject]) => subject);
  }
  /** Versions, ascending, soft-deleted ones included. */
  versions(subject: string): readonly VersionEntry[] {
    return this.tables.subjects.get(subject) ?? NONE;
  }
  live(subject: string): readonly VersionEntry[] {
    return this.versions(subject).filter(({ stored }) => !stored.deleted);
  }
  latest(subject: string): VersionEntry | undefined {
    return this.versions(subject).findLast(({ stored }) => !stored.deleted);
  }
  version(subject: string, version: number): VersionEntry | undefined {
    const versions = this.versions(subject);
    // Versions are dense except for removed ones, so the first guess is nearly always right.
    const guess = versions[version - (versions[0]?.stored.version ?? 1)];
    if (guess?.stored.version === version) return guess;
    return versions.find(({ stored }) => stored.version === version);
  }
  schema(context: string, id: number): StoredSchema | undefined {
    return this.tables.ids.get(idKey(context, id))?.schema;
  }
  textOfId(context: string, id: number): Text | undefined {
    return this.tables.ids.get(idKey(context, id))?.text;
  }
  /** Versions that use an id, soft-deleted ones included. */
  uses(context: string, id: number): readonly VersionUse[] {
    return this.tables.ids.get(idKey(context, id))?.uses ?? NONE;
  }
  /** Least id of a content in a context. */
  idOf(context: string, content: SchemaContent): number | undefined {
    return this.entryOf(content)?.ids.find((one) => one.context === context)?.id;
  }
  /** Index of the newest version with this content, -1 without one. Looks the content up once and
   *  compares keys: comparing contents would make a registration as slow as its subject is long.
   */
  newestWith(content: SchemaContent, versions: readonly { readonly text: Text }[]): number {
    const key = this.entryOf(content)?.text.key;
    return key === undefined ? -1 : versions.findLastIndex(({ text }) => text.key === key);
  }
  private entryOf(content: SchemaContent, guid = guidOf(content)): TextEntry | undefined {
    return this.tables.texts.get(guid)?.find(({ text }) => isSameContent(text.content, content));
  }
  /** Ids of the contents with this guid: of one content, unless the guid does not distinguish two.
   */
  byGuid(guid: string): ReadonlyArray<{ readonly context: string; readonly id: number }> {
    return (this.tables.texts.get(guid) ?? NONE).flatMap(({ ids }) => ids);
  }
  referrers(subject: string, version: number): readonly VersionUse[] {
    return this.tables.referrers.get(versionKey(subject, version)) ?? NONE;
  }
  config(scope: string | null): SubjectConfig | undefined {
    return this.tables.configs.get(scope);
  }
  mode(scope: string | null): RegistryMode | undefined {
    return this.tables.modes.get(scope);
  }
  modeScopes(): Array<string | null> {
    return [...this.tables.modes.entries()].map(([scope]) => scope);
  }
  policy(scope: string | null): Policy | undefined {
    return this.tables.policies.get(scope);
  }
  /** Verdict policy that the log's origin record names. */
  origin(): VerdictPolicy | undefined {
    return this.tables.origins.get(null);
  }
  hasContext(context: string): boolean {
    return context === DEFAULT_CONTEXT || this.tables.contexts.has(context);
  }
  /** Contexts, sorted, the default context first. */
  contexts(): readonly string[] {
    const known = new Set([...this.tables.contexts.entries()].map(([context]) => context));
    for (const [subject] of this.tables.subjects.entries())
      if (subject.startsWith(':.')) known.add(contextOf(subject));
    known.delete(DEFAULT_CONTEXT);
    return [DEFAULT_CONTEXT, ...[...known].sort()];
  }
  maxId(context: string): number {
    return this.tables.maxIds.get(context) ?? 0;
  }
  /** Tombstones of a subject, sorted by `seq`. */
  burned(subject: string): readonly BurnedEntry[] {
    return this.tables.burned.get(subject) ?? NONE;
  }
  /** Tombstones of a subject with this content; they share one text. */
  burnedWith(subject: string, content: SchemaContent, guid = guidOf(content)): readonly BurnedEntry[] {
    const entries = this.burned(subject);
    const first = entries.find(({ text }) => text.guid === guid && isSameContent(text.content, content));
    return first === undefined ? NONE : entries.filter(({ text }) => text === first.text);
  }
  /** Other spellings of this record's key that the log may hold. */
  aliases(record: StoreRecord): readonly string[] {
    return this.tables.aliases.get(encodeKey(record).toString('utf8')) ?? NONE;
  }
  /** Records for the facts that the state knows from records that a log may drop; see
   *  `LogSink.summary`.
   */
  summary(): readonly LogRecord[] {
    const records = [...this.tables.maxIds.entries()].map(([context, value]) =>
      encodeRecord({ kind: 'maxId', context, value }),
    );
    if (this.foreign && this.origin() === undefined)
      records.push(encodeRecord({ kind: 'origin', value: 'STRICT' }));
    return records;
  }
  counts(): RegistryCounts {
    let subjects = 0;
    let versions = 0;
    let deletedVersions = 0;
    let schemas = 0;
    for (const [, entries] of this.tables.subjects.entries()) {
      const deleted = entries.reduce((sum, { stored }) => sum + (stored.deleted ? 1 : 0), 0);
      deletedVersions += deleted;
      versions += entries.length - deleted;
      if (deleted < entries.length) subjects++;
    }
    for (const _ of this.tables.ids.entries()) schemas++;
    return { contexts: this.contexts().length, subjects, versions, schemas, deletedVersions };
  }

  // Changes.

  /** Applies a record.
   *  @param ts write time of the record, 0 where unknown
   *  @param keyText the key in the log, where it is not the exact spelling
   */
  apply(record: StoreRecord, ts: number, keyText?: string): void {
    if (keyText !== undefined) this.noteAlias(record, keyText);
    switch (record.kind) {
      case 'noop':
        break;
      case 'schema':
        if (record.value === null) this.removeVersion(record.subject, record.version);
        else this.putVersion(record.subject, record.version, record.value, ts);
        break;
      case 'config':
        put(this.tables.configs, record.subject, record.value);
        break;
      case 'mode':
        put(this.tables.modes, record.subject, record.value);
        break;
      case 'policy':
        put(this.tables.policies, record.subject, record.value);
        break;
      case 'origin':
        put(this.tables.origins, null, record.value);
        break;
      case 'context':
        put(this.tables.contexts, record.context, record.value);
        break;
      case 'maxId':
        if (record.value !== null) this.seeId(record.context, record.value);
        break;
      case 'burned':
        this.putBurned(record.subject, record.seq, record.value);
        break;
      case 'deleteSubject':
        if (record.value !== null) this.deleteUpTo(record.subject, record.value);
        break;
      case 'clearSubject':
        if (record.value !== null) this.clear(record.subject);
        break;
    }
  }

  private putBurned(subject: string, seq: number, value: BurnedVersion | null): void {
    const others = this.burned(subject).filter((one) => one.seq !== seq);
    const entries =
      value === null
        ? others
        : [...others, this.burnedEntry(subject, seq, value)].sort((a, b) => a.seq - b.seq);
    put(this.tables.burned, subject, entries.length === 0 ? null : entries);
  }

  /** Shares the text of another tombstone or of a version with the same content. */
  private burnedEntry(subject: string, seq: number, value: BurnedVersion): BurnedEntry {
    const { version, format, text: plain, references, last } = value;
    const content: SchemaContent = { format: format as SchemaFormat, text: plain, references };
    const guid = guidOf(content);
    const held = this.burnedWith(subject, content, guid)[0]?.text ?? this.entryOf(content, guid)?.text;
    const text = held ?? { key: this.freeKey(format, guid), guid, content: this.packer.pack(content) };
    return { seq, version, last, text };
  }

  private noteAlias(record: StoreRecord, keyText: string): void {
    const exact = encodeKey(record).toString('utf8');
    const known = this.tables.aliases.get(exact) ?? NONE;
    if (!known.includes(keyText)) this.tables.aliases.set(exact, [...known, keyText]);
  }

  private seeId(context: string, id: number): void {
    if (id > this.maxId(context)) this.tables.maxIds.set(context, id);
  }

  private deleteUpTo(subject: string, version: number): void {
    const versions = this.versions(subject);
    if (!versions.some(({ stored }) => stored.version <= version && !stored.deleted)) return;
    this.tables.subjects.set(
      subject,
      versions.map((entry) =>
        entry.stored.version > version || entry.stored.deleted
          ? entry
          : { ...entry, stored: { ...entry.stored, deleted: true } },
      ),
    );
  }

  private clear(scope: string | null): void {
    for (const [subject, entries] of [...this.tables.subjects.entries()]) {
      if (!isWithin(subject, scope)) continue;
      for (const { stored } of entries) if (stored.deleted) this.removeVersion(subject, stored.version);
    }
  }

  /** Key for a content that is not held. */
  private freeKey(format: string, guid: string): string {
    // A set: anyone who may register can give many contents one guid.
    const held = new Set((this.tables.texts.get(guid) ?? NONE).map(({ text }) => text.key));
    for (let n = 0; ; n++) {
      const key = textKeyOf(format, guid, n);
      if (!held.has(key)) return key;
    }
  }

  private putVersion(subject: string, version: number, value: SchemaFields, ts: number): void {
    const context = contextOf(subject);
    const content: SchemaContent = {
      // Any format is stored and served; a parser refuses an unknown one.
      format: value.format as SchemaFormat,
      text: value.text,
      references: value.references,
      ...(value.metadata === undefined ? {} : { metadata: value.metadata }),
      ...(value.ruleSet === undefined ? {} : { ruleSet: value.ruleSet }),
    };
    const guid = guidOf(content);
    const held = this.entryOf(content, guid)?.text;
    const key = held?.key ?? this.freeKey(content.format, guid);
    const known = this.version(subject, version);
    const same = known !== undefined && known.text.key === key && known.stored.id === value.id;
    if (same) {
      this.replace({
        stored: { ...known.stored, deleted: value.deleted },
        text: known.text,
        extra: value.extra,
      });
      return;
    }
    if (known !== undefined) this.removeVersion(subject, version);
    const text = held ?? { key, guid, content: this.packer.pack(content) };
    this.link(context, value.id, text, { subject, version });
    const stored: StoredVersion = {
      id: value.id,
      context,
      guid,
      content: text.content,
      subject,
      version,
      deleted: value.deleted,
      ts,
    };
    const versions = this.versions(subject);
    if (versions.length === 0) this.shape++;
    const entry: VersionEntry = { stored, text, extra: value.extra };
    const after = versions.findIndex((one) => one.stored.version > version);
    this.tables.subjects.set(
      subject,
      after < 0 ? [...versions, entry] : [...versions.slice(0, after), entry, ...versions.slice(after)],
    );
    for (const reference of content.references) {
      const at = versionKey(qualifyWith(subject, reference.subject), reference.version);
      const others = this.tables.referrers.get(at) ?? NONE;
      if (!others.some((one) => one.subject === subject && one.version === version))
        this.tables.referrers.set(at, [...others, { subject, version }]);
    }
  }

  private link(context: string, id: number, text: Text, use: VersionUse): void {
    this.seeId(context, id);
    const at = idKey(context, id);
    const entry = this.tables.ids.get(at);
    if (entry !== undefined && entry.text.key === text.key) {
      this.tables.ids.set(at, { ...entry, uses: [...entry.uses, use] });
      return;
    }
    // An id with two contents is damage from another registry: the later content is served, both
    // versions stay.
    if (entry !== undefined) this.unlinkText(entry.text, context, id);
    const schema: StoredSchema = { id, context, guid: text.guid, content: text.content };
    this.tables.ids.set(at, { schema, text, uses: [...(entry?.uses ?? NONE), use] });
    const entries = this.tables.texts.get(text.guid) ?? NONE;
    const held = entries.find((one) => one.text.key === text.key);
    const ids = [...(held?.ids ?? NONE), { context, id }].sort((a, b) => a.id - b.id);
    this.tables.texts.set(text.guid, [...entries.filter((one) => one !== held), { text, ids }]);
  }

  private unlinkText(text: Text, context: string, id: number): void {
    const entries = (this.tables.texts.get(text.guid) ?? NONE).flatMap((entry): TextEntry[] => {
      if (entry.text.key !== text.key) return [entry];
      const ids = entry.ids.filter((one) => one.context !== context || one.id !== id);
      return ids.length === 0 ? [] : [{ ...entry, ids }];
    });
    put(this.tables.texts, text.guid, entries.length === 0 ? null : entries);
  }

  private replace(entry: VersionEntry): void {
    const { subject, version } = entry.stored;
    this.tables.subjects.set(
      subject,
      this.versions(subject).map((one) => (one.stored.version === version ? entry : one)),
    );
  }

  private removeVersion(subject: string, version: number): void {
    const known = this.version(subject, version);
    if (known === undefined) return;
    const left = this.versions(subject).filter((one) => one.stored.version !== version);
    if (left.length === 0) this.shape++;
    put(this.tables.subjects, subject, left.length === 0 ? null : left);
    const others = (list: readonly VersionUse[]): readonly VersionUse[] =>
      list.filter((one) => one.subject !== subject || one.version !== version);
    for (const reference of known.stored.content.references) {
      const at = versionKey(qualifyWith(subject, reference.subject), reference.version);
      const rest = others(this.tables.referrers.get(at) ?? NONE);
      put(this.tables.referrers, at, rest.length === 0 ? null : rest);
    }
    const { context, id } = known.stored;
    const at = idKey(context, id);
    const entry = this.tables.ids.get(at);
    if (entry === undefined) return;
    const uses = others(entry.uses);
    if (uses.length > 0) this.tables.ids.set(at, { ...entry, uses });
    else {
      this.tables.ids.delete(at);
      this.unlinkText(entry.text, context, id);
    }
  }
}

function put<K, V>(table: Table<K, V>, key: K, value: V | null): void {
  if (value === null) table.delete(key);
  else table.set(key, value);
}
