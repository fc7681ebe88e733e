/** Interface of a contestant, and what is measured of it. */
import type { Cell } from './cells.ts';
import type { Expected } from './expected.ts';

export const CONTESTANTS = [
  'millrace',
  'millrace-direct',
  'bare-librdkafka',
  'bare-fetch',
  'flink-heap',
  'flink-rocksdb',
  'kafka-streams',
  'hazelcast-jet',
] as const;
export type Name = (typeof CONTESTANTS)[number];
export const OURS: readonly Name[] = ['millrace', 'millrace-direct'];
export const BARE: readonly Name[] = ['bare-librdkafka', 'bare-fetch'];

/** A cell, its topic, and a new folder for the contestant. */
export interface Task {
  readonly cell: Cell;
  readonly topic: string;
  /** Events in the topic, with those that close the windows. */
  readonly events: number;
  readonly brokers: string;
  /** Registry of the schema of the events; only for Avro. */
  readonly registry: string | undefined;
  readonly folder: string;
  readonly expected: Expected;
  /** Results of the events that close the windows, whose windows never end. */
  readonly tail: Expected;
}

/** The topic read once from its beginning to the last result. */
export interface Drain {
  /** Events per second from the first event to the last result. */
  readonly rate: number;
  /** CPU time of all processes per event, in µs, from a third of the events to the last result. */
  readonly cpuUs: number;
  /** The same from the start of the processes. */
  readonly cpuAllUs: number;
  readonly peakBytes: number;
  /** From the start of the process to its first event and its first result; null: not observed. */
  readonly firstEventMs: number | null;
  readonly firstResultMs: number | null;
  /** Differences to the expected results; empty: none. */
  readonly problems: readonly string[];
}

/** The same with one SIGKILL at half of the events and a restart. */
export interface Recovery {
  /** Share of the events that were read at the kill. */
  readonly share: number;
  /** From the kill until the position of the kill was reached again; null: not observed. */
  readonly recoveryMs: number | null;
  readonly problems: readonly string[];
}

export interface Contestant {
  readonly name: Name;
  readonly title: string;
  /** Settings that a reader needs to judge the comparison. */
  readonly settings: string;
  does(cell: Cell): boolean;
  /** Downloads and builds what it needs. Rejects if that is not possible. */
  open(): Promise<void>;
  drain(task: Task): Promise<Drain>;
  /** Absent if it keeps no state. */
  readonly recover?: (task: Task) => Promise<Recovery>;
}
