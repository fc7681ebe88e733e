/** Loads that apply to any registry: lookups by id, registrations, identical registrations, checks,
 *  and cold clients. */
import { setTimeout as sleep } from 'node:timers/promises';
import { invariant } from '../src/core/errors.ts';
import { Metrics } from '../src/core/metrics.ts';
import { systemRandom } from '../src/io/clock/system.ts';
import { RegistryClient } from '../src/serde/client.ts';
import { fetchTransport } from '../src/serde/transport.ts';
import { systemClock } from '../src/shell/clock.ts';
import { driveLoad, type LoadPlan, type LoadReport, type LoadRequest, NUMBER } from './http-load.ts';
import { ask, HEADERS, registration, smallSchema, type Target } from './registry-server.ts';

const COLD_LOOKUP_EVERY_MS = 5;
const FILL_MS_MAX = 900_000;
/** A load may end before this process completes a single lookup. */
const COLD_PASSES_MAX = 20;
export const FILL_CONNECTIONS = 64;
/** Subjects that receive proposed schemas in turn. */
const PAIR_SUBJECTS = 100;

export interface LoadSizes {
  readonly warmupMs: number;
  readonly durationMs: number;
  /** True to continue on a machine that cannot send at the requested rate. */
  readonly lenient?: boolean;
}

/** Runs a load. Every answer must be 200, and no connection may fail. */
async function drive(plan: LoadPlan, signal: AbortSignal): Promise<LoadReport> {
  const report = await driveLoad(plan, signal);
  const { statuses, failures, answered } = report;
  invariant(answered > 0, `${plan.url} answers`);
  invariant(
    Object.keys(statuses).join() === '200' && failures === 0,
    `${plan.url} answers 200 and keeps its connections: ${JSON.stringify(statuses)}, ${failures} failures, ${report.firstBodies[0]}`,
  );
  return report;
}

/** Loads on one registry, with the names used there by this run. */
export class RegistryLoads {
  readonly target: Target;
  private readonly run: string;
  private readonly sizes: LoadSizes;
  private readonly signal: AbortSignal;
  private next = 0;
  private ids: readonly number[] = [];

  constructor(target: Target, run: string, sizes: LoadSizes, signal: AbortSignal) {
    this.target = target;
    this.run = run;
    this.sizes = sizes;
    this.signal = signal;
  }

  private request(method: string, path: string, body?: string): LoadRequest {
    const prefix = new URL(this.target.url).pathname.replace(/\/$/, '');
    return { method, path: `${prefix}${path}`, headers: HEADERS, ...(body === undefined ? {} : { body }) };
  }

  private post(path: string, body: string): LoadRequest {
    return this.request('POST', path, body);
  }

  private plan(part: Pick<LoadPlan, 'connections' | 'requests'> & Partial<LoadPlan>): LoadPlan {
    return { url: this.target.url, ...this.sizes, ...part };
  }

  /** Registrations of distinct records under distinct subjects. */
  private get fresh() {
    const name = `bench-${this.run}-${NUMBER}`;
    return this.post(`/subjects/${name}/versions`, registration(smallSchema(`R${this.run}_${NUMBER}`)));
  }

  /** Registers at least `count` schemas, however long it takes, and remembers `count` ids for the
   *  lookups. */
  async fill(count: number): Promise<void> {
    const first = this.next;
    await this.register(count);
    const ids: number[] = [];
    // Sequential: this part is not measured.
    for (let n = first; n < first + count; n++) {
      const answer = await ask(this.target, 'GET', `/subjects/bench-${this.run}-${n}/versions/1`);
      ids.push((answer as { readonly id: number }).id);
    }
    this.ids = ids;
  }

  /** Uses the ids that another instance registered: the paths are the same. */
  borrowIds(from: RegistryLoads): void {
    this.ids = from.ids;
  }

  /** Registers at least `count` schemas over FILL_CONNECTIONS connections. */
  async register(count: number, schema = smallSchema(`R${this.run}_${NUMBER}`)): Promise<LoadReport> {
    const request = this.post(`/subjects/bench-${this.run}-${NUMBER}/versions`, registration(schema));
    return this.drive({
      connections: FILL_CONNECTIONS,
      requests: [request],
      warmupMs: 0,
      durationMs: FILL_MS_MAX,
      countMax: count,
    });
  }

  private async drive(part: Parameters<RegistryLoads['plan']>[0]): Promise<LoadReport> {
    const report = await drive(this.plan({ firstNumber: this.next, ...part }), this.signal);
    this.next = report.nextNumber;
    return report;
  }

  private get lookups() {
    return this.ids.map((id) => this.request('GET', `/schemas/ids/${id}`));
  }

  async lookupRate(connections: number): Promise<number> {
    return (await this.drive({ connections, requests: this.lookups })).ratePerSecond;
  }

  /** Open model: 99th percentile in ms from the due time of each request. */
  async lookupP99Ms(ratePerSecond: number, connections: number): Promise<number> {
    const report = await this.drive({ connections, requests: this.lookups, ratePerSecond });
    return report.latencyUs.p99 / 1000;
  }

