/** The registry: decides, logs, applies, answers, in that order.
 *
 *  Invariants: (1) one write is decided at a time, on a state that holds all acknowledged ones; (2) an event is
 *  applied after it is durable, so no reader sees what a crash could take back; (3) a text the subject already has is
 *  answered with its id before any check.
 */
import type { Logger } from '../../core/log.ts';
import { type Finding, findingLine, isCompatible } from '../compatibility/finding.ts';
import {
  type Comparison,
  compareHistory,
  compareWith,
  type EarlierVersion,
  isLevel,
  judge,
  type Level,
  type Verdict,
  verdictOf,
} from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { isSchemaFormat } from '../schemas/format.ts';
import { parseSchema, type Schema } from '../schemas/schema.ts';
import type { RegistryEvent } from './event.ts';
import { VERSION_MAX } from './event.ts';
import type { RegistryLog } from './log.ts';
import { RegistryState, type StoredSchema, type StoredVersion } from './state.ts';

const SUBJECT_CHARS_MAX = 1024;
const RESERVED_SUBJECTS = ['__GLOBAL', '__EMPTY'];
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what is refused
const CONTROL = /[\u0000-\u001f\u007f]/;

export interface Registered {
  readonly id: number;
  readonly version: number;
  /** False: the subject had this text already. */
  readonly created: boolean;
  /** What is allowed and still worth saying. */
  readonly comparisons: readonly Comparison[];
}

/** One line for each thing that stands against a schema. */
export function verdictLines(verdict: Verdict): string[] {
  return verdict.comparisons.flatMap((comparison) =>
    comparison.findings
      .filter((finding) => !isCompatible([finding]))
      .map((finding: Finding) =>
        comparison.version === undefined
          ? `in any mode: ${findingLine(finding)}`
          : `${comparison.direction} against version ${comparison.version}: ${findingLine(finding)}`,
      ),
  );
}

export class Registry {
  private readonly log: RegistryLog;
  private readonly logger: Logger;
  private readonly state = new RegistryState();
  private writes: Promise<unknown> = Promise.resolve();

  private constructor(log: RegistryLog, logger: Logger) {
    this.log = log;
    this.logger = logger;
  }

  /** Replays the log. @throws store_corrupt, store_locked, not_writable */
  static async open(log: RegistryLog, logger: Logger): Promise<Registry> {
    const registry = new Registry(log, logger);
    const { events, tornBytes } = await log.open();
    if (tornBytes > 0)
      logger.warn(
        { store: log.name, tornBytes },
        'cut off an unfinished write, which nobody was told had succeeded',
      );
    for (const event of events) registry.state.apply(event);
    logger.info(
      { store: log.name, events: events.length, ...registry.state.counts() },
      'registry store open',
    );
    return registry;
  }

  close(): Promise<void> {
    return this.exclusively(() => this.log.close());
  }

  counts(): ReturnType<RegistryState['counts']> {
    return this.state.counts();
  }

  /** @throws invalid_subject, invalid_schema, schema_too_large, incompatible, store_failed */
  async register(subject: string, format: string, text: string): Promise<Registered> {
    checkSubject(subject);
    const schema = parse(format, text);
    return this.exclusively(async () => {
      const known = this.find(subject, schema);
      if (known !== undefined)
        return { id: known.id, version: known.version, created: false, comparisons: [] };
      const versions = this.state.versions(subject);
      const level = this.state.levelOf(subject);
      const verdict = judge(schema, level, versions);
      if (!verdict.compatible) {
        const lines = verdictLines(verdict);
        throw registryError(
          'incompatible',
          `schema for subject "${subject}" is incompatible (level ${level}): ${lines.join('; ')}`,
          {
            next: 'change the schema, or the level of the subject',
            details: { subject, level, lines },
          },
        );
      }
      const id = this.state.idOf(schema.identity) ?? this.state.nextId();
      const version = (versions.at(-1)?.version ?? 0) + 1;
      await this.write({ kind: 'schema', subject, version, id, format: schema.format, text: schema.text });
      this.logger.info({ subject, version, id, format: schema.format }, 'schema registered');
      return { id, version, created: true, comparisons: verdict.comparisons };
    });
  }

  /** The version of this subject with this content. @throws subject_not_found, schema_not_found, invalid_schema */
  lookup(subject: string, format: string, text: string): StoredVersion {
    this.versionsOf(subject);
    const found = this.find(subject, parse(format, text));
    if (found === undefined) throw registryError('schema_not_found', 'Schema not found');
    return found;
  }

