/** What the registry knows: schemas by id, versions by subject, levels. Changed by events only. */
import { invariant } from '../../core/errors.ts';
import type { Level } from '../compatibility/modes.ts';
import { parseSchema, type Schema } from '../schemas/schema.ts';
import type { RegistryEvent, SchemaRegistered } from './event.ts';

export interface StoredVersion {
  readonly subject: string;
  readonly version: number;
  readonly id: number;
  readonly schema: Schema;
}

export interface StoredSchema {
  readonly id: number;
  readonly schema: Schema;
  /** Subjects and versions that use it, in the order they were registered. */
  readonly uses: ReadonlyArray<{ readonly subject: string; readonly version: number }>;
}

interface MutableSchema {
  id: number;
  schema: Schema;
  uses: Array<{ subject: string; version: number }>;
}

const DEFAULT_LEVEL: Level = 'BACKWARD';

export class RegistryState {
  private readonly byId = new Map<number, MutableSchema>();
  private readonly idByIdentity = new Map<string, number>();
  private readonly versionsBySubject = new Map<string, StoredVersion[]>();
  private readonly levels = new Map<string, Level>();
  private level: Level = DEFAULT_LEVEL;
  private lastId = 0;

  apply(event: RegistryEvent): void {
    if (event.kind === 'level') {
      if (event.subject === null) this.level = event.level;
      else this.levels.set(event.subject, event.level);
      return;
    }
    this.addVersion(event);
  }

  private addVersion(event: SchemaRegistered): void {
    const versions = this.versionsBySubject.get(event.subject) ?? [];
    invariant(
      event.version === (versions.at(-1)?.version ?? 0) + 1,
      `version ${event.version} of ${event.subject} follows its predecessor`,
    );
    const known = this.byId.get(event.id);
    const schema = known?.schema ?? parseSchema(event.format, event.text);
    const entry = known ?? { id: event.id, schema, uses: [] };
    entry.uses.push({ subject: event.subject, version: event.version });
    this.byId.set(event.id, entry);
    this.idByIdentity.set(schema.identity, event.id);
    this.lastId = Math.max(this.lastId, event.id);
    versions.push({ subject: event.subject, version: event.version, id: event.id, schema });
    this.versionsBySubject.set(event.subject, versions);
  }

  subjects(): string[] {
    return [...this.versionsBySubject.keys()].sort();
  }
  /** Oldest first; empty for an unknown subject. */
  versions(subject: string): readonly StoredVersion[] {
    return this.versionsBySubject.get(subject) ?? [];
  }
  schema(id: number): StoredSchema | undefined {
    return this.byId.get(id);
  }
  idOf(identity: string): number | undefined {
    return this.idByIdentity.get(identity);
  }
  nextId(): number {
    return this.lastId + 1;
  }
  globalLevel(): Level {
    return this.level;
  }
  ownLevel(subject: string): Level | undefined {
    return this.levels.get(subject);
  }
  levelOf(subject: string): Level {
    return this.levels.get(subject) ?? this.level;
  }
  counts(): { readonly subjects: number; readonly versions: number; readonly schemas: number } {
    let versions = 0;
    for (const list of this.versionsBySubject.values()) versions += list.length;
    return { subjects: this.versionsBySubject.size, versions, schemas: this.byId.size };
  }
}
