/** Input of a topic: decides what the flags leave open by the first records, then decodes with the
 *  decoder of the format.
 *
 *  Invariants: (1) a definition is decided once and never changes afterwards; (2) no event is
 *  decoded before the definition is complete, so the caller can make it durable first. */
import type { Kernels } from '../../../addon/surface.ts';
import type { Clock } from '../../../core/clock.ts';
import type { ColumnKernels } from '../../../core/columns/kernel.ts';
import { findMillraceError, type MillraceError } from '../../../core/errors.ts';
import type { JsonKernels } from '../../../core/json/finder.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { Schema } from '../../../formats/schema.ts';
import { isRegistryAway, type RegistryClient } from '../../../serde/client.ts';
import { engineError } from '../../errors.ts';
import type { KeyDictionary } from '../../keys/dictionary.ts';
import type { KeyKind } from '../../keys/type.ts';
import { JsonListDecoder } from '../list/json-decoder.ts';
import type { FieldPath } from '../list/path.ts';
import type { ListRows } from '../list/rows.ts';
import { avroKeys, avroKind, avroTimestamps } from './avro.ts';
import { binary256Decoder } from './binary256.ts';
import {
  checkDefinition,
  fieldsOf,
  fixedFields,
  hasGivenKey,
  type InputDefinition,
  type InputFormat,
  keySpec,
  keyText,
  keyTypeOf,
  listIn,
  neededPaths,
} from './definition.ts';
import { JsonDecoder } from './json.ts';
import { JUDGED_RECORDS, judgedForm } from './judge.ts';
import { judgedKinds } from './key/json.ts';
import { keyFormOf } from './key/records.ts';
import type { WriterPlan } from './plan.ts';
import type { EventDecoder, ListDecoder, ListInput } from './port.ts';
import { hasPaths, protobufKind, protobufTimestamps } from './protobuf.ts';
import { type Candidate, candidatesOf, schemaIdOf, schemaIds } from './registered/candidates.ts';
import { RegisteredDecoder } from './registered/decoder.ts';
import { RegisteredListDecoder } from './registered/lists.ts';
import type { RegisteredParts } from './registered/writers.ts';
import { EventWords } from './words.ts';

const RETRY_MS_FIRST = 100;
const RETRY_MS_MAX = 5_000;

export interface TopicInputParts {
  /** Definition that the flags give. */
  readonly asked: InputDefinition;
  readonly kernels: Pick<Kernels, 'decodeEvents' | 'scanFrames'>;
  readonly columns: ColumnKernels;
  readonly json: JsonKernels;
  /** Undefined: no registry is given. */
  readonly client: Pick<RegistryClient, 'schemasById' | 'countHits'> | undefined;
  /** Latest schema of the topic's subject; undefined: there is none. */
  readonly reader: Schema | undefined;
  /** Interns keys that are no integers; absent: their ids stay 0. */
  readonly keys?: Pick<KeyDictionary, 'open' | 'intern'>;
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  /** Aborted when the run is to end. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  /** Called when the first records have decided the definition. */
  readonly onDecided?: (definition: InputDefinition) => void;
}

type Registered = Extract<InputFormat, 'avro' | 'protobuf'>;

export class TopicInput implements ListInput {
  definition: InputDefinition;
  /** Path of the list whose elements are the events; undefined: records are, and `split` is not
   *  called. */
  readonly list: FieldPath | undefined;
  isReady = true;
  private readonly parts: TopicInputParts;
  private decoder: EventDecoder | undefined;
  /** The decoder of a job with a list. */
  private lists: ListDecoder | undefined;
  /** Set if the keys are no integers. */
  private keys: TopicInputParts['keys'];
  /** True until the first plan of a new job is made: a field type that cannot be read is then a
   *  mistake in the flags. */
  private isNew = true;
  private waitedMs = 0;
  /** Indexes of the filter's fields that no schema has had yet. */
  private unseen: ReadonlySet<number> | undefined;
  /** True: a sample decided nothing, so records are invalid until the next one. */
  private isRefusing = false;
  /** EVENT_STATUS.* of records that decided nothing although their schema is known, by its id. */
  private refusals: ReadonlyMap<number, number> = new Map();