  async registrationRate(connections: number): Promise<number> {
    return (await this.drive({ connections, requests: [this.fresh] })).ratePerSecond;
  }

  /** Rate of registrations of a schema that its subject already has. */
  async repeatRate(connections: number): Promise<number> {
    const body = registration(smallSchema(`Same${this.run}`));
    const path = `/subjects/bench-${this.run}-same/versions`;
    await ask(this.target, 'POST', path, body);
    return (await this.drive({ connections, requests: [this.post(path, body)] })).ratePerSecond;
  }

  /** Rate of checks of a schema that adds a field with a default. */
  async checkRate(connections: number): Promise<number> {
    const subject = `bench-${this.run}-checked`;
    const fields = [{ name: 'a', type: 'long' }];
    const schema = (more: readonly object[]): string =>
      JSON.stringify({ type: 'record', name: `Checked${this.run}`, fields: [...fields, ...more] });
    await ask(this.target, 'POST', `/subjects/${subject}/versions`, registration(schema([])));
    const body = registration(schema([{ name: 'b', type: 'string', default: '' }]));
    const path = `/compatibility/subjects/${subject}/versions/latest`;
    const verdict = (await ask(this.target, 'POST', path, body)) as { readonly is_compatible: boolean };
    invariant(verdict.is_compatible, 'a field with a default may be added');
    return (await this.drive({ connections, requests: [this.post(path, body)] })).ratePerSecond;
  }

  /** Rate of checks of distinct pairs: consecutive requests use different schemas and subjects, so
   *  that no cached verdict or parsed text helps. */
  async checkDistinctRate(connections: number): Promise<number> {
    const subject = (n: number): string => `bench-${this.run}-pair-${n}`;
    const schema = (n: number, more: readonly object[]): string =>
      JSON.stringify({
        type: 'record',
        name: `Pair${this.run}_${n}`,
        fields: [
          { name: 'order_id', type: 'string' },
          { name: 'account_id', type: 'long' },
          { name: 'status', type: { type: 'enum', name: 'Status', symbols: ['PLACED', 'PAID', 'SHIPPED'] } },
          { name: 'currency', type: ['null', 'string'], default: null },
          { name: `of_${n}`, type: 'int' },
          ...more,
        ],
      });
    // The proposed schema has an added field, so that it is checked and compatible.
    const added = { name: `added_${NUMBER}`, type: 'string', default: '' };
    const checkPath = (n: number): string => `/compatibility/subjects/${subject(n)}/versions/latest`;
    const body = (n: number): string => registration(schema(n, [added]));
    const checks: LoadRequest[] = [];
    for (let n = 0; n < PAIR_SUBJECTS; n++) {
      await ask(this.target, 'POST', `/subjects/${subject(n)}/versions`, registration(schema(n, [])));
      checks.push(this.post(checkPath(n), body(n)));
    }
    const verdict = (await ask(this.target, 'POST', checkPath(0), body(0).replaceAll(NUMBER, 'x'))) as {
      readonly is_compatible: boolean;
    };
    invariant(verdict.is_compatible, 'a field with a default may be added');
    return (await this.drive({ connections, requests: checks })).ratePerSecond;
  }

  /** 99th percentile in ms of lookups by clients with an empty cache, while schemas are registered
   *  at a rate. */
  async coldLookupP99Ms(registrationsPerSecond: number): Promise<number> {
    let latencies: number[] = [];
    for (let pass = 0; latencies.length === 0 && pass < COLD_PASSES_MAX; pass++)
      latencies = await this.coldLookups(registrationsPerSecond);
    invariant(latencies.length > 0, 'some lookups were measured');
    latencies.sort((a, b) => a - b);
    return latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * 0.99))] as number;
  }

  private async coldLookups(registrationsPerSecond: number): Promise<number[]> {
    let over = false;
    const load = this.drive({
      connections: 16,
      requests: [this.fresh],
      ratePerSecond: registrationsPerSecond,
    }).finally(() => {
      over = true;
    });
    await sleep(this.sizes.warmupMs);
    const latencies: number[] = [];
    let client: RegistryClient | undefined;
    for (let turn = 0; !over; turn++) {
      // Each client looks up each id at most once, so every lookup is cold.
      if (turn % this.ids.length === 0 || client === undefined) {
        client = new RegistryClient({
          transport: fetchTransport({ url: this.target.url, timeoutMs: 10_000, clock: systemClock }),
          clock: systemClock,
          random: systemRandom,
          metrics: new Metrics(),
          unknownForMs: 1000,
          retries: 0,
          retryDelayMs: 0,
        });
      }
      const started = performance.now();
      await client.schemaById(this.ids[turn % this.ids.length] as number);
      const took = performance.now() - started;
      if (!over) latencies.push(took);
      await sleep(COLD_LOOKUP_EVERY_MS);
    }
    const { ratePerSecond, unsent } = await load;
    // A percentile under another load is not comparable; a smoke run tolerates it.
    invariant(
      this.sizes.lenient === true || ratePerSecond >= registrationsPerSecond * 0.9,
      `the registrations keep their rate: ${ratePerSecond.toFixed(0)}/s, ${unsent} not sent`,
    );
    return latencies;
  }
}
