/** Judges the contracts slice from the registry's answers, the topics and the decoded files; the
 *  generator is the oracle. Only the claim about a counter reads a counter. */
import { type OrderFormat, orderSchema } from '../../gen/order-versions.ts';
import type { Fact, SliceContext } from '../fact.ts';
import { asText, type DecodedOrders, placeOf, readDecoded } from './decoded.ts';
import { examples } from './examples.ts';
import { judgeLive } from './live-judge.ts';
import {
  ask,
  type BadRecord,
  type ContractsRun,
  type FlowRun,
  formatName,
  ORIGIN,
  type Refusal,
  subjectOf,
} from './model.ts';
import { type QuarantineContent, type QuarantinedRecord, readQuarantines } from './quarantined.ts';
import { TopicReader } from './topic.ts';

/** The field that the breaking version 3 breaks. */
const BROKEN_FIELD = 'amount_cents';
const HEADER_BYTES = 5;

/** State of a flow as found in its topics and files. */
interface FlowState extends DecodedOrders {
  readonly flow: FlowRun;
  /** Number of records in the topic, and number of decoded records that are frames with the
   *  writer's schema id. */
  readonly inTopic: number;
  readonly framed: number;
  /** Records of the topic that are neither decoded nor in quarantine, or both. */
  readonly astray: readonly string[];
  readonly quarantined: readonly QuarantinedRecord[];
  /** Differences between the quarantine and the injected records. */
  readonly quarantineFaults: readonly string[];
}

async function readStates(reader: TopicReader, flows: readonly FlowRun[]): Promise<FlowState[]> {
  const sources = new Map(flows.map(({ quarantine, topic }) => [quarantine, topic]));
  const quarantines = await readQuarantines(reader, sources, ORIGIN);
  const states: Array<FlowState & { framed: number; inTopic: number; astray: string[] }> = [];
  for (const flow of flows) {
    const { records, faults } = quarantines.get(flow.quarantine) as QuarantineContent;
    const lines = await readDecoded(flow.decodedPath, {
      seed: flow.seed,
      count: flow.orders,
      reader: flow.reader,
      writerOf: (id) => (id === String(flow.writerId) ? flow.writer : undefined),
    });
    const quarantineFaults = [...faults, ...compareQuarantine(flow.bad, records)];
    states.push({
      flow,
      ...lines,
      inTopic: 0,
      framed: 0,
      astray: [],
      quarantined: records,
      quarantineFaults,
    });
  }
  const byTopic = new Map(
    states.map((state) => [
      state.flow.topic,
      { state, quarantinedPlaces: new Set(state.quarantined.map(({ place }) => place)) },
    ]),
  );
  await reader.read([...byTopic.keys()], (topic, record) => {
    const { state, quarantinedPlaces } = byTopic.get(topic) as {
      state: (typeof states)[number];
      quarantinedPlaces: Set<string>;
    };
    const place = placeOf(record.partition, record.offset);
    const bytes = record.value === null ? Buffer.alloc(0) : Buffer.from(record.value);
    const isDecoded = state.decoded.has(place);
    state.inTopic++;
    if (isDecoded === quarantinedPlaces.has(place)) {
      state.astray.push(
        `${place} is ${isDecoded ? 'decoded and in quarantine' : 'neither decoded nor in quarantine'}`,
      );
    }
    const isFrame =
      bytes.length > HEADER_BYTES && bytes[0] === 0 && bytes.readUInt32BE(1) === state.flow.writerId;
    if (isDecoded && isFrame) state.framed++;
  });
  return states;
}

/** Checks that the quarantine holds exactly the injected records, unchanged, each once and with its
 *  reason. */
