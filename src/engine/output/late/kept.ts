/** The late events that can be queried: in the engine's own store, and beside the results of a
 *  PostgreSQL sink. */
import type { ResultShape } from '../columns.ts';
import type { SideTopic } from '../side/sender.ts';
import type { LateEvent } from './events.ts';
import type { LateEventStore, LatePage, LateQuery } from './store.ts';

/** Place beside the engine's own store. */
export interface LatePeer extends SideTopic<LateEvent> {
  /** Receives the shape of the results, whose keys the events have, before the first events. */
  bind(shape: ResultShape): Promise<void>;
}

export class KeptLateEvents implements SideTopic<LateEvent> {
  private readonly store: Pick<LateEventStore, 'send' | 'find'>;
  private readonly others: readonly LatePeer[];

  constructor(store: Pick<LateEventStore, 'send' | 'find'>, others: readonly LatePeer[] = []) {
    this.store = store;
    this.others = others;
  }

  /** See LatePeer. @throws sink_missing */
  async bind(shape: ResultShape): Promise<void> {
    for (const other of this.others) await other.bind(shape);
  }

  /** Settles when the events are durable everywhere. */
  async send(copies: readonly LateEvent[]): Promise<void> {
    for (const other of this.others) await other.send(copies);
    await this.store.send(copies);
  }

  find(query: LateQuery): Promise<LatePage> {
    return this.store.find(query);
  }
}
