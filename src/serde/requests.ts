/** Requests of a registry client: repeated while the registry is unavailable, and counted. */
import { type Random, sleep, type Timers } from '../core/clock.ts';
import type { Counter, Histogram, Metrics } from '../core/metrics.ts';
import { namedContext } from '../core/subject.ts';
import { serdeError } from './errors.ts';
import type { RegistryTransport, TransportAnswer } from './transport.ts';

/** Sends the requests of a client, with its own retries. */
export interface RegistryRequests {
  /** @param operation name of the request in metrics
   *  @returns an answer below 500 and other than 429
   *  @throws registry_unavailable, registry_protocol */
  ask(
    operation: string,
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    body?: unknown,
  ): Promise<TransportAnswer>;
  /** Number of ids whose schema was answered, over all clients that share these requests. Absent:
   *  unknown. */
  distinctIds?(): number;
}

interface RetryOptions {
  readonly transport: RegistryTransport;
  readonly clock: Timers;
  readonly random: Pick<Random, 'fraction'>;
  readonly metrics: Metrics;
  readonly retries: number;
  readonly retryDelayMs: number;
}

/** Requests over a transport, with exponential delays between attempts. */
export class RetriedRequests implements RegistryRequests {
  private readonly options: RetryOptions;
  private readonly requests: Counter;
  private readonly requestSeconds: Histogram;

  constructor(options: RetryOptions) {
    this.options = options;
    this.requests = options.metrics.counter(
      'registry_client_requests_total',
      'Requests sent to the registry.',
      ['operation', 'status'],
    );
    this.requestSeconds = options.metrics.histogram(
      'registry_client_request_seconds',
      'Round trip of a request that the registry answered.',
      ['operation'],
    );
  }

  async ask(
    operation: string,
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    body?: unknown,
  ): Promise<TransportAnswer> {
    const { transport, clock, random, retries, retryDelayMs } = this.options;
    for (let attempt = 0; ; attempt++) {
      let failure: unknown;
      const startMs = clock.monotonicMs();
      try {
        const answer = await transport.request(method, path, body);
        this.requestSeconds.observe(
          (clock.monotonicMs() - startMs) / 1000,
          this.requestSeconds.series(operation),
        );
        this.requests.add(1, this.requests.series(operation, String(answer.status)));
        if (answer.status < 500 && answer.status !== 429) return answer;
        failure = serdeError(
          'registry_unavailable',
          `the registry answers ${answer.status}: ${messageOf(answer)}`,
          { next: "see the registry's log" },
        );
      } catch (thrown) {
        this.requests.add(1, this.requests.series(operation, 'none'));
        failure = thrown;
      }
      if (attempt >= retries) throw failure;
      // Jitter: clients that failed together must not retry together.
      await sleep(clock, retryDelayMs * 2 ** attempt * (0.5 + random.fraction()));
    }
  }
}

/** Path of the schema of an id. Ids count from 1 in each context.
 *  @param subject names the context, such as `:.context:`; empty: that of the registry's address */
export const schemaPath = (id: number, subject: string): string =>
  `/schemas/ids/${id}${subject === '' ? '' : `?subject=${encodeURIComponent(subject)}`}`;

/** Subject that stands for a whole context. */
export const contextSubject = (context: string): string => (context === '' ? '' : `:${context}:`);

/** Context of the id in the answer for a version: the alias of a subject may lead to another
 *  context. @param answered `subject` of the answer */
export const contextOfVersion = (requested: string, answered: unknown): string =>
  (typeof answered === 'string' && namedContext(answered)) || namedContext(requested);

export const isSuccess = ({ status }: TransportAnswer): boolean => status >= 200 && status < 300;

/** Registry's `error_code`; undefined for a body that is not a registry's error. */
export function errorNumber(answer: TransportAnswer): number | undefined {
  try {
    const number = (JSON.parse(answer.body) as { error_code?: unknown } | null)?.error_code;
    return typeof number === 'number' ? number : undefined;
  } catch {
    return undefined;
  }
}

/** Registry's message, or the beginning of a body that is not JSON. */
export function messageOf(answer: TransportAnswer): string {
  try {
    const { message } = JSON.parse(answer.body) as { message?: unknown };
    if (typeof message === 'string') return message.slice(0, 4096);
  } catch {
    // The body is not JSON.
  }
  return answer.body.slice(0, 200);
}
