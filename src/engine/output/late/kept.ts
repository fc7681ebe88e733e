/** The late events that can be queried: in the engine's own store, and beside the results of a
 *  PostgreSQL sink. */
import type { SideTopic } from '../side/sender.ts';
import type { LateEvent } from './events.ts';
import type { LateEventStore, LatePage, LateQuery } from './store.ts';

export class KeptLateEvents implements SideTopic<LateEvent> {
  private readonly store: Pick<LateEventStore, 'send' | 'find'>;
  private readonly others: readonly SideTopic<LateEvent>[];

  constructor(store: Pick<LateEventStore, 'send' | 'find'>, others: readonly SideTopic<LateEvent>[] = []) {
    this.store = store;
    this.others = others;
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
