/** grpc.health.v1 with the health of the process.
 *
 *  The services are fixed at the start. A Watch on any other name is answered once and not stored:
 *  clients choose such names, and their entries would never be freed.
 */
import {
  type Server,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { service as definition } from 'grpc-health-check';

interface HealthRequest {
  readonly service: string;
}
interface HealthResponse {
  readonly status: 'SERVING' | 'NOT_SERVING' | 'SERVICE_UNKNOWN';
}
type Watch = ServerWritableStream<HealthRequest, HealthResponse>;

const responseOf = (healthy: boolean): HealthResponse => ({ status: healthy ? 'SERVING' : 'NOT_SERVING' });

export class Health {
  /** Watchers by the name of a known service. */
  private readonly watchers: ReadonlyMap<string, Set<Watch>>;
  private healthy = false;

  /** @param services names beside the server itself, whose name is empty */
  constructor(services: readonly string[]) {
    this.watchers = new Map(['', ...services].map((name) => [name, new Set<Watch>()] as const));
  }

  /** Sets the health; watchers get changes only. */
  setHealthy(healthy: boolean): void {
    if (healthy === this.healthy) return;
    this.healthy = healthy;
    for (const watches of this.watchers.values())
      for (const watch of watches) watch.write(responseOf(healthy));
  }

  addTo(server: Pick<Server, 'addService'>): void {
    server.addService(definition, {
      Check: (
        call: ServerUnaryCall<HealthRequest, HealthResponse>,
        answer: sendUnaryData<HealthResponse>,
      ): void => {
        if (this.watchers.has(call.request.service)) answer(null, responseOf(this.healthy));
        else answer({ code: status.NOT_FOUND, details: 'there is no service of this name' });
      },
      Watch: (call: Watch): void => {
        const watches = this.watchers.get(call.request.service);
        if (watches !== undefined) {
          watches.add(call);
          call.on('cancelled', () => watches.delete(call));
        }
        call.write(watches === undefined ? { status: 'SERVICE_UNKNOWN' } : responseOf(this.healthy));
      },
      List: (
        _call: unknown,
        answer: sendUnaryData<{ statuses: Readonly<Record<string, HealthResponse>> }>,
      ): void => {
        const statuses = [...this.watchers.keys()].map((name) => [name, responseOf(this.healthy)] as const);
        answer(null, { statuses: Object.fromEntries(statuses) });
      },
    });
  }
}