  /** @throws bad_setting */
  constructor(parts: TopicInputParts) {
    this.parts = parts;
    const { asked, client } = parts;
    checkDefinition(asked);
    this.list = listIn(asked);
    const { format } = asked;
    // Only the first records complete a definition, so a checkpoint before them decides nothing.
    this.definition = format === 'binary256' ? asked : { ...asked, format: 'undecided' };
    if ((format === 'avro' || format === 'protobuf') && client === undefined) throw noRegistry(format);
    if (format === 'binary256') this.decoder = binary256Decoder(parts.kernels);
  }

  get isDecided(): boolean {
    return this.decoder !== undefined;
  }

  /** False: the flags say all that records could decide. */
  get needsRecords(): boolean {
    const { asked } = this.parts;
    if (asked.format === 'undecided' || !hasGivenKey(asked)) return true;
    return asked.format !== 'json' && asked.time === undefined;
  }

  resume(saved: InputDefinition): void {
    if (saved.format === 'undecided') return;
    this.isNew = false;
    this.adopt(saved);
  }

  decode(records: RecordBatch, into: EventBatch): void | Promise<void> {
    if (this.decoder === undefined) {
      const judging = this.isRefusing ? false : this.judge(records);
      return judging instanceof Promise
        ? judging.then((isDecided) => this.begin(isDecided, records, into))
        : this.begin(judging, records, into);
    }
    const { keys } = this;
    const loading = this.decoder.decode(records, into);
    if (keys === undefined) return loading;
    const intern = (): void | Promise<void> => keys.intern(into, EventWords.of(into).keys);
    return loading === undefined ? intern() : loading.then(intern);
  }

  split(
    records: RecordBatch,
    from: number,
    into: ListRows,
  ): number | undefined | Promise<number | undefined> {
    if (this.lists !== undefined) return this.lists.split(records, from, into);
    const judging = this.isRefusing ? false : this.judge(records);
    return judging instanceof Promise
      ? judging.then((isDecided) => this.splitFirst(isDecided, records, from, into))
      : this.splitFirst(judging, records, from, into);
  }

  /** Decides the definition by a sample of the first records. Without a call of this method, the
   *  first batch that is decoded decides. False: the sample decides nothing, and the records that
   *  are decoded until the next call are invalid; undefined: the run is to end while a schema is
   *  loaded. @param isEarly true: the sample is small because no more records arrived in time */
  async decide(sample: RecordBatch, isEarly = false): Promise<boolean | undefined> {
    if (this.isDecided) return true;
    const isDecided = sample.rowCount > 0 && (await this.judge(sample, isEarly));
    if (isDecided === undefined) return undefined;
    this.isRefusing = !isDecided;
    if (isDecided) await this.keys?.open();
    return isDecided;
  }

  describe(records: RecordBatch, row: number): string | undefined {
    return this.decoder?.describe(records, row);
  }

  takeWaitedMs(): number {
    const ms = this.waitedMs;
    this.waitedMs = 0;
    return ms;
  }

  private adopt(definition: InputDefinition): void {
    const { format } = definition;
    this.definition = definition;
    this.keys = keyTypeOf(definition) === undefined ? undefined : this.parts.keys;
    if (format === 'binary256') this.decoder = binary256Decoder(this.parts.kernels);
    else if (format === 'json') this.decoder = this.ofJson(definition);
    else if (format !== 'undecided') this.decoder = this.ofRegistered(this.registered(format, definition));
  }

  private ofJson(definition: InputDefinition): EventDecoder {
    const { json } = this.parts;
    const fields = fieldsOf(definition);
    if (this.list === undefined) return new JsonDecoder(fields, (paths) => json.openFinder(paths));
    this.lists = new JsonListDecoder(json, fields, this.list);
    return this.lists;
  }

  private ofRegistered(parts: RegisteredParts): EventDecoder {
    if (this.list === undefined) return new RegisteredDecoder(parts);
    this.lists = new RegisteredListDecoder(parts, this.list);
    return this.lists;
  }

