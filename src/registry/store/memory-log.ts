/** Log that keeps nothing: the registry's memory is the only copy and ends with the process. */
import type { LogRole, OpenReport, RegistryLog } from './log.ts';

export class MemoryLog implements RegistryLog {
  readonly name = 'memory';

  async open(): Promise<OpenReport> {
    return { records: 0, tornBytes: 0 };
  }
  async append(): Promise<void> {}
  async catchUp(): Promise<void> {}
  role(): LogRole {
    return { leader: true };
  }
  async close(): Promise<void> {}
}
