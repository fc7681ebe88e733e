/** The side outputs of a run: late events go to the late topic and to the late events that can be
 *  queried, invalid records to the quarantine.
 *
 *  An invalid record that can be quarantined is never copied to the late topic. The other invalid
 *  records, those of the fixed layout and tombstones, are copied to the late topic as late events
 *  are. */

import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { REFUSAL } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { RefusedBatch } from '../../../core/layout/refused-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { Checkpointer } from '../../durability/checkpoint/checkpointer.ts';
import { engineError } from '../../errors.ts';
import { isFrame } from '../../source/input/judge.ts';
import type { EventDecoder } from '../../source/input/port.ts';
import { EventWords } from '../../source/input/words.ts';
import { faultText } from '../../source/invalid.ts';
import { decodeLateEvents, encodeLateEvents, isLate, type LateEvent } from '../late/events.ts';
import { decodeLate, encodeLate, type LateCopy } from '../late/rows.ts';
import {
  decodeQuarantine,
  encodeQuarantine,
  type InvalidRow,
  isQuarantined,
  type QuarantineCopy,
} from '../quarantine/rows.ts';
import { type Sections, SIDES, type SideName, type Unsent } from './sections.ts';
import { type AnySideOutput, type SideKind, SideOutput, type SideTopic } from './sender.ts';

export const LATE_SIDE: SideKind<LateCopy> = {
  ...{ name: 'late', what: 'late topic', decode: decodeLate, failedCode: 'late_failed' },
};
const QUARANTINE_SIDE: SideKind<QuarantineCopy> = {
  ...{ name: 'quarantine', what: 'quarantine topic', decode: decodeQuarantine },
  failedCode: 'quarantine_failed',
};

/** Bytes of late events at which reading pauses: they are small and their stores are near. */
const EVENTS_BYTES_MAX = 512 * 1024;
const EVENTS_SIDE: SideKind<LateEvent> = {
  ...{ name: 'events', what: 'store of late events', decode: decodeLateEvents, failedCode: 'sink_failed' },
};

export interface SideOutputsParts {
  /** Absent: no copies of late events are made. */
  readonly late?: SideTopic<LateCopy> | undefined;
  /** Absent: late events cannot be queried. */
  readonly events?: SideTopic<LateEvent> | undefined;
  /** Absent: invalid records are only counted. */
  readonly quarantine?: SideTopic<QuarantineCopy> | undefined;
  /** Distance from the watermark to the least event_ts that is in time. */
  readonly latenessMs: number;
  /** False: rows have canonical bytes as keys, and ids that are private. Absent: true. */
  readonly hasIntegerKeys?: (() => boolean) | undefined;
  /** Says why a row is no event. */
  readonly input?: Pick<EventDecoder, 'describe'> | undefined;
  readonly checkpointer: Pick<Checkpointer, 'durable' | 'sent'>;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Bytes of unsent copies of one side output at which reading pauses. */
  readonly bytesMax?: number | undefined;
  /** Called after each send with the number of acknowledged copies. */
  readonly onSent: (side: SideName, copies: number) => void;
}

export class SideOutputs {
  private readonly outputs: Partial<Record<SideName, AnySideOutput>> = {};
  private readonly input: SideOutputsParts['input'];
  private readonly latenessMs: number;
  private readonly hasIntegerKeys: () => boolean;

