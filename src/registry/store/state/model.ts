/** What the registry knows, built from records alone.
 *
 *  Invariants: (1) applying is total: any record in any order leaves a state that can be served; (2) applying a record
 *  twice is applying it once; (3) a text is held once, however many subjects and contexts use it, and no tree is held;
 *  (4) what was handed out never changes: a change makes other objects; (5) an id once seen in a context counts for
 *  its next id, also after its schema is gone.
 */

import type { Json, SchemaContent } from '../../../formats/content.ts';
import type { SchemaFormat } from '../../../formats/format.ts';
import { guidOf } from '../../../formats/guid.ts';
import type { VerdictPolicy } from '../../compatibility/modes.ts';
import type { LogRecord } from '../log.ts';
import type { RegistryCounts, RegistryMode, StoredSchema, StoredVersion, SubjectConfig } from '../service.ts';
import { contextOf, DEFAULT_CONTEXT, isWithin, qualifyWith } from './names.ts';
import { hasSameText, Packer } from './packed.ts';
import {
  type BurnedVersion,
  encodeKey,
  encodeRecord,
  type Policy,
  type SchemaFields,
  type StoreRecord,
} from './records.ts';
import { BaseTable, ForkTable, type Table } from './table.ts';

/** One content, in every context that has it. */
export interface Text {
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
  readonly uses: readonly SubjectVersion[];
}

export interface SubjectVersion {
  readonly subject: string;
  readonly version: number;
}

export interface BurnedEntry extends BurnedVersion {
  readonly seq: number;
}

const NONE: readonly never[] = [];

/** Equal whatever the order of the properties. */
function sorted(value: Json | undefined): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value ?? null;
  const object = value as Readonly<Record<string, Json>>;
  return Object.keys(object)
    .sort()
    .map((key) => [key, sorted(object[key])]);
}

const side = ({ references, metadata, ruleSet }: SchemaContent): string =>
  references.length === 0 && metadata === undefined && ruleSet === undefined
    ? ''
    : JSON.stringify([
        references.map(({ name, subject, version }) => [name, subject, version]),
        sorted(metadata),
        sorted(ruleSet),
      ]);

/** Equal in all that counts for identity. */
export function isSameContent(a: SchemaContent, b: SchemaContent): boolean {
  return a.format === b.format && hasSameText(a, b) && side(a) === side(b);
}

/** The guid, with a number behind it for a content that the guid does not tell from another one. */
const textKeyOf = (guid: string, n: number): string => (n === 0 ? guid : `${guid}/${n}`);
const idKey = (context: string, id: number): string => `${context}:${id}`;
/** A version contains no colon, so the first one ends it. */
const versionKey = (subject: string, version: number): string => `${version}:${subject}`;

interface Tables {
  /** By version, ascending; a subject without versions has no entry. */
  readonly subjects: Table<string, readonly VersionEntry[]>;
  readonly ids: Table<string, IdEntry>;
  readonly texts: Table<string, TextEntry>;
  /** The versions that refer to one. */
  readonly referrers: Table<string, readonly SubjectVersion[]>;
  /** Null is global in the four that follow. */
  readonly configs: Table<string | null, SubjectConfig>;
  readonly modes: Table<string | null, RegistryMode>;
  readonly policies: Table<string | null, Policy>;
  /** One at most, under null. */
  readonly origins: Table<null, VerdictPolicy>;
  readonly contexts: Table<string, true>;
  readonly maxIds: Table<string, number>;
  readonly burned: Table<string, readonly BurnedEntry[]>;
  /** Keys that mean the same as the exact one and have other bytes: a removal must remove them too. */
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

  /** Changes whenever a subject appears or goes. */
  shape = 0;
  /** Whether another registry has left its marks in the log, or may have written all of it. */
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

  /** A copy that costs nothing until it changes; while it lives, this one must not. */
  fork(): State {
    return new State(this);
  }

  /** Gives the changes of a fork to what it was made from. */
  merge(): void {
    for (const table of this.forks ?? []) table.merge();
    if (this.parent !== undefined) this.parent.shape = this.shape;
  }

  // Reading.

