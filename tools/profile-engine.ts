/** Profiles of the window engine while it drains a pre-filled topic. */

import { hasDiskState } from '../bench/engine/drains.ts';
import { EngineRuns } from '../bench/engine/engine-run.ts';
import { type EventsSpec, EventsTopics } from '../bench/engine/events-topic.ts';
import type { Profile } from './profile.ts';
import { save } from './profile-recorder.ts';

/** Events for each row of the other loads, so that all take about as long. */
const EVENTS_A_ROW = 6;
/** Lateness at which no window fires while the topic is read. */
const UNFIRED = '-allowed-lateness=1h';

/** Minimum number of samples of a profile, a fifth of a second of work. The engine reads
 *  immediately after its start, so a late profiler may find it idle; then another engine reads the
 *  topic. */
const SAMPLES_MIN = 100;
const TURNS = 10;

/** Two minutes of event time, with the accounts of the other loads. */
const zipf = (events: number): EventsSpec => ({
  events,
  accounts: 1_000_000,
  zipf: 1.1,
  perMs: events / 120_000,
});
const uniform = (events: number): EventsSpec => ({ ...zipf(events), accounts: events, zipf: 0 });

interface Load {
  readonly name: string;
  readonly what: string;
  readonly events: (count: number) => EventsSpec;
  readonly flags: readonly string[];
}

const drained =
  ({ name, what, events, flags }: Load): Profile =>
  async (world, { rows }, recorder) => {
    if (flags.includes('-state=disk') && !hasDiskState()) return;
    const topic = await new EventsTopics(world).of(events(rows * EVENTS_A_ROW));
    const title = `millrace engine: ${what}, ${topic.events} events`;
    const runs = new EngineRuns(world);
    let saved = false;
    for (let turn = 1; !saved; turn++) {
      await runs.drain(topic, {
        flags,
        concurrently: (pid) => {
          const recording = recorder.record(pid);
          return async () => {
            saved = await save(recorder, recording, name, title, turn < TURNS ? SAMPLES_MIN : 0);
          };
        },
      });
    }
  };

const LOADS: readonly Load[] = [
  { name: 'engine-ingest', what: 'tumbling windows, Zipf 1.1', events: zipf, flags: [UNFIRED] },
  {
    name: 'engine-checkpoint',
    what: 'a checkpoint every half second, each with a new snapshot',
    events: uniform,
    flags: [UNFIRED, '-checkpoint-interval=500ms', '-snapshot-after=4096'],
  },
  {
    name: 'engine-firing',
    what: 'windows of a second, nearly a row an event',
    events: uniform,
    flags: ['-size=1s'],
  },
  {
    name: 'engine-spill',
    what: 'state on disk, a budget of 128 MiB',
    events: uniform,
    flags: [UNFIRED, '-state=disk', '-mem-budget=128MiB'],
  },
];

export const ENGINE_PROFILES: Readonly<Record<string, Profile>> = Object.fromEntries(
  LOADS.map((load) => [load.name, drained(load)]),
);
