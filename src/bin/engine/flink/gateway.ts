/** Runs statements in a session of Flink's SQL gateway, by version 3 of its REST interface. */
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import { engineError } from '../../../engine/errors.ts';
import { ask, type FlinkAnswer, type FlinkLink, type FlinkServer } from './http.ts';

/** Pause between two questions about a statement. */
const POLL_MS = 250;
/** Time for one statement: the last one uploads the jars. */
const STATEMENT_MS_MAX = 300_000;
/** Timeout of the close of an operation or a session, which a stop does not skip. */
const CLOSE_MS_MAX = 5_000;

interface GatewayOptions {
  readonly clock: Timers;
  readonly signal: AbortSignal;
}

interface Statement {
  readonly text: string;
  /** `statement 3 of 14 (CREATE TEMPORARY TABLE)`; the rest of the text may have secrets. */
  readonly title: string;
  /** The last statement starts the job. */
  readonly isLast: boolean;
}

/** Runs statements in their order, the last of which starts a job. Returns its id.
 *  @throws flink_unreachable; flink_refused; interrupted */
export async function runStatements(
  server: FlinkServer,
  statements: readonly string[],
  options: GatewayOptions,
): Promise<string> {
  const link: FlinkLink = { server, ...options };
  const { sessionHandle } = await ask(link, 'POST', '/v3/sessions', { sessionName: 'millrace' });
  if (typeof sessionHandle !== 'string') throw foreign(server, 'a session');
  const session = `/v3/sessions/${encodeURIComponent(sessionHandle)}`;
  try {
    let job: string | undefined;
    for (const [at, text] of statements.entries()) {
      const words = /^[A-Z]+(?: [A-Z]+)*/.exec(text)?.[0] ?? 'SQL';
      const title = `statement ${at + 1} of ${statements.length} (${words})`;
      job = await run(link, session, { text, title, isLast: at === statements.length - 1 });
    }
    if (job === undefined) throw foreign(server, 'the id of a job');
    return job;
  } finally {
    // The job outlives its session.
    await close(link, session);
  }
}

/** Closes a session or an operation, even after a stop. A failure is no reason to fail. */
async function close(link: FlinkLink, path: string): Promise<void> {
  const unstopped = { ...link, signal: new AbortController().signal, timeoutMs: CLOSE_MS_MAX };
  await ask(unstopped, 'DELETE', path).catch(() => undefined);
}

const foreign = ({ url }: FlinkServer, what: string): Error =>
  engineError('flink_refused', `the SQL gateway of Flink at ${url} answers without ${what}`, {
    next: 'give -flink the address of a SQL gateway of Flink 2',
  });

/** Runs a statement to its end. Returns the id of its job; undefined: it has none. */
async function run(link: FlinkLink, session: string, statement: Statement): Promise<string | undefined> {
  try {
    return await result(link, session, statement);
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'interrupted') throw thrown;
    throw statement.isLast
      ? coreError('interrupted', 'engine submit was stopped while Flink started the job, which may run', {
          next: 'look for the job in the web interface of Flink before you submit it again',
          cause: thrown,
        })
      : coreError('interrupted', 'engine submit was stopped before the job was submitted', {
          next: 'submit it again',
          cause: thrown,
        });
  }
}

async function result(link: FlinkLink, session: string, statement: Statement): Promise<string | undefined> {
  const { server, clock, signal } = link;
  const { operationHandle } = await ask(link, 'POST', `${session}/statements`, { statement: statement.text });
  if (typeof operationHandle !== 'string') throw foreign(server, 'an operation');
  const operation = `${session}/operations/${encodeURIComponent(operationHandle)}`;
  const startMs = clock.monotonicMs();
  for (;;) {
    const answer = await ask(link, 'GET', `${operation}/result/0?rowFormat=JSON`);
    if (answer['resultType'] !== 'NOT_READY') {
      await close(link, `${operation}/close`);
      return jobOf(answer);
    }
    if (clock.monotonicMs() - startMs > STATEMENT_MS_MAX) throw overdue(server, statement);
    await sleep(clock, POLL_MS, signal);
  }
}

const overdue = ({ url }: FlinkServer, { title, isLast }: Statement): Error =>
  engineError(
    'flink_unreachable',
    `the SQL gateway of Flink at ${url} has not run ${title} within ${STATEMENT_MS_MAX / 1000} s`,
    {
      next: isLast
        ? 'see its log, and the web interface of Flink for a job that was submitted all the same'
        : 'see its log; no job was submitted',
    },
  );

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