  subjectNames(): string[] {
    return [...this.tables.subjects.entries()].map(([subject]) => subject);
  }
  /** Ascending, deleted ones too. */
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
    // Versions are dense but for deleted ones, so this is nearly always the first guess.
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
  /** Versions that use an id, deleted ones too. */
  uses(context: string, id: number): readonly SubjectVersion[] {
    return this.tables.ids.get(idKey(context, id))?.uses ?? NONE;
  }
  /** The least id of a content in a context. */
  idOf(context: string, content: SchemaContent): number | undefined {
    return this.entryOf(content)?.ids.find((one) => one.context === context)?.id;
  }
  /** Index of the newest of the versions with this content, -1 without one. The content is looked up once: comparing
   *  it with every version would make each registration as long as its subject. */
  newestWith(content: SchemaContent, versions: readonly { readonly text: Text }[]): number {
    const key = this.entryOf(content)?.text.key;
    return key === undefined ? -1 : versions.findLastIndex(({ text }) => text.key === key);
  }
  private entryOf(content: SchemaContent): TextEntry | undefined {
    return this.tables.texts.get(this.textKey(content, guidOf(content)));
  }
  /** Contents that share a guid: one, unless two differ in what the guid does not tell apart. */
  byGuid(guid: string): ReadonlyArray<{ readonly context: string; readonly id: number }> {
    const found: { context: string; id: number }[] = [];
    for (let n = 0; ; n++) {
      const entry = this.tables.texts.get(textKeyOf(guid, n));
      if (entry === undefined) return found;
      found.push(...entry.ids);
    }
  }
  referrers(subject: string, version: number): readonly SubjectVersion[] {
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
  /** What the log says it began with. */
  origin(): VerdictPolicy | undefined {
    return this.tables.origins.get(null);
  }
  hasContext(context: string): boolean {
    return context === DEFAULT_CONTEXT || this.tables.contexts.has(context);
  }
  /** Sorted, the default one first. */
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
  /** By seq. */
  burned(subject: string): readonly BurnedEntry[] {
    return this.tables.burned.get(subject) ?? NONE;
  }
  /** Other bytes under which the log may hold what this record's key means. */
  aliases(record: StoreRecord): readonly string[] {
    return this.tables.aliases.get(encodeKey(record).toString('utf8')) ?? NONE;
  }
  /** Records for what the state knows from records that a log may forget. */
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

  // Applying.

  /** @param ts when the record was written, 0 where that is not known
   *  @param keyText the key as it stands in the log where it is not the exact one */
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
    const entries = value === null ? others : [...others, { seq, ...value }].sort((a, b) => a.seq - b.seq);
    put(this.tables.burned, subject, entries.length === 0 ? null : entries);
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

  /** Where a content is, or would be, held. */
  private textKey(content: SchemaContent, guid: string): string {
    for (let n = 0; ; n++) {
      const key = textKeyOf(guid, n);
      const known = this.tables.texts.get(key);
      if (known === undefined || isSameContent(known.text.content, content)) return key;
    }
  }

  private putVersion(subject: string, version: number, value: SchemaFields, ts: number): void {
    const context = contextOf(subject);
    const content: SchemaContent = {
      // Kept and served whatever it says; a parser refuses a format it does not know.
      format: value.format as SchemaFormat,
      text: value.text,
      references: value.references,
      ...(value.metadata === undefined ? {} : { metadata: value.metadata }),
      ...(value.ruleSet === undefined ? {} : { ruleSet: value.ruleSet }),
    };
    const guid = guidOf(content);
    const key = this.textKey(content, guid);
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
    const text = this.tables.texts.get(key)?.text ?? { key, guid, content: this.packer.pack(content) };
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

  private link(context: string, id: number, text: Text, use: SubjectVersion): void {
    this.seeId(context, id);
    const at = idKey(context, id);
    const entry = this.tables.ids.get(at);
    if (entry !== undefined && entry.text.key === text.key) {
      this.tables.ids.set(at, { ...entry, uses: [...entry.uses, use] });
      return;
    }
    // An id with two contents is damage that another registry left: the later one is served, both versions stay.
    if (entry !== undefined) this.unlinkText(entry.text, context, id);
    const schema: StoredSchema = { id, context, guid: text.guid, content: text.content };
    this.tables.ids.set(at, { schema, text, uses: [...(entry?.uses ?? NONE), use] });
    const ids = this.tables.texts.get(text.key)?.ids ?? NONE;
    const all = [...ids, { context, id }].sort((a, b) => a.id - b.id);
    this.tables.texts.set(text.key, { text, ids: all });
  }

  private unlinkText(text: Text, context: string, id: number): void {
    const ids = (this.tables.texts.get(text.key)?.ids ?? NONE).filter(
      (one) => one.context !== context || one.id !== id,
    );
    put(this.tables.texts, text.key, ids.length === 0 ? null : { text, ids });
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
    const others = (list: readonly SubjectVersion[]): readonly SubjectVersion[] =>
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
