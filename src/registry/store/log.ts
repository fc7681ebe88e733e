/** Where the registry's events are kept. An answer is given only after `append` has settled. */
import type { RegistryEvent } from './event.ts';

export interface OpenReport {
  readonly events: readonly RegistryEvent[];
  /** Bytes of an unfinished last write that were cut off; none of them was ever acknowledged. */
  readonly tornBytes: number;
}

export interface RegistryLog {
  readonly name: string;
  /** Reads everything there is. Call once, before append. @throws store_corrupt, store_locked, not_writable */
  open(): Promise<OpenReport>;
  /** Resolves when the event survives a crash. One call at a time. @throws store_failed, and then nothing was kept */
  append(event: RegistryEvent): Promise<void>;
  close(): Promise<void>;
}

/** Keeps events for as long as the process lives. */
export class MemoryLog implements RegistryLog {
  readonly name = 'memory';
  private readonly kept: RegistryEvent[] = [];

  async open(): Promise<OpenReport> {
    return { events: [...this.kept], tornBytes: 0 };
  }
  async append(event: RegistryEvent): Promise<void> {
    this.kept.push(event);
  }
  async close(): Promise<void> {}
}