  private registered(format: Registered, definition: InputDefinition): RegisteredParts {
    const { kernels, columns, client, reader } = this.parts;
    if (client === undefined) throw noRegistry(format);
    return {
      ...{ kernels, columns, format, reader },
      fields: fieldsOf(definition),
      schemas: (records) => this.patiently(() => client.schemasById(records)),
      countHits: (count) => client.countHits(count),
      refusesTypes: () => this.isNew,
      onPlan: (plan) => this.note(plan, definition),
    };
  }

  /** Repeats a request while the registry is away. Undefined: the run is to end. */
  private async patiently<T>(request: () => Promise<T>): Promise<T | undefined> {
    const { clock, sleep, log, signal } = this.parts;
    const startMs = clock.monotonicMs();
    try {
      for (let waitMs = RETRY_MS_FIRST; ; waitMs = Math.min(waitMs * 2, RETRY_MS_MAX)) {
        try {
          const answer = await request();
          this.isReady = true;
          return answer;
        } catch (thrown) {
          if (!isRegistryAway(thrown)) throw thrown;
          this.isReady = false;
          log.warn(
            { error: findMillraceError(thrown)?.toLine(), retryMs: waitMs },
            'registry unavailable: reading waits',
          );
        }
        await sleep(waitMs);
        if (signal.aborted) return undefined;
      }
    } finally {
      this.waitedMs += clock.monotonicMs() - startMs;
    }
  }

  /** Warns of a field of the filter that no schema has: it is probably misspelt. */
  private note(plan: WriterPlan, definition: InputDefinition): void {
    this.isNew = false;
    const absent = plan.absent.filter((index) => this.unseen?.has(index) ?? true);
    const changed = this.unseen === undefined || absent.length < this.unseen.size;
    this.unseen = new Set(absent);
    if (!changed || absent.length === 0) return;
    const { where } = fieldsOf(definition);
    const fields = absent.map((index) => where?.fields[index]?.text);
    this.parts.log.warn({ fields }, 'no schema so far has these fields of -where');
  }

  /** Decides the definition by the first records. False: they decide nothing; undefined: the run is
   *  to end while a schema is loaded. */
  private judge(records: RecordBatch, isEarly = false): boolean | Promise<boolean | undefined> {
    const { asked, client, json } = this.parts;
    const judged = { records: Math.min(records.rowCount, JUDGED_RECORDS), isEarly };
    const form =
      asked.format === 'undecided' ? judgedForm(json, records, client !== undefined) : asked.format;
    switch (form) {
      case undefined:
        return false;
      case 'binary256': {
        const { key, time, value, where, dedup } = asked;
        const aggregate = asked.aggregate ?? asked.aggregates;
        for (const [name, given] of Object.entries({ key, time, value, where, dedup, aggregate }))
          if (given !== undefined) throw fixedFields(name as 'key');
        this.finish({ format: 'binary256' }, { ...judged, messages: [] });
        return true;
      }
      case 'json':
        this.finish(this.completed(asked, 'json', records), { ...judged, messages: [] });
        return true;
      default:
        return this.judgeRegistered(records, form, judged);
    }
  }

  /** Decides by the writer that most of the first records have. Of Protobuf it is the message of
   *  most records among those that have the fields which the flags name. */
  private async judgeRegistered(
    records: RecordBatch,
    form: 'framed' | Registered,
    judged: Pick<Judged, 'records' | 'isEarly'>,
  ): Promise<boolean | undefined> {
    const { client, asked, reader } = this.parts;
    if (client === undefined) throw noRegistry(form);
    const found = await this.patiently(() => client.schemasById(schemaIds(records, judged.records)));
    if (found === undefined) return undefined;
    const wanted = form === 'framed' ? undefined : form.toUpperCase();
    const known = candidatesOf(records, judged.records, found);
    const first = known.find(({ schema }) => wanted === undefined || schema.format === wanted);
    // Nothing can be judged by these records; the next ones may have a schema.
    if (first === undefined) {
      this.refusals = refusalsOf(found, wanted);
      return false;
    }
    const own = known.filter(({ schema }) => schema.format === first.schema.format);
    const paths = neededPaths(asked);
    const protobuf = reader?.format === 'PROTOBUF' ? reader : undefined;
    const read = own.find(({ message }) => message !== undefined && hasPaths(paths, protobuf, message));
    const { schema, message } = read ?? first;
    const format = schema.format.toLowerCase() as InputFormat;
    const all = [message, ...own.map((one) => one.message)].filter((one) => one !== undefined);
    const messages = all.flatMap((one) => [one, protobuf?.tree.byName.get(one.name) ?? one]);
    const kinds = withKinds(asked, schema, reader, messages);
    const time = asked.time ?? (format === 'json' ? undefined : inferredTime(schema, message));
    this.finish(
      this.completed({ ...kinds, ...(time === undefined ? {} : { time }) }, format, records, schema),
      { ...judged, messages: own, message },
    );
    return true;
  }