function compareQuarantine(bad: readonly BadRecord[], quarantined: readonly QuarantinedRecord[]): string[] {
  const faults: string[] = [];
  const byPlace = new Map(quarantined.map((record) => [record.place, record]));
  if (byPlace.size !== quarantined.length)
    faults.push(`${quarantined.length - byPlace.size} records are there twice`);
  for (const record of bad) {
    const place = placeOf(record.partition, record.offset);
    const found = byPlace.get(place);
    byPlace.delete(place);
    if (found === undefined) faults.push(`${record.reason} at ${place} is missing`);
    else if (found.keyHex !== record.keyHex || found.valueHex !== record.valueHex)
      faults.push(`the record of ${place} was changed`);
    else if (found.reason !== record.reason)
      faults.push(`${place} has the reason ${found.reason}, not ${record.reason}`);
  }
  for (const place of byPlace.keys()) faults.push(`${place} is in quarantine, but is not an injected record`);
  return faults;
}

/** Checks that the registry holds exactly the two versions, under the ids assigned before it was
 *  killed. */
async function judgeAccepted(run: ContractsRun): Promise<Fact> {
  const faults: string[] = [];
  const seen: string[] = [];
  for (const [subject, ids] of Object.entries(run.ids)) {
    const format: OrderFormat = subject.includes('protobuf') ? 'protobuf' : 'avro';
    const versions = await ask(run.registry, 'GET', `/subjects/${subject}/versions`);
    if (JSON.stringify(versions.body) !== '[1,2]')
      faults.push(`${subject} has the versions ${JSON.stringify(versions.body)}`);
    for (const [i, id] of ids.entries()) {
      const { body } = await ask(run.registry, 'GET', `/schemas/ids/${id}`);
      const { schemaType } = body as { schemaType?: string };
      const lookup = await ask(run.registry, 'POST', `/subjects/${subject}`, {
        schema: orderSchema((i + 1) as 1 | 2, format),
        schemaType: formatName(format),
      });
      const found = lookup.body as { id?: number; version?: number };
      if (schemaType !== formatName(format) || found.id !== id || found.version !== i + 1)
        faults.push(`${subject} version ${i + 1} is not id ${id}`);
    }
    seen.push(`${subject}: versions 1, 2 as ids ${ids.join(', ')}`);
  }
  return {
    slice: 'contracts',
    claim: 'Order v1 and v2 are registered in Avro and in Protobuf, and survive a SIGKILL of the registry',
    seen: `${seen.join('; ')}; read back from the restarted process${examples(faults)}`,
    holds: faults.length === 0,
  };
}

/** Checks that the breaking version was refused and is still incompatible; both messages name the
 *  field. */
