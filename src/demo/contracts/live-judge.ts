/** Judges the upgrades and the redrives from the topics, the quarantine topics and the decoded
 *  files; the generator is the oracle. Only the claims about a report read a report. */
import { RECORD_ID_HEADER } from '../../registry/quarantine/record.ts';
import type { Fact } from '../fact.ts';
import { type DecodedOrders, placeOf, readDecoded } from './decoded.ts';
import { examples } from './examples.ts';
import { type ContractsRun, type FleetRun, ORIGIN, type RedriveRun, UPGRADE } from './model.ts';
import { hex, type QuarantineContent, readQuarantines } from './quarantined.ts';
import type { TopicReader } from './topic.ts';

const HEADER_BYTES = 5;

interface FoundRecord {
  readonly place: string;
  readonly partition: number;
  readonly offset: bigint;
  /** Schema id of the frame; undefined: no frame. */
  readonly schemaId: number | undefined;
  readonly keyHex: string;
  readonly valueHex: string;
  readonly origin: string | undefined;
  /** topic/partition/offset of the original, and a digest; undefined: not redriven. */
  readonly recordId: string | undefined;
}

interface FoundTopic {
  readonly originals: readonly FoundRecord[];
  readonly copies: readonly FoundRecord[];
  readonly quarantine: QuarantineContent;
}

function schemaIdOf(value: Uint8Array | null): number | undefined {
  if (value === null || value.length <= HEADER_BYTES || value[0] !== 0) return undefined;
  return Buffer.from(value).readUInt32BE(1);
}

/** Reads topics and their quarantines. @param origin as of `readQuarantines` */
async function readTopics(
  reader: TopicReader,
  runs: ReadonlyArray<{ readonly topic: string; readonly quarantine: string }>,
  origin: string | undefined,
): Promise<readonly FoundTopic[]> {
  const records = new Map(runs.map(({ topic }) => [topic, [] as FoundRecord[]]));
  await reader.read([...records.keys()], (topic, { partition, offset, key, value, headers }) => {
    const named = headers();
    records.get(topic)?.push({
      ...{ partition, offset, place: placeOf(partition, offset), schemaId: schemaIdOf(value) },
      keyHex: hex(key),
      valueHex: hex(value),
      origin: named.get('origin'),
      recordId: named.get(RECORD_ID_HEADER),
    });
  });
  const sources = new Map(runs.map(({ topic, quarantine }) => [quarantine, topic]));
  const quarantines = await readQuarantines(reader, sources, origin);
  return runs.map(({ topic, quarantine }) => {
    const found = records.get(topic) ?? [];
    return {
      originals: found.filter(({ recordId }) => recordId === undefined),
      copies: found.filter(({ recordId }) => recordId !== undefined),
      quarantine: quarantines.get(quarantine) as QuarantineContent,
    };
  });
}

/** Describes the members that only one of two sets of positions has. */
function differences(what: string, found: ReadonlySet<string>, expected: ReadonlySet<string>): string[] {
  const missing = [...expected].filter((place) => !found.has(place));
  const extra = [...found].filter((place) => !expected.has(place));
  return [
    ...missing.map((place) => `${place} is not ${what}`),
    ...extra.map((place) => `${place} is ${what}`),
  ];
}

const placesOf = (records: readonly { readonly place: string }[]): ReadonlySet<string> =>
  new Set(records.map(({ place }) => place));

interface FleetState {
  readonly from: readonly FoundRecord[];
  readonly to: readonly FoundRecord[];
  readonly quarantined: ReadonlySet<string>;
  /** Decoded by the readers of the old version, and by those of the new version. */
  readonly read: { readonly from: DecodedOrders; readonly to: DecodedOrders };
  readonly faults: readonly string[];
}