  /** Decodes the records by which the definition was judged. */
  private begin(
    isDecided: boolean | undefined,
    records: RecordBatch,
    into: EventBatch,
  ): void | Promise<void> {
    if (isDecided === undefined) return undefined;
    if (!isDecided) return refuseAll(records, into, this.refusals);
    const { keys } = this;
    return keys === undefined
      ? this.decode(records, into)
      : keys.open().then(() => this.decode(records, into));
  }

  /** Splits the records by which the definition was judged; a record that decides nothing has one
   *  row. */
  private splitFirst(
    isDecided: boolean | undefined,
    records: RecordBatch,
    from: number,
    into: ListRows,
  ): number | undefined | Promise<number | undefined> {
    if (isDecided === undefined) return undefined;
    const { lists, keys } = this;
    if (lists !== undefined && keys === undefined) return lists.split(records, from, into);
    if (lists !== undefined) return keys?.open().then(() => lists.split(records, from, into));
    into.clear();
    let row = from;
    while (row < records.rowCount && into.add(records, row, 0, EVENT_STATUS.OK)) row++;
    return row;
  }

  /** Completes a definition with the key and the time of the record. @throws bad_setting */
  private completed(
    known: InputDefinition,
    format: InputFormat,
    records: RecordBatch,
    schema?: Schema,
  ): InputDefinition {
    const { time = '@timestamp' } = known;
    const spec = keySpec(known.key ?? '@key');
    const rows = Math.min(records.rowCount, JUDGED_RECORDS);
    if (spec.from === 'fields') {
      const fields =
        format === 'json' ? judgedKinds(this.parts.json, records, rows, spec.fields, this.list) : spec.fields;
      return { ...known, format, key: keyText({ from: 'fields', fields }), time };
    }
    if (spec.form !== undefined) return { ...known, format, key: keyText(spec), time };
    const form = keyFormOf(records, rows);
    if (form === undefined) throw unreadableKeys(schema);
    return { ...known, format, key: keyText({ from: 'record', form }), time };
  }

  private finish(decided: InputDefinition, judged: Judged): void {
    const { asked, log } = this.parts;
    const inferred = (['format', 'key', 'time'] as const).filter(
      (name) =>
        decided[name] !== undefined &&
        (name === 'format' ? asked.format === 'undecided' : asked[name] === undefined),
    );
    const definition = { ...decided, ...(inferred.length === 0 ? {} : { inferred }) };
    this.adopt(definition);
    const { records, isEarly, message } = judged;
    const value = decided.value ?? 'none: events are counted, and their value is 0';
    const about = { ...decided, value, inferred, records, ...(message && { message: message.name }) };
    log.info(about, inferred.length === 0 ? 'input' : 'input inferred from the first records');
    const counts = messageCounts(judged.messages);
    if (counts.size > 1 && this.needsRecords)
      log.warn(
        { records, messages: Object.fromEntries(counts), decidedBy: message?.name },
        'the first records have several messages: one of them decided what was not given',
      );
    if (isEarly && this.needsRecords)
      log.warn(
        { records, next: 'give -format, -key and -time if later records differ' },
        'the input was decided by few records, because no more arrived in time',
      );
    this.parts.onDecided?.(definition);
  }
}

