/** An open store of the registry: its log and its role among the instances. */
import type { HttpRequest, HttpResponse } from '../../io/http/port.ts';
import type { RegistryLog } from '../../registry/store/log.ts';

export interface Store {
  readonly log: RegistryLog;
  /** Name of this instance for the others; absent if there are no others. */
  readonly instance?: string;
  /** Decides a write on the leader: with `here` if this instance leads, else by forwarding the
   *  request. */
  writeAtLeader(request: HttpRequest, here: () => Promise<HttpResponse>): Promise<HttpResponse>;
  /** True if the local state may be stale because the log does not answer. */
  stale?(): boolean;
  /** True if a write would be accepted, here or by another instance. */
  masterAvailable(): boolean;
  close(): void;
}
