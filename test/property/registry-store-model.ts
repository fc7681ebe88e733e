/** Model of a registry's answers, written only from the contract: lists and maps, no records, no
 *  drafts.
 *
 *  Rules: ids count per context from 1 and are never reused; equal content has one id in a context;
 *  content that a subject already has is answered before any check; versions continue after soft
 *  deletes and start again after a permanent delete; content that is registered again replaces its
 *  soft-deleted version; the settings of a subject are deleted with its last version; the plain
 *  levels compare with the newest version, the transitive levels with all. */

export interface ModelVersion {
  readonly version: number;
  readonly id: number;
  readonly text: string;
  readonly deleted: boolean;
}

export type Answer = { readonly value: unknown } | { readonly refused: string };

const refused = (code: string): Answer => ({ refused: code });

const contextOf = (subject: string): string => /^:(\.[^:]*):/.exec(subject)?.[1] ?? '.';

export class Model {
  readonly subjects = new Map<string, ModelVersion[]>();
  readonly levels = new Map<string, string>();
  readonly modes = new Map<string, string>();
  readonly maxIds = new Map<string, number>();
  level = 'BACKWARD';
  private readonly areCompatible: (a: string, b: string) => boolean;

  constructor(areCompatible: (a: string, b: string) => boolean) {
    this.areCompatible = areCompatible;
  }

  all(subject: string): readonly ModelVersion[] {
    return this.subjects.get(subject) ?? [];
  }
  live(subject: string): readonly ModelVersion[] {
    return this.all(subject).filter(({ deleted }) => !deleted);
  }

  register(subject: string, text: string): Answer {
    const there = this.live(subject).findLast((one) => one.text === text);
    if (there !== undefined) return { value: { id: there.id, version: there.version, created: false } };
    if (this.modes.get(subject) === 'READONLY') return refused('not_permitted');
    const level = this.levels.get(subject) ?? this.level;
    const against = level.endsWith('TRANSITIVE') ? this.live(subject) : this.live(subject).slice(-1);
    if (level !== 'NONE' && against.some((one) => !this.areCompatible(text, one.text)))
      return refused('incompatible');
    const context = contextOf(subject);
    const known = [...this.subjects].flatMap(([name, versions]) =>
      contextOf(name) === context ? versions.filter((one) => one.text === text) : [],
    );
    const next = (this.maxIds.get(context) ?? 0) + 1;
    const id = known[0]?.id ?? next;
    this.maxIds.set(context, Math.max(id, next - 1));
    const version = Math.max(0, ...this.all(subject).map((one) => one.version)) + 1;
    const kept = this.all(subject).filter((one) => !(one.deleted && one.id === id));
    this.subjects.set(subject, [...kept, { version, id, text, deleted: false }]);
    return { value: { id, version, created: true } };
  }

  deleteVersion(subject: string, version: number, permanent: boolean): Answer {
    if (this.all(subject).length === 0) return refused('subject_not_found');
    const found = this.all(subject).find((one) => one.version === version);
    if (found === undefined) return refused('version_not_found');
    if (found.deleted && !permanent) return refused('version_soft_deleted');
    if (this.modes.get(subject) === 'READONLY') return refused('not_permitted');
    if (!found.deleted && permanent) return refused('version_not_soft_deleted');
    const others = this.all(subject).filter((one) => one !== found);
    this.put(subject, permanent ? others : [...others, { ...found, deleted: true }], permanent);
    return { value: version };
  }

  deleteSubject(subject: string, permanent: boolean): Answer {
    if (this.all(subject).length === 0) return refused('subject_not_found');
    if (this.live(subject).length === 0 && !permanent) return refused('subject_soft_deleted');
    if (this.modes.get(subject) === 'READONLY') return refused('not_permitted');
    if (this.live(subject).length > 0 && permanent) return refused('subject_not_soft_deleted');
    const meant = (permanent ? this.all(subject) : this.live(subject)).map(({ version }) => version);
    this.put(
      subject,
      permanent ? [] : this.all(subject).map((one) => ({ ...one, deleted: true })),
      permanent,
    );
    return { value: meant };
  }

  private put(subject: string, versions: readonly ModelVersion[], permanent: boolean): void {
    if (versions.length === 0) this.subjects.delete(subject);
    else
      this.subjects.set(
        subject,
        [...versions].sort((a, b) => a.version - b.version),
      );
    // Settings are dropped with the last soft deletion, and again with the last permanent deletion.
    if (this.live(subject).length > 0 || (permanent && versions.length > 0)) return;
    this.levels.delete(subject);
    this.modes.delete(subject);
  }

  setLevel(subject: string, level: string): Answer {
    if (this.modes.get(subject) === 'READONLY') return refused('not_permitted');
    this.levels.set(subject, level);
    return { value: level };
  }

  setMode(subject: string, mode: string): Answer {
    this.modes.set(subject, mode);
    return { value: mode };
  }

  /** Returns all observable state as one document. */
  shown(): unknown {
    return [...this.subjects]
      .flatMap(([subject, versions]) => versions.map((one) => ({ subject, ...one })))
      .sort((a, b) => (a.subject < b.subject ? -1 : a.subject > b.subject ? 1 : a.version - b.version));
  }
}