  /** @param unsent copies of earlier runs that are not acknowledged
   *  @throws late_waiting, quarantine_waiting */
  constructor(parts: SideOutputsParts, unsent: Unsent) {
    const { late, quarantine, events, checkpointer, log, sleep, onSent } = parts;
    this.input = parts.input;
    this.latenessMs = parts.latenessMs;
    this.hasIntegerKeys = parts.hasIntegerKeys ?? (() => true);
    const open = <C>(kind: SideKind<C>, topic: SideTopic<C> | undefined, bytesMax = parts.bytesMax): void => {
      if (topic === undefined) return;
      const own = { kind, topic, onSent: (copies: number) => onSent(kind.name, copies) };
      this.outputs[kind.name] = new SideOutput({ ...own, checkpointer, log, sleep, bytesMax });
    };
    open(LATE_SIDE, late);
    open(QUARANTINE_SIDE, quarantine);
    open(EVENTS_SIDE, events, EVENTS_BYTES_MAX);
    for (const name of SIDES)
      if (unsent[name].length > 0 && this.outputs[name] === undefined && name !== 'events')
        throw waiting(name);
    for (const name of SIDES) for (const rows of unsent[name]) this.outputs[name]?.offer(rows.seq, rows);
    // Late events are not kept any more, so their copies are not needed either.
    const last = unsent.events.at(-1);
    if (last !== undefined && events === undefined) checkpointer.sent('events', last.seq);
  }

  /** True if refused rows are copied anywhere. */
  get areAny(): boolean {
    return this.all.length > 0;
  }

  /** False while the destination is unreachable. */
  isReady(side: SideName): boolean {
    return this.outputs[side]?.ready ?? true;
  }

  /** Copies that are not acknowledged yet. */
  waitingCopies(side: SideName): number {
    return this.outputs[side]?.waitingCopies ?? 0;
  }

  /** Copies the refused rows of a batch, which was decoded last. */
  encode(records: RecordBatch, batch: EventBatch, refused: RefusedBatch): Sections {
    const late: number[] = [];
    const events: number[] = [];
    const invalid: InvalidRow[] = [];
    for (let i = 0; i < refused.rowCount; i++) {
      const row = refused.columns.row[i] as number;
      const status = batch.columns.status[row] as number;
      const reason = refused.columns.reason[i] as number;
      if (isLate(reason)) events.push(i);
      if (reason !== REFUSAL.INVALID || !isQuarantined(status)) late.push(i);
      else if (this.outputs.quarantine !== undefined) invalid.push(this.invalidRow(records, row, status));
    }
    const keys = this.hasIntegerKeys() ? undefined : EventWords.of(batch).keys;
    return {
      ...(late.length === 0 || this.outputs.late === undefined
        ? {}
        : { late: encodeLate(records, refused, late) }),
      ...(invalid.length === 0 ? {} : { quarantine: encodeQuarantine(records, invalid) }),
      ...(events.length === 0 || this.outputs.events === undefined
        ? {}
        : { events: encodeLateEvents({ records, events: batch, refused, keys }, events, this.latenessMs) }),
    };
  }

  /** Sends the copies that the changelog record `seq` holds. */
  offer(seq: number, sections: Sections): void {
    for (const name of SIDES) {
      const side = sections[name];
      if (side !== undefined) this.outputs[name]?.offer(seq, side);
    }
  }

  /** See SideOutput.room. */
  async room(signal: AbortSignal): Promise<void> {
    for (const output of this.all) await output.room(signal);
  }

  /** See SideOutput.flushed. */
  async flushed(signal: AbortSignal): Promise<void> {
    for (const output of this.all) await output.flushed(signal);
  }

  stop(): void {
    for (const output of this.all) output.stop();
  }

  private get all(): readonly AnySideOutput[] {
    return Object.values(this.outputs);
  }

  private invalidRow(records: RecordBatch, row: number, status: number): InvalidRow {
    const value = records.value(row);
    const schemaId =
      value !== null && isFrame(value) ? new DataView(value.buffer, value.byteOffset).getUint32(1, false) : 0;
    return { row, status, schemaId, error: faultText(status, this.input?.describe(records, row)) };
  }
}

const WAITING = {
  late: {
    code: 'late_waiting',
    what: 'late events of the previous run that are not sent to their topic yet',
    next: 'start with -late-topic=TOPIC until they are sent',
  },
  quarantine: {
    code: 'quarantine_waiting',
    what: 'invalid records of the previous run that are not in their quarantine yet',
    next: 'start without -quarantine=off until they are sent',
  },
} as const;

function waiting(side: keyof typeof WAITING): Error {
  const { code, what, next } = WAITING[side];
  return engineError(code, `the changelog holds ${what}`, { next });
}
