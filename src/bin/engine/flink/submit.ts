/** `millrace engine submit`: runs the job on Apache Flink, and follows it there. */
import { coreError, EXIT } from '../../../core/errors.ts';
import { coordinatesOf, FLINK_VERSION } from '../../../engine/flink/jars.ts';
import { type FlinkScript, flinkScript } from '../../../engine/flink/script.ts';
import { resultShape } from '../../../engine/output/columns.ts';
import { quotedText } from '../../../formats/flink/sql.ts';
import { openSink } from '../sinks.ts';
import { runStatements } from './gateway.ts';
import { serverOf } from './http.ts';
import { fetchJars } from './jars.ts';
import {
  cancelJob,
  type FlinkJobs,
  findJob,
  type JobStatus,
  jobLogs,
  jobStatus,
  savepointAndStop,
} from './jobs.ts';
import { type FlinkContext, flinkName, flinkPlan, secretsOfPlan, sinkContext } from './plan.ts';

const ACTIONS = ['status', 'savepoint-and-stop', 'cancel', 'logs'] as const;
type Action = (typeof ACTIONS)[number];

export async function submitJob(context: FlinkContext): Promise<number> {
  const [, given] = context.positional;
  const action = ACTIONS.find((one) => one === given);
  if (given !== undefined && action === undefined)
    throw coreError('usage', `engine submit has no action ${JSON.stringify(given)}`, {
      next: `give none, or ${ACTIONS.join(', ')}`,
    });
  if (action !== undefined) return follow(context, action);
  return context.settings.explain ? explain(context) : submit(context);
}

async function explain(context: FlinkContext): Promise<number> {
  const script = flinkScript(await flinkPlan(context, true));
  const { statements, jars, notes } = script;
  context.print(scriptText(script), {
    flink: FLINK_VERSION,
    jars: jars.map(coordinatesOf),
    notes,
    statements,
  });
  return EXIT.done;
}

/** Text that Flink's SQL client reads as it is. */
function scriptText({ statements, jars, notes }: FlinkScript): string {
  const comment = (text: string): string => `-- ${text}`;
  return [
    comment(`Apache Flink ${FLINK_VERSION}, with the jars of its distribution and`),
    ...jars.map((jar) => comment(`  ${coordinatesOf(jar)}`)),
    ...notes.map(comment),
    '',
    ...statements.map((statement) => `${statement};\n`),
  ]
    .join('\n')
    .trimEnd();
}

async function submit(context: FlinkContext): Promise<number> {
  const { settings, log, clock, drain } = context;
  if (settings.flink === undefined)
    throw coreError('usage', 'engine submit needs -flink', {
      next: 'give -flink=http://host:8083 of the SQL gateway, or -explain',
      details: { setting: 'flink' },
    });
  const plan = await flinkPlan(context, false);
  const server = serverOf('flink', settings.flink, secretsOfPlan(plan));
  const script = flinkScript(plan);
  // The connector finds the table missing only when the job runs.
  await openSink(sinkContext(context), resultShape(plan.job), { job: plan.job });
  const folder = settings['flink-jars'];
  const limits = { clock, signal: drain };
  const jars = folder === undefined ? [] : await fetchJars(folder, script.jars, limits);
  log.info({ jars: script.jars.map(coordinatesOf) }, 'the job needs jars in Flink');
  const added = jars.map((path) => `ADD JAR ${quotedText(path)}`);
  const job = await runStatements(server, [...added, ...script.statements], limits);
  const next = `millrace engine submit status -flink-rest=http://HOST:8081 -flink-job=${job}`;
  context.print(`job ${job} (${plan.name}) was submitted; ${next} shows it`, {
    job,
    name: plan.name,
    jars: script.jars.map(coordinatesOf),
    notes: script.notes,
  });
  return EXIT.done;
}

async function follow(context: FlinkContext, action: Action): Promise<number> {
  const { settings, clock, drain } = context;
  const address = settings['flink-rest'];
  if (address === undefined)
    throw coreError('usage', `engine submit ${action} needs -flink-rest`, {
      next: 'give -flink-rest=http://host:8081 of the job manager',
      details: { setting: 'flink-rest' },
    });
  const jobs: FlinkJobs = { server: serverOf('flink-rest', address), clock, signal: drain };
  const name = settings['flink-job'] === undefined ? flinkName(context) : '';
  const job = await findJob(jobs, settings['flink-job'], name);
  switch (action) {
    case 'status': {
      const status = await jobStatus(jobs, job);
      context.print(statusText(status), status);
      return status.state === 'FAILED' ? EXIT.no : EXIT.done;
    }
    case 'savepoint-and-stop': {
      const savepoint = await savepointAndStop(jobs, job, settings['flink-savepoint-dir']);
      context.print(
        `job ${job} has stopped; its savepoint is ${savepoint}; -flink-from=${savepoint} begins with it`,
        {
          job,
          savepoint,
        },
      );
      return EXIT.done;
    }
    case 'cancel': {
      const state = await cancelJob(jobs, job);
      context.print(`job ${job} is ${state}`, { job, state });
      return EXIT.done;
    }
    case 'logs': {
      const { failures, logs } = await jobLogs(jobs, job);
      const text = [
        ...failures.map((failure) => `failure: ${failure}`),
        ...logs.map(({ process, end }) => `${process}:\n${end ?? '  no log in a file'}`),
      ];
      context.print(text.join('\n'), { job, failures, logs });
      return EXIT.done;
    }
  }
}

function statusText({ job, name, state, seconds, tasks, checkpoint, failure }: JobStatus): string {
  const since =
    checkpoint === null ? 'no checkpoint' : `checkpoint ${checkpoint.id} of ${checkpoint.bytes} B`;
  return [
    `job ${job} (${name}) is ${state} after ${Math.round(seconds)} s, ${since}`,
    ...tasks.map(
      (task) =>
        `  ${task.name.slice(0, 80)}: ${task.state}, ${task.parallelism} parallel, ${task.read} in, ${task.written} out`,
    ),
    ...(failure === null ? [] : [`  last failure: ${failure}`]),
  ].join('\n');
}