/** Records that decided a definition. */
interface Judged {
  readonly records: number;
  readonly isEarly: boolean;
  /** Writers of these records, most records first. */
  readonly messages: readonly Candidate[];
  /** Protobuf message that decided. */
  readonly message?: ProtoMessage | undefined;
}

/** Number of first records of each Protobuf message, by its name: versions of a schema have the
 *  same message. */
function messageCounts(candidates: readonly Candidate[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { message, records } of candidates)
    if (message !== undefined) counts.set(message.name, (counts.get(message.name) ?? 0) + records);
  return counts;
}

/** Statuses of records whose schemas are known, and that have no message of them.
 *  @param wanted format of the job; undefined: any */
function refusalsOf(
  found: ReadonlyMap<number, Schema | MillraceError>,
  wanted: string | undefined,
): ReadonlyMap<number, number> {
  const statuses = new Map<number, number>();
  for (const [id, schema] of found) {
    if (schema instanceof Error) continue;
    const isWanted = wanted === undefined || schema.format === wanted;
    statuses.set(id, isWanted ? EVENT_STATUS.BAD_MESSAGE_INDEX : EVENT_STATUS.INCOMPATIBLE_SCHEMA);
  }
  return statuses;
}

/** Makes all records invalid.
 *  @param refusals statuses of records whose schemas are known, by their ids */
function refuseAll(records: RecordBatch, into: EventBatch, refusals: ReadonlyMap<number, number>): void {
  const words = EventWords.of(into);
  words.reset(records.rowCount);
  for (let row = 0; row < records.rowCount; row++) {
    const value = records.value(row);
    const id = schemaIdOf(value);
    words.status[row] =
      value === null
        ? EVENT_STATUS.NULL
        : id === undefined
          ? EVENT_STATUS.BAD_MAGIC
          : (refusals.get(id) ?? EVENT_STATUS.UNKNOWN_SCHEMA_ID);
  }
}

/** The kinds of the key's fields are those of their types, unless the flag states them.
 *  @param reader schema of the subject: it may have fields that the first writer's schema lacks
 *  @param messages of a Protobuf schema: the first that has a field gives its kind */
export function withKinds(
  asked: InputDefinition,
  schema: Schema,
  reader: Schema | undefined,
  messages: readonly ProtoMessage[],
): InputDefinition {
  const spec = keySpec(asked.key ?? '@key');
  if (spec.from === 'record') return asked;
  const kindOf = (path: readonly string[]): KeyKind | undefined => {
    if (schema.format === 'PROTOBUF') return protobufKind(messages, path);
    if (schema.format !== 'AVRO') return undefined;
    return avroKind(reader?.format === 'AVRO' ? [schema.tree, reader.tree] : [schema.tree], path);
  };
  const fields = spec.fields.map(({ path, kind }) => ({ path, kind: kind ?? kindOf(path) }));
  return { ...asked, key: keyText({ from: 'fields', fields }) };
}

/** The only timestamp field of a schema; undefined if it has none or several.
 *  @param message of a Protobuf schema */
export function inferredTime(schema: Schema, message: ProtoMessage | undefined): string | undefined {
  const found =
    schema.format === 'AVRO'
      ? avroTimestamps(schema.tree)
      : message === undefined
        ? []
        : protobufTimestamps(message);
  return found.length === 1 ? found[0]?.join('.') : undefined;
}

const noRegistry = (form: string): MillraceError =>
  engineError('bad_setting', `records that are ${form} need the registry of their schemas`, {
    next: 'give -registry=http://host:port',
  });

function unreadableKeys(schema: Schema | undefined): MillraceError {
  const fields = schema?.format === 'AVRO' ? avroKeys(schema.tree) : [];
  const hint = fields.length === 0 ? 'such as -key=account_id' : `one of ${fields.join(', ')}`;
  return engineError(
    'bad_setting',
    'the keys of the first records are neither integers nor texts, so the key of the events must be named',
    {
      next: `give -key=FIELD, ${hint}, or -key=@key:bytes`,
    },
  );
}
