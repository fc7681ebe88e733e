/** `millrace bench serde`: records of about 512 B to values and back, in both formats, beside codec
 *  libraries and registry clients, with all sides in turn.
 *
 *  Every side is first compared with Millrace's exact decoder over all records. A peer that cannot
 *  be downloaded is left out with a message. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { SchemaRegistry } from '../src/registry/index.ts';
import { packageRoot } from '../src/shell/package.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf, takeTurns } from './harness.ts';
import { selectParts } from './parts.ts';
import { ask, startOurs } from './registry-server.ts';
import { arrowSides, type Measure } from './serde/arrow.ts';
import {
  type Contestants,
  checkReading,
  checkValues,
  checkWriting,
  passOf,
  type Wanted,
} from './serde/case.ts';
import { casesOf, type PreparedCase } from './serde/cases.ts';
import { confluentSides, kafkajsSides, ourSides } from './serde/clients.ts';
import { avscSides, bufbuildSides, protobufjsSides } from './serde/codecs.ts';
import { columnSides } from './serde/columns.ts';
import { lookupResults } from './serde/lookups.ts';
import { generatingResults } from './serde/orders.ts';
import { type SerdePeers, serdePeers } from './serde/peers.ts';
import { rowsOf } from './serde/rows.ts';
import { callTimes, passNs } from './serde/timing.ts';

const RECORDS = 1000;
const RECORDS_SMOKE = 40;
const PASSES_MS = 400;
const PASSES_MS_SMOKE = 10;
const CALLS = 200_000;
const CALLS_SMOKE = 2000;

/** Limits of the requirements for serde and framing over a raw-bytes baseline. */
const OVERHEAD_P50_LIMIT_US = 8;
const OVERHEAD_P99_LIMIT_US = 30;

interface Run {
  readonly context: BenchContext;
  readonly registry: SchemaRegistry;
  readonly url: string;
  readonly peers: SerdePeers;
  readonly dir: string;
}

/** FileDescriptorProto of both schemas, as the registry has them. */
async function descriptorsOf(one: PreparedCase, url: string): Promise<Readonly<Record<Wanted, Buffer>>> {
  const fetched = async (id: number): Promise<Buffer> => {
    const { schema } = (await ask({ url }, 'GET', `/schemas/ids/${id}?format=serialized`)) as {
      schema: string;
    };
    return Buffer.from(schema, 'base64');
  };
  return { writer: await fetched(one.id), reader: await fetched(one.readerId) };
}

async function contestantsOf(one: PreparedCase, run: Run): Promise<Contestants> {
  const { peers, url, registry } = run;
  const { load } = peers;
  const ours = { ...(await ourSides(one, registry)), ...columnSides(one) };
  const own = one.format === 'AVRO' ? { ...ours, ...avscSides(one) } : ours;
  if (load === undefined) return own;
  const isProtobuf = one.format === 'PROTOBUF';
  return {
    ...own,
    ...(isProtobuf && peers.has('protobufjs') ? protobufjsSides(one, load) : {}),
    ...(isProtobuf && peers.has('bufbuild') ? bufbuildSides(one, load, await descriptorsOf(one, url)) : {}),
    ...(peers.has('kafkajs') ? kafkajsSides(one, load, url) : {}),
    ...(peers.has('confluent') ? confluentSides(one, load, url) : {}),
  };
}

/** Compares every side with the exact decoder and returns how each is timed. */
async function measuresOf(one: PreparedCase, run: Run): Promise<Readonly<Record<string, Measure>>> {
  const contestants = await contestantsOf(one, run);
  const measures: Record<string, Measure> = {};
  for (const [name, by] of Object.entries(contestants)) {
    if (by.kind === 'read') await checkReading(name, one, by);
    else if (by.kind === 'batch') checkValues(name, one, by.wanted, by.values(), by.fields);
    else await checkWriting(name, one, by, one.read);
    const pass = passOf(one, by);
    measures[name] = (timeMs) => passNs(pass, one.frames.length, timeMs);
  }
  const { arrowAvro } = run.peers;
  if (one.format === 'AVRO' && arrowAvro !== undefined)
    Object.assign(measures, await arrowSides(one, arrowAvro, run.dir));
  return measures;
}

async function timesOf(one: PreparedCase, run: Run): Promise<BenchResult[]> {
  const { context } = run;
  context.say(`${one.title}: comparing every side with the exact decoder`);
  const measures = await measuresOf(one, run);
  context.say(`${one.title}: measuring ${Object.keys(measures).length} sides`);
  const timeMs = context.smoke ? PASSES_MS_SMOKE : PASSES_MS;
  const sides = Object.entries(measures).map(
    ([name, measure]) => [name, async () => (await measure(timeMs)) / 1000] as const,
  );
  return rowsOf(one, await takeTurns(Object.fromEntries(sides), context.repeats));
}

/** Time of single `serialize` calls over a copy of the finished record. */
async function overheadOf(one: PreparedCase, run: Run): Promise<BenchResult[]> {
  const sides = await ourSides(one, run.registry);
  const [ours, raw] = [sides['serialize, bigint'], sides['raw bytes']];
  if (ours?.kind !== 'write' || raw?.kind !== 'write') return [];
  const count = one.frames.length;
  const calls = run.context.smoke ? CALLS_SMOKE : CALLS;
  const over: Record<'p50' | 'p99', number[]> = { p50: [], p99: [] };
  for (let turn = 0; turn < run.context.repeats; turn++) {
    const base = callTimes((index) => raw.write(index % count), calls);
    const took = callTimes((index) => ours.write(index % count), calls);
    over.p50.push((took.p50 - base.p50) / 1000);
    over.p99.push((took.p99 - base.p99) / 1000);
  }
  return (
    [
      ['p50', OVERHEAD_P50_LIMIT_US],
      ['p99', OVERHEAD_P99_LIMIT_US],
    ] as const
  ).map(([quantile, limit]) =>
    result({
      metric: `${one.title}: serialize(value) over raw bytes, ${quantile}`,
      unit: 'us',
      better: 'less',
      ours: seriesOf(over[quantile]),
      goal: { valueBelow: limit },
    }),
  );
}

const PARTS = ['avro-s', 'protobuf-s', 'avro-l', 'protobuf-l', 'lookups', 'gen'];

const partOf = ({ format, shape }: PreparedCase): string => `${format}-${shape.name}`.toLowerCase();

async function run(context: BenchContext): Promise<readonly BenchResult[]> {
  const parts = selectParts(context.only, PARTS);
  const peers = await serdePeers(context);
  const parent = join(packageRoot(), '.millrace', 'bench');
  mkdirSync(parent, { recursive: true });
  const dir = mkdtempSync(join(parent, 'serde-run-'));
  context.onClose(() => rmSync(dir, { recursive: true, force: true }));
  const server = await startOurs('memory');
  context.onClose(() => server.stop());
  const registry = new SchemaRegistry({ url: server.url });
  const whole: Run = { context, registry, url: server.url, peers, dir };
  const results: BenchResult[] = [];
  for (const one of await casesOf(context.smoke ? RECORDS_SMOKE : RECORDS, registry)) {
    if (context.drain.aborted || !parts.includes(partOf(one))) continue;
    results.push(...(await overheadOf(one, whole)), ...(await timesOf(one, whole)));
  }
  if (parts.includes('lookups')) results.push(...(await lookupResults(context, server.url)));
  if (parts.includes('gen')) results.push(...generatingResults(context));
  return results;
}

export const bench: Bench = {
  name: 'serde',
  summary: 'Records of any schema to values, columns and back, against codec libraries and registry clients.',
  run,
};
