/** grpc.health.v1 over what the process says of itself.
 *
 *  The services are known at the start and never change, so a Watch on any other name is answered once and remembered
 *  nowhere: names come from clients, and what is kept of them would never be given free.
 */
import {
  type Server,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { service as definition } from 'grpc-health-check';

interface Asked {
  readonly service: string;
}
interface Told {
  readonly status: 'SERVING' | 'NOT_SERVING' | 'SERVICE_UNKNOWN';
}
type Watch = ServerWritableStream<Asked, Told>;

const told = (healthy: boolean): Told => ({ status: healthy ? 'SERVING' : 'NOT_SERVING' });

export const HEALTH_WATCH = '/grpc.health.v1.Health/Watch';

export class Health {
  /** Who watches, by the name of a service that is here. */
  private readonly watchers: ReadonlyMap<string, Set<Watch>>;
  private healthy = false;

  /** @param services beside the server itself, whose name is empty */
  constructor(services: readonly string[]) {
    this.watchers = new Map(['', ...services].map((name) => [name, new Set<Watch>()] as const));
  }

  /** Watchers hear of changes alone. */
  tell(healthy: boolean): void {
    if (healthy === this.healthy) return;
    this.healthy = healthy;
    for (const watches of this.watchers.values()) for (const watch of watches) watch.write(told(healthy));
  }

  addTo(server: Pick<Server, 'addService'>): void {
    server.addService(definition, {
      Check: (call: ServerUnaryCall<Asked, Told>, answer: sendUnaryData<Told>): void => {
        if (this.watchers.has(call.request.service)) answer(null, told(this.healthy));
        else answer({ code: status.NOT_FOUND, details: 'there is no service of this name' });
      },
      Watch: (call: Watch): void => {
        const watches = this.watchers.get(call.request.service);
        if (watches !== undefined) {
          watches.add(call);
          call.on('cancelled', () => watches.delete(call));
        }
        call.write(watches === undefined ? { status: 'SERVICE_UNKNOWN' } : told(this.healthy));
      },
      List: (_call: unknown, answer: sendUnaryData<{ statuses: Readonly<Record<string, Told>> }>): void => {
        const statuses = [...this.watchers.keys()].map((name) => [name, told(this.healthy)] as const);
        answer(null, { statuses: Object.fromEntries(statuses) });
      },
    });
  }
}