async function fleetState(fleet: FleetRun, { originals, quarantine }: FoundTopic): Promise<FleetState> {
  const { ids, seed, decoded } = fleet;
  const writerOf = (id: string): 3 | 4 | undefined =>
    id === String(ids.from) ? UPGRADE.from : id === String(ids.to) ? UPGRADE.to : undefined;
  const read = async (side: 'from' | 'to'): Promise<DecodedOrders> =>
    readDecoded(decoded[side], {
      seed,
      count: Number.POSITIVE_INFINITY,
      reader: UPGRADE[side],
      writerOf,
    });
  const lines = { from: await read('from'), to: await read('to') };
  const of = (id: number): readonly FoundRecord[] => originals.filter(({ schemaId }) => schemaId === id);
  const bytes = new Map(originals.map((record) => [record.place, record]));
  const changed = quarantine.records.filter(
    ({ place, keyHex, valueHex }) =>
      bytes.get(place)?.keyHex !== keyHex || bytes.get(place)?.valueHex !== valueHex,
  );
  const foreign = originals.filter(({ schemaId }) => schemaId !== ids.from && schemaId !== ids.to);
  return {
    from: of(ids.from),
    to: of(ids.to),
    quarantined: placesOf(quarantine.records),
    read: lines,
    faults: [
      ...quarantine.faults,
      ...changed.map(({ place }) => `the quarantined record of ${place} was changed`),
      ...foreign.map(({ place }) => `${place} has another schema`),
      ...quarantine.records
        .filter(({ reason }) => reason !== 'incompatible_schema')
        .map(({ place, reason }) => `${place} is in quarantine as ${reason}`),
    ],
  };
}

/** Number of records of the old version behind the last one of the new version in their partition.
 */
function backOn({ from, to }: FleetState): number {
  const last = new Map<number, bigint>();
  for (const { partition, offset } of to)
    if (offset > (last.get(partition) ?? -1n)) last.set(partition, offset);
  return from.filter(({ partition, offset }) => {
    const end = last.get(partition);
    return end !== undefined && offset > end;
  }).length;
}

async function judgeWrongOrder(fleet: FleetRun, topic: FoundTopic): Promise<Fact> {
  const state = await fleetState(fleet, topic);
  const { from, to, quarantined, read } = state;
  const back = backOn(state);
  const faults = [
    ...state.faults,
    ...read.from.wrong,
    ...differences('decoded by a reader of the old version', read.from.decoded, placesOf(from)),
    ...differences('in quarantine', quarantined, placesOf(to)),
  ];
  return {
    slice: 'contracts',
    claim: `Order v${UPGRADE.from} to v${UPGRADE.to} with the producers first breaks a live consumer: the rollout stops and returns to v${UPGRADE.from}`,
    seen: `exit ${fleet.code}, ${fleet.verdict}, ${fleet.errors} unreadable records counted; in the topic ${from.length} records of v${UPGRADE.from}, ${back} of them after the last of v${UPGRADE.to}, and ${to.length} of v${UPGRADE.to}, of which ${quarantined.size} are in quarantine${examples(faults)}`,
    holds:
      faults.length === 0 &&
      fleet.code === 1 &&
      fleet.verdict === 'rolled-back' &&
      to.length > 0 &&
      fleet.errors === to.length &&
      back > 0,
  };
}

async function judgeRightOrder(fleet: FleetRun, topic: FoundTopic): Promise<Fact> {
  const { from, to, quarantined, read, faults: found } = await fleetState(fleet, topic);
  const all = new Set([...read.from.decoded, ...read.to.decoded]);
  const faults = [
    ...found,
    ...read.from.wrong,
    ...read.to.wrong,
    ...differences('decoded', all, new Set([...placesOf(from), ...placesOf(to)])),
    ...to
      .filter(({ place }) => !read.to.decoded.has(place))
      .map(({ place }) => `${place} is not decoded by a reader of the new version`),
  ];
  return {
    slice: 'contracts',
    claim: `Order v${UPGRADE.from} to v${UPGRADE.to} in the order of the plan breaks nothing: every record of both versions is decoded`,
    seen: `exit ${fleet.code}, ${fleet.verdict} ${fleet.order}; in the topic ${from.length} records of v${UPGRADE.from} and ${to.length} of v${UPGRADE.to}, ${all.size} decoded and equal to the generator's orders, ${quarantined.size} in quarantine${examples(faults)}`,
    holds:
      faults.length === 0 &&
      fleet.code === 0 &&
      fleet.verdict === 'upgraded' &&
      fleet.order === 'consumers-first' &&
      from.length > 0 &&
      to.length > 0 &&
      quarantined.size === 0,
  };
}

interface RedriveState {
  /** Quarantined records that the fix makes readable, and the others. */
  readonly fixable: number;
  readonly hopeless: number;
  readonly back: number;
  readonly decoded: number;
  readonly faults: readonly string[];
}

/** Compares what came back with the quarantine: each readable record once, nothing else, untouched,
 *  and decoded as the generator's order. */