  /** Judges a text against one version in the subject's level, and against the number history. `latest` of an
   *  unknown subject has nothing to be compared with. @throws version_not_found, invalid_schema, invalid_version */
  compatibility(
    subject: string,
    wanted: string,
    format: string,
    text: string,
  ): Verdict & { readonly compared: readonly number[] } {
    const versions = this.state.versions(subject);
    const number = parseVersion(wanted);
    const schema = parse(format, text);
    if (number === 'latest' && versions.length === 0) return { ...verdictOf([]), compared: [] };
    const against =
      number === 'latest'
        ? (versions.at(-1) as StoredVersion)
        : versions.find((one) => one.version === number);
    if (against === undefined) throw registryError('version_not_found', `Version ${wanted} not found.`);
    if (this.find(subject, schema)?.version === against.version)
      return { ...verdictOf([]), compared: [against.version] };
    const comparisons = [
      ...compareWith(schema, this.state.levelOf(subject), [against]),
      ...compareHistory(schema, this.history(subject, schema)),
    ];
    return { ...verdictOf(comparisons), compared: [against.version] };
  }

  /** Judges as a registration would, without one. @throws invalid_schema */
  compatibilityAsRegistered(subject: string, format: string, text: string): Verdict {
    const schema = parse(format, text);
    if (this.find(subject, schema) !== undefined) return verdictOf([]);
    return judge(schema, this.state.levelOf(subject), this.state.versions(subject));
  }

  /** A text the subject has already reuses nothing: its own numbers are no history. */
  private history(subject: string, schema: Schema): readonly EarlierVersion[] {
    return this.find(subject, schema) === undefined ? this.state.versions(subject) : [];
  }

  subjects(): readonly string[] {
    return this.state.subjects();
  }

  /** @throws subject_not_found */
  versionsOf(subject: string): readonly StoredVersion[] {
    const versions = this.state.versions(subject);
    if (versions.length === 0) throw registryError('subject_not_found', `Subject '${subject}' not found.`);
    return versions;
  }

  /** `wanted` is a number, `latest` or `-1`. @throws subject_not_found, version_not_found, invalid_version */
  version(subject: string, wanted: string): StoredVersion {
    const number = parseVersion(wanted);
    const versions = this.versionsOf(subject);
    const found = number === 'latest' ? versions.at(-1) : versions.find((one) => one.version === number);
    if (found === undefined) throw registryError('version_not_found', `Version ${wanted} not found.`);
    return found;
  }

  /** @throws schema_not_found */
  schema(id: number): StoredSchema {
    const found = this.state.schema(id);
    if (found === undefined) throw registryError('schema_not_found', `Schema ${id} not found`);
    return found;
  }

  /** Null: the global level. */
  level(subject: string | null, defaultToGlobal: boolean): Level {
    if (subject === null) return this.state.globalLevel();
    const own = this.state.ownLevel(subject);
    if (own !== undefined) return own;
    if (!defaultToGlobal) {
      throw registryError(
        'subject_level_not_set',
        `Subject '${subject}' does not have subject-level compatibility configured`,
      );
    }
    return this.state.globalLevel();
  }

  /** @throws invalid_level, invalid_subject, store_failed */
  async setLevel(subject: string | null, level: unknown): Promise<Level> {
    if (subject !== null) checkSubject(subject);
    if (!isLevel(level)) {
      throw registryError(
        'invalid_level',
        'Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive',
      );
    }
    return this.exclusively(async () => {
      const present = subject === null ? this.state.globalLevel() : this.state.ownLevel(subject);
      if (present !== level) await this.write({ kind: 'level', subject, level });
      return level;
    });
  }

  private find(subject: string, schema: Schema): StoredVersion | undefined {
    return this.state.versions(subject).findLast((one) => one.schema.identity === schema.identity);
  }

  private async write(event: RegistryEvent): Promise<void> {
    await this.log.append(event);
    this.state.apply(event);
  }

  private exclusively<T>(work: () => Promise<T>): Promise<T> {
    const result = this.writes.then(work);
    this.writes = result.catch(() => {});
    return result;
  }
}

function checkSubject(subject: string): void {
  if (
    subject === '' ||
    subject.length > SUBJECT_CHARS_MAX ||
    CONTROL.test(subject) ||
    RESERVED_SUBJECTS.includes(subject)
  ) {
    throw registryError('invalid_subject', `The specified subject '${subject.slice(0, 64)}' is not valid.`, {
      next: `use 1 to ${SUBJECT_CHARS_MAX} characters without control characters`,
    });
  }
}

function parse(format: string, text: string): Schema {
  if (!isSchemaFormat(format)) {
    throw registryError(
      'invalid_schema',
      `Invalid schema type ${format}; this registry takes AVRO and PROTOBUF`,
    );
  }
  if (text.trim() === '') throw registryError('invalid_schema', 'Empty schema');
  return parseSchema(format, text);
}

/** @throws invalid_version */
function parseVersion(wanted: string): number | 'latest' {
  if (wanted === 'latest' || wanted === '-1') return 'latest';
  const number = /^\d{1,10}$/.test(wanted) ? Number(wanted) : 0;
  if (number < 1 || number > VERSION_MAX) {
    throw registryError(
      'invalid_version',
      `The specified version '${wanted}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "latest"`,
    );
  }
  return number;
}
