/** `millrace bench engine`: the whole window engine as a real process with a real broker.
 *
 *  engine-kernel measures its kernel alone, engine-checkpoint its pauses and restarts, results its
 *  results. Parts: kafka, formats, aggregates, sliding, disk, disk-sliding, disk-sessions,
 *  disk-fits, disk-keys, rss, accumulate, firing, firing-sizes, session-firing, postgres. */
import { openParts, type Part } from './effects/parts.ts';
import type { World } from './effects/world.ts';
import { aggregates } from './engine/aggregates.ts';
import { Drains } from './engine/drains.ts';
import { formats } from './engine/formats.ts';
import { Latencies } from './engine/latencies.ts';
import { postgresSink } from './engine/postgres-sink.ts';
import { textKeys } from './engine/text-keys.ts';
import type { Bench, BenchResult } from './harness.ts';

/** Parts of one run, which share their topics. */
function parts(): Readonly<Record<string, Part>> {
  let shared: Drains | undefined;
  let ceiling: number | undefined;
  const drains = (world: World): Drains => {
    shared ??= new Drains(world);
    return shared;
  };
  return {
    async kafka(world) {
      const results = await drains(world).kafka();
      ceiling = results.find(({ unit }) => unit === 'events/s')?.value;
      return results;
    },
    formats,
    aggregates,
    sliding: (world) => drains(world).sliding(),
    disk: (world) => drains(world).disk(),
    'disk-sliding': (world) => drains(world).diskFired('sliding'),
    'disk-sessions': (world) => drains(world).diskFired('sessions'),
    'disk-fits': (world) => drains(world).diskFits(),
    'disk-keys': textKeys,
    rss: (world) => drains(world).rss(),
    async accumulate(world): Promise<readonly BenchResult[]> {
      ceiling ??= await drains(world).ceiling();
      return new Latencies(world).accumulate(ceiling);
    },
    firing: (world) => new Latencies(world).firing(),
    'firing-sizes': (world) => new Latencies(world).firingSizes(),
    'session-firing': (world) => new Latencies(world).sessionFiring(),
    postgres: postgresSink,
  };
}

export const bench: Bench = {
  name: 'engine',
  takesBrokerProperties: true,
  summary:
    'The window engine from Kafka beside a bare C++ loop; formats, sliding windows, disk and latencies.',
  run: (context) => openParts(context, parts()),
};