async function redriveState(
  run: RedriveRun,
  { quarantine, copies }: FoundTopic,
  origin: string | undefined,
): Promise<RedriveState> {
  const fixable = quarantine.records.filter(({ reason }) => reason === run.reason);
  const faults = [...quarantine.faults];
  const byOriginal = new Map<string, FoundRecord[]>();
  for (const copy of copies) {
    const [, partition = '', offset = ''] = (copy.recordId ?? '').split('/');
    const place = placeOf(partition, offset);
    byOriginal.set(place, [...(byOriginal.get(place) ?? []), copy]);
  }
  for (const { place, keyHex, valueHex } of fixable) {
    const found = byOriginal.get(place) ?? [];
    byOriginal.delete(place);
    const [copy] = found;
    if (copy === undefined || found.length > 1) faults.push(`${place} is back ${found.length} times`);
    else if (copy.keyHex !== keyHex || copy.valueHex !== valueHex || copy.origin !== origin)
      faults.push(`the record of ${place} came back changed`);
    else if (!place.startsWith(`${copy.partition}/`)) faults.push(`${place} is back in another partition`);
  }
  for (const place of byOriginal.keys()) faults.push(`${place} is back and was not to be redriven`);
  const lines = await readDecoded(run.decodedPath, {
    seed: run.seed,
    count: Number.POSITIVE_INFINITY,
    reader: run.reader,
    writerOf: (id) => (id === String(run.writerId) ? run.writer : undefined),
  });
  faults.push(...lines.wrong, ...differences('decoded', lines.decoded, placesOf(copies)));
  if (lines.repeated > 0) faults.push(`${lines.repeated} records were decoded twice`);
  return {
    fixable: fixable.length,
    hopeless: quarantine.records.length - fixable.length,
    back: copies.length,
    decoded: lines.decoded.size,
    faults,
  };
}

async function judgeRescue(run: RedriveRun, topic: FoundTopic): Promise<Fact> {
  const { fixable, hopeless, back, decoded, faults } = await redriveState(run, topic, undefined);
  return {
    slice: 'contracts',
    claim: `A redrive with readers of v${run.reader} returns every record that the wrong order broke, exactly once`,
    seen: `${fixable} records in quarantine, ${back} back in the topic, ${decoded} decoded by the same group and equal to the generator's orders; the redrive reports ${run.reported.redriven}${examples(faults)}`,
    holds:
      faults.length === 0 &&
      fixable > 0 &&
      hopeless === 0 &&
      back === fixable &&
      run.reported.redriven === fixable &&
      run.reported.failed === 0,
  };
}

async function judgeKilledRedrive(run: ContractsRun['redrive'], topic: FoundTopic): Promise<readonly Fact[]> {
  const { fixable, hopeless, back, decoded, faults } = await redriveState(run, topic, ORIGIN);
  const { killed, reported, listed } = run;
  return [
    {
      slice: 'contracts',
      claim:
        'Records of an unknown schema id return exactly once when the id is known, though the redrive was killed in the middle',
      seen: `${killed.signal ?? 'no signal'} with ${killed.back} of ${fixable} back in the topic; ${back} after the restart, ${decoded} decoded and equal to the generator's orders${examples(faults)}`,
      holds:
        faults.length === 0 &&
        killed.signal === 'SIGKILL' &&
        killed.back > 0 &&
        killed.back < fixable &&
        back === fixable,
    },
    {
      slice: 'contracts',
      claim: 'The redrive and the list of the quarantine count what the topics hold, and garbage stays there',
      seen: `restarted: ${reported.redriven} redriven, ${reported.repeated} redriven before, ${reported.failed} still unreadable; listed: ${listed.redriven} redriven, ${listed.left} left; the topics: ${back} back, ${hopeless} never`,
      holds:
        hopeless > 0 &&
        reported.failed === hopeless &&
        // A transaction that was being committed at the kill becomes visible later.
        reported.repeated >= killed.back &&
        reported.redriven + reported.repeated === back &&
        listed.redriven === back &&
        listed.left === hopeless,
    },
  ];
}

export async function judgeLive(reader: TopicReader, run: ContractsRun): Promise<readonly Fact[]> {
  const fleets = await readTopics(reader, [run.wrongOrder, run.rightOrder], undefined);
  const [redriven] = (await readTopics(reader, [run.redrive], ORIGIN)) as [FoundTopic];
  const [wrong, right] = fleets as [FoundTopic, FoundTopic];
  return [
    await judgeWrongOrder(run.wrongOrder, wrong),
    await judgeRightOrder(run.rightOrder, right),
    await judgeRescue(run.rescue, wrong),
    ...(await judgeKilledRedrive(run.redrive, redriven)),
  ];
}