async function judgeRefused(run: ContractsRun): Promise<Fact> {
  const faults: string[] = [];
  for (const refusal of run.refusals) {
    const subject = subjectOf(refusal.format);
    if (refusal.status !== 409 || !refusal.message.includes(BROKEN_FIELD))
      faults.push(`${refusal.format}: ${refusal.status} ${refusal.message}`);
    const body = { schema: orderSchema('breaking', refusal.format), schemaType: formatName(refusal.format) };
    const verdict = (
      await ask(run.registry, 'POST', `/compatibility/subjects/${subject}/versions/latest?verbose=true`, body)
    ).body as {
      is_compatible?: boolean;
      messages?: readonly string[];
    };
    if (
      verdict.is_compatible !== false ||
      !(verdict.messages ?? []).some((message) => message.includes(BROKEN_FIELD))
    ) {
      faults.push(`${refusal.format}: the registry reports the breaking version as compatible`);
    }
  }
  const reason = ({ message }: Refusal): string => {
    const about = message.split('{errorType:').find((part) => part.includes(BROKEN_FIELD)) ?? message;
    // The description without its machine-readable wrapping.
    return /description:['"](.*?)['"](?:, additionalInfo|\}|$)/s.exec(about)?.[1] ?? about;
  };
  return {
    slice: 'contracts',
    claim: `A breaking v3 is refused in both formats, and the reason names the field`,
    seen: `HTTP ${run.refusals.map((refusal) => refusal.status).join(' and ')}; ${run.refusals.map(reason).join('; ')}${examples(faults)}`,
    holds: faults.length === 0 && run.refusals.length === 2,
  };
}

const sumOf = (states: readonly FlowState[], count: (state: FlowState) => number): number =>
  states.reduce((sum, state) => sum + count(state), 0);

function judgeEqual(run: ContractsRun, states: readonly FlowState[]): Fact {
  const wrong = states.flatMap((state) => state.wrong.map((fault) => `${state.flow.name}: ${fault}`));
  const right = sumOf(states, (state) => state.orders.size);
  return {
    slice: 'contracts',
    claim:
      "Every decoded order equals the generator's order as the reader's version must see it, both ways and in both formats",
    seen: `${right} orders compared field by field, ${wrong.length} wrong (${states.map(({ flow, orders }) => `${flow.format} v${flow.writer} to v${flow.reader}: ${orders.size}`).join(', ')}); ${run.producedPerSecond} a second from generator to decoded file${examples(wrong)}`,
    holds: wrong.length === 0 && right > 0,
  };
}

function judgeComplete(states: readonly FlowState[]): Fact {
  const faults = states.flatMap((state) => {
    const { flow } = state;
    const found = state.astray.map((fault) => `${flow.name}: ${fault}`);
    if (state.orders.size !== flow.orders)
      found.push(`${flow.name}: ${state.orders.size} of ${flow.orders} orders were decoded`);
    if (state.inTopic !== flow.orders + flow.bad.length)
      found.push(
        `${flow.name}: the topic holds ${state.inTopic} records, not ${flow.orders + flow.bad.length}`,
      );
    if (state.framed !== flow.orders)
      found.push(`${flow.name}: ${state.framed} decoded records are frames of id ${flow.writerId}`);
    return found;
  });
  const repeated = sumOf(states, (state) => state.repeated);
  return {
    slice: 'contracts',
    claim: 'Nothing is lost: every record of the topics is decoded or in quarantine, and never both',
    seen: `${sumOf(states, (state) => state.inTopic)} records in the topics, ${sumOf(states, (state) => state.decoded.size)} decoded (${repeated} of them repeated), ${sumOf(states, (state) => state.quarantined.length)} in quarantine${examples(faults)}`,
    holds: faults.length === 0,
  };
}

function judgeQuarantine(states: readonly FlowState[]): Fact {
  const faults = states.flatMap((state) =>
    state.quarantineFaults.map((fault) => `${state.flow.name}: ${fault}`),
  );
  const reasons = new Set(states.flatMap((state) => state.quarantined.map(({ reason }) => reason)));
  return {
    slice: 'contracts',
    claim:
      'Truncated frames, unknown ids and garbage are in quarantine, untouched and with their reason, and nothing else is',
    seen: `${sumOf(states, (state) => state.quarantined.length)} records, byte for byte the ${sumOf(states, (state) => state.flow.bad.length)} injected ones: ${[...reasons].sort().join(', ')}${examples(faults)}`,
    holds: faults.length === 0 && sumOf(states, (state) => state.quarantined.length) > 0,
  };
}

function judgeCounter(states: readonly FlowState[]): Fact {
  const faults: string[] = [];
  for (const { flow, quarantined } of states) {
    const inTopic: Record<string, number> = {};
    for (const { reason } of quarantined) inTopic[reason] = (inTopic[reason] ?? 0) + 1;
    if (asText(inTopic) !== asText(flow.counted))
      faults.push(
        `${flow.name}: counted ${JSON.stringify(flow.counted)}, in quarantine ${JSON.stringify(inTopic)}`,
      );
  }
  const counted = sumOf(states, ({ flow }) =>
    Object.values(flow.counted).reduce((sum, count) => sum + count, 0),
  );
  return {
    slice: 'contracts',
    claim: 'deserialize_errors_total equals the content of the quarantine topics, reason by reason',
    seen: `${counted} counted by four consumers${examples(faults)}`,
    holds: faults.length === 0 && counted > 0,
  };
}

export async function judgeContracts(context: SliceContext, run: ContractsRun): Promise<readonly Fact[]> {
  context.say('contracts: reading topics and decoded files back');
  const reader = await TopicReader.open(context.stack.brokers);
  try {
    const states = await readStates(reader, run.flows);
    return [
      await judgeAccepted(run),
      await judgeRefused(run),
      judgeEqual(run, states),
      judgeComplete(states),
      judgeQuarantine(states),
      judgeCounter(states),
      ...(await judgeLive(reader, run)),
    ];
  } finally {
    await reader.close();
  }
}
