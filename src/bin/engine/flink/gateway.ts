/** Runs statements in a session of Flink's SQL gateway, by version 3 of its REST interface. */
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { engineError } from '../../../engine/errors.ts';
import { ask, type FlinkAnswer, type FlinkServer } from './http.ts';

/** Pause between two questions about a statement. */
const POLL_MS = 250;
/** Time for one statement: the last one uploads the jars. */
const STATEMENT_MS_MAX = 300_000;

interface GatewayOptions {
  readonly clock: Timers;
  readonly signal: AbortSignal;
}

/** Runs statements in their order, the last of which starts a job. Returns its id.
 *  @throws flink_unreachable; flink_refused */
export async function runStatements(
  server: FlinkServer,
  statements: readonly string[],
  options: GatewayOptions,
): Promise<string> {
  const { sessionHandle } = await ask(server, 'POST', '/v3/sessions', { sessionName: 'millrace' });
  if (typeof sessionHandle !== 'string') throw foreign(server, 'a session');
  const session = `/v3/sessions/${encodeURIComponent(sessionHandle)}`;
  try {
    let job: string | undefined;
    for (const statement of statements) job = await run(server, session, statement, options);
    if (job === undefined) throw foreign(server, 'the id of a job');
    return job;
  } finally {
    // The job outlives its session.
    await ask(server, 'DELETE', session).catch(() => undefined);
  }
}

const foreign = ({ url }: FlinkServer, what: string): Error =>
  engineError('flink_refused', `the SQL gateway of Flink at ${url} answers without ${what}`, {
    next: 'give -flink the address of a SQL gateway of Flink 2',
  });

/** Runs a statement to its end. Returns the id of its job; undefined: it has none. */
async function run(
  server: FlinkServer,
  session: string,
  statement: string,
  { clock, signal }: GatewayOptions,
): Promise<string | undefined> {
  const { operationHandle } = await ask(server, 'POST', `${session}/statements`, { statement });
  if (typeof operationHandle !== 'string') throw foreign(server, 'an operation');
  const operation = `${session}/operations/${encodeURIComponent(operationHandle)}`;
  const startMs = clock.monotonicMs();
  for (;;) {
    const answer = await ask(server, 'GET', `${operation}/result/0?rowFormat=JSON`);
    if (answer['resultType'] !== 'NOT_READY') {
      await ask(server, 'DELETE', `${operation}/close`).catch(() => undefined);
      return jobOf(answer);
    }
    if (signal.aborted) throw coreError('closed', 'engine submit was stopped before the job was submitted');
    if (clock.monotonicMs() - startMs > STATEMENT_MS_MAX)
      throw engineError(
        'flink_unreachable',
        `the SQL gateway has not run a statement within ${STATEMENT_MS_MAX / 1000} s`,
        {
          next: 'see its log, and the web interface of Flink for a job that was submitted all the same',
        },
      );
    await sleep(clock, POLL_MS, signal);
  }
}

function jobOf(answer: FlinkAnswer): string | undefined {
  const { jobID, results } = answer as {
    readonly jobID?: unknown;
    readonly results?: { readonly data?: unknown };
  };
  if (typeof jobID === 'string') return jobID;
  const [row] = Array.isArray(results?.data)
    ? (results.data as readonly { readonly fields?: unknown }[])
    : [];
  const [field] = Array.isArray(row?.fields) ? (row.fields as readonly unknown[]) : [];
  return typeof field === 'string' && /^[0-9a-f]{32}$/.test(field) ? field : undefined;
}
