/** A store of the registry with what a run needs beside its log. */
import type { HttpRequest, HttpResponse } from '../../io/http/port.ts';
import type { RegistryLog } from '../../registry/store/log.ts';

export interface Store {
  readonly log: RegistryLog;
  /** By which name other instances know this one, where there can be others. */
  readonly instance?: string;
  /** Writes are decided by the leader: `here`, or the instance that is it. */
  writeAtLeader(request: HttpRequest, here: () => Promise<HttpResponse>): Promise<HttpResponse>;
  /** Whether what is known here may be old, because the log is silent. */
  stale?(): boolean;
  /** Whether a write would be taken, here or by another instance. */
  masterAvailable(): boolean;
  close(): void;
}
