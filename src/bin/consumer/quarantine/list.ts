/** `millrace consumer -quarantine`: lists and counts quarantined records. */
import { EXIT } from '../../../core/errors.ts';
import {
  type ListedRecord,
  type QuarantineGroup,
  QuarantineList,
} from '../../../registry/quarantine/list.ts';
import { RecordIds, RedriveProgress } from '../../../registry/quarantine/progress.ts';
import { Scan } from '../../../registry/quarantine/scan.ts';
import { registryClient } from '../../registry-clients/shared.ts';
import { readerOf, recordDecoding } from '../decoding.ts';
import type { ConsumerContext } from '../settings.ts';
import { filterOf, openQuarantine, type QuarantineTopics, topicsOf } from './open.ts';

export async function listQuarantine(context: ConsumerContext): Promise<number> {
  const { settings, log, drain } = context;
  const topics = topicsOf(settings);
  const filter = filterOf(settings);
  const client = registryClient(context);
  const reader = await readerOf(context, client);
  const opened = await openQuarantine(context, topics);
  const { decoder } = await recordDecoding(context, client, reader, {
    keyForm: 'text',
    namedUnions: false,
  });
  const redriven = new RecordIds();
  const outputs = new Map<string, number>();
  if (opened.topics.has(topics.progress))
    await new RedriveProgress(opened.scan, topics.progress).read('stable', (output, id) => {
      redriven.add(id);
      outputs.set(output, (outputs.get(output) ?? 0) + 1);
    });
  const scan = await Scan.open(opened.scan, topics.quarantine, opened.partitions);
  context.onClose(() => scan.close());
  const progress = context.progress({
    what: `records of ${topics.quarantine}`,
    unit: 'records',
    total: scan.total,
  });
  const list = new QuarantineList({
    scan,
    topic: topics.topic,
    filter,
    decoder,
    schemaOf: (id) => client.cachedSchema(id, reader?.context),
    redriven,
    producerHeaders: settings['producer-header'],
    recordsMax: settings['list-max'],
    log,
    drain,
    onRead: (records) => progress.add(records),
  });
  context.setReady();
  await list.run();
  progress.done();
  report(context, topics, list, outputs);
  return EXIT.done;
}

function report(
  context: ConsumerContext,
  topics: QuarantineTopics,
  list: QuarantineList,
  outputs: ReadonlyMap<string, number>,
): void {
  const { tally, groups, records } = list;
  const head = [
    `${tally.left} quarantined records of ${topics.topic} in ${topics.quarantine}`,
    `${tally.redriven} more were redriven`,
    ...(tally.copies === 0 ? [] : [`${tally.copies} are further copies`]),
    ...(tally.skipped === 0 ? [] : [`${tally.skipped} were not selected`]),
    ...(tally.otherTopics === 0 ? [] : [`${tally.otherTopics} are of other topics`]),
    ...(tally.foreign === 0 ? [] : [`${tally.foreign} have no quarantine headers`]),
  ].join('; ');
  const rest = tally.left - records.length;
  const lines = [
    head,
    ...table(groups),
    ...records.flatMap(recordLines),
    ...(rest > 0 ? [`and ${rest} more; -list-max lists more of them`] : []),
  ];
  context.print(lines.join('\n'), {
    topic: topics.topic,
    quarantineTopic: topics.quarantine,
    ...tally,
    redrivenInto: Object.fromEntries(outputs),
    groups: groups.map(({ producer, schemaId, ...group }) => ({
      ...group,
      schemaId: schemaId === '' ? null : schemaId,
      producer: producer === '' ? null : producer,
    })),
    listed: records.map(documentOf),
  });
}

/** A record's content must not control the terminal. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
const printable = (text: string): string => text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, '.');

function table(groups: readonly QuarantineGroup[]): readonly string[] {
  if (groups.length === 0) return [];
  const rows = [
    ['records', 'reason', 'schema id', 'producer'],
    ...groups.map(({ count, reason, schemaId, producer }) => [
      String(count),
      reason,
      schemaId === '' ? '-' : printable(schemaId),
      producer === '' ? 'unknown' : printable(producer),
    ]),
  ];
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => (row[column] as string).length)));
  return rows.map(([count = '', reason = '', id = '', producer = '']) =>
    `  ${count.padStart(widths[0] as number)}  ${reason.padEnd(widths[1] as number)}  ${id.padEnd(widths[2] as number)}  ${producer}`.trimEnd(),
  );
}

/** Greatest time of a date. */
const DATE_MS_MAX = 8_640_000_000_000_000n;

const timeOf = (ms: bigint): string =>
  ms >= 0n && ms <= DATE_MS_MAX ? new Date(Number(ms)).toISOString() : String(ms);

function recordLines(record: ListedRecord): readonly string[] {
  const { source, reason, schemaId, producer, timestamp, key, byte, headerByte, decoded } = record;
  const place = `${source.topic}/${source.partition}/${source.offset}`;
  const facts = [
    timeOf(timestamp),
    reason,
    ...(schemaId === '' ? [] : [`schema ${schemaId}`]),
    ...(producer === '' ? [] : [`producer ${producer}`]),
    ...(key === null ? [] : [`key ${key}`]),
  ];
  const state = !record.isRead
    ? `  was: ${record.error}`
    : record.now === undefined
      ? '  now: it can be read; consumer -redrive writes it'
      : `  now: ${record.now}`;
  const breaks =
    byte !== undefined
      ? [`  breaks at byte ${byte} of ${record.bytes}; bytes ${record.hexFrom}…: ${spaced(record.hex)}`]
      : headerByte === undefined
        ? []
        : [`  breaks at byte ${headerByte} of its schema id header`];
  const fields = decoded.length === 0 ? [] : [`  decoded: ${decoded.join(' ')}${record.isCut ? ' …' : ''}`];
  return [`${place}  ${facts.join('  ')}`, state, ...fields, ...breaks].map(printable);
}

const spaced = (hex: string): string => hex.match(/../g)?.join(' ') ?? 'none';

function documentOf({ source, now, isRead, hex, hexFrom, isCut, ...record }: ListedRecord): unknown {
  return {
    ...record,
    topic: source.topic,
    partition: source.partition,
    offset: String(source.offset),
    timestamp: Number(record.timestamp),
    schemaId: record.schemaId === '' ? null : record.schemaId,
    producer: record.producer === '' ? null : record.producer,
    readable: isRead ? now === undefined : null,
    ...(now === undefined ? {} : { now }),
    decodedCut: isCut,
    hexFrom,
    hex,
  };
}
