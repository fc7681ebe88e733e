/** Topics of generated events; each is filled once per run and read by all sides. */
import type { World } from '../effects/world.ts';

export const PARTITIONS = 8;
/** Size of every tumbling window, and width of every slice. */
export const SIZE_MS = 60_000;

export interface EventsSpec {
  readonly events: number;
  readonly accounts: number;
  readonly zipf: number;
  /** Events per millisecond of event time. */
  readonly perMs: number;
  /** Flags of the generator besides these; absent: none. */
  readonly flags?: readonly string[];
}

export interface EventsTopic extends EventsSpec {
  readonly name: string;
}

/** Events are in true order: none is late, so every side folds every event. */
const flagsOf = (world: World, topic: string): readonly string[] => [
  'gen',
  `-brokers=${world.brokers}`,
  `-out=kafka:${topic}`,
  `-partitions=${PARTITIONS}`,
  '-compression=lz4',
  '-digest=false',
];
const shapeOf = ({ accounts, zipf, perMs }: Omit<EventsSpec, 'events'>): readonly string[] => [
  `-accounts=${accounts}`,
  `-zipf=${zipf}`,
  `-per-ms=${perMs}`,
];

export class EventsTopics {
  private readonly world: World;
  private readonly filled = new Map<string, Promise<EventsTopic>>();

  constructor(world: World) {
    this.world = world;
  }

  /** Returns the topic with these events; fills it on the first request. */
  of(spec: EventsSpec): Promise<EventsTopic> {
    const key = JSON.stringify(spec);
    const known = this.filled.get(key);
    if (known !== undefined) return known;
    const filling = this.fill(spec);
    this.filled.set(key, filling);
    return filling;
  }

  private async fill(spec: EventsSpec): Promise<EventsTopic> {
    const { world } = this;
    const name = world.topic();
    world.context.say(`filling ${spec.events} events of ${spec.accounts} accounts`);
    await world.run('gen', [
      ...flagsOf(world, name),
      ...shapeOf(spec),
      ...(spec.flags ?? []),
      `-count=${spec.events}`,
    ]);
    return { ...spec, name };
  }
}

/** Starts a source that sends until it is stopped; rate 0: as fast as the broker accepts events. */
export const startSource = (
  world: World,
  topic: string,
  shape: Omit<EventsSpec, 'events'>,
  rate: number,
  more: readonly string[] = [],
): ReturnType<World['start']> =>
  world.start('gen', [
    ...flagsOf(world, topic),
    ...shapeOf(shape),
    '-count=0',
    `-rate=${rate}`,
    ...more,
    '-listen=127.0.0.1:0',
  ]);
