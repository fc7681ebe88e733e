/** `millrace engine`: computes event-time windows over a topic. `millrace engine export`: prints
 *  the sink as CSV. */

import { coreError } from '../core/errors.ts';
import { engineOf, engineRoutes } from '../engine/api/routes.ts';
import { defineCommand } from '../shell/command.ts';
import { settingTableOf } from '../shell/load-settings.ts';
import { packageVersion } from '../shell/package.ts';
import { engineGate } from './engine/access.ts';
import { exportSink } from './engine/actions/export.ts';
import { enginesOf, runEngine } from './engine/actions/run.ts';
import { ACTION_FLAGS, SETTINGS } from './engine/actions/settings.ts';
import { submitJob } from './engine/flink/submit.ts';
import { readJob } from './engine/jobfile/read.ts';
import { validateJob } from './engine/jobfile/validate.ts';
import { savepointsOf } from './engine/savepoint/begin.ts';
import { saveState } from './engine/savepoint/save.ts';
import { verifyAgainstFlink } from './engine/verify/against.ts';
import { verifyResults } from './engine/verify/recompute.ts';
import { exportSettings, verifySettings } from './engine/windows/settings.ts';

export const command = defineCommand({
  name: 'engine',
  summary: 'Compute exact event-time windows over a topic; also: export, savepoint, validate, verify',
  description: `
Reads every partition of -topic from where the changelog in -state-dir ends, or at first from -start, and upserts the
result of each window into the sink once the watermark has passed its end by the lateness. GET /windows/{key}
answers fired windows, with open=true the others too, GET /windows those of all keys, with top=10 the greatest, both
as CSV or as events of the windows that fire if Accept asks for it. GET /late answers the late events, GET /watermark
how far event time has come. With -auth-rules all need the right to read the resource windows,
and savepoints the right to admin it.

engine savepoint writes the state of a job into a folder: of a running engine (-url), or of a stopped one (-state-dir).
A run with -savepoint begins there, on another machine too, with results that continue where the savepoint ends.

With -checkpoint-store the checkpoints are also stored in a folder or in S3, where the job continues when its machine
is lost; with -standby an engine waits there and takes over. A lease with an epoch keeps two engines from one job.

engine verify recomputes the windows from the topic with an oracle of its own, and compares them with the sink. It ends
with 1 if they differ, and prints the first 20 differences.

A job file (-job) holds the flags of a run in YAML. A run without -format, -key and -time prints the job file that it
inferred from the first records; engine validate checks a job file and prints each mistake with file, line and column.

engine submit runs the job on Apache Flink as Flink SQL, and follows it there: status, savepoint-and-stop, cancel, logs.

  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m
  millrace engine export > results.csv
  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m -sink=postgres:postgres://me@127.0.0.1/shop -migrate
  millrace engine -brokers=127.0.0.1:9092 -topic=orders -key=country -size=1h -sink=parquet:/data/orders -migrate
  millrace engine -brokers=127.0.0.1:9092 -topic=events -window=sliding -size=5m -slide=1m
  millrace engine -brokers=127.0.0.1:9092 -topic=events -window=session -gap=30s
  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1h -mem-budget=512MiB
  millrace engine savepoint -url=http://127.0.0.1:8083 -out=/backup/orders-1
  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m -state-dir=/data/new -savepoint=/backup/orders-1
  millrace engine -job=job.yaml -checkpoint-store=s3://backups/orders -standby
  millrace engine verify -job=job.yaml -verify-from=2026-01-31T00:00:00Z -verify-to=2026-02-01T00:00:00Z
  millrace engine submit -flink=http://flink:8083 -job=job.yaml -flink-table=results_flink -migrate
  millrace engine validate -job=job.yaml && millrace engine -job=job.yaml
`,
  settings: SETTINGS,
  positionalMax: 2,
  positionalHelp: '[export|savepoint|submit|validate|verify]',
  file: { flag: 'job', isRead: ([action]) => action !== 'validate', read: readJob },
  serves: ([action]) => action === undefined,
  // A token may be long.
  httpNeeds: ({ settings }) => (settings['auth-jwks'] === undefined ? [] : ['long_heads']),
  routes: (context) => {
    const gate = engineGate(context);
    const timers = context.clock;
    return engineRoutes((window) => engineOf(enginesOf(context), window), packageVersion(), {
      timers,
      savepoints: () => savepointsOf(context),
      ...(gate === undefined ? {} : { gate }),
    });
  },
  async run(context) {
    const [action, more] = context.positional;
    if (action === 'submit') return submitJob(context);
    if (more !== undefined)
      throw coreError('usage', `engine ${action} has no ${more}`, { next: 'see -help' });
    if (action === 'export') return exportSink({ ...context, settings: exportSettings(context.settings) });
    if (action === 'savepoint') return saveState(context);
    if (action === 'verify')
      return context.settings.against === undefined
        ? verifyResults(context, verifySettings(context.settings))
        : verifyAgainstFlink(context);
    if (action === 'validate') return validateJob(context, settingTableOf({ settings: SETTINGS }));
    if (action !== undefined) {
      throw coreError(
        'usage',
        `engine accepts only the arguments export, savepoint, submit, validate and verify, not ${JSON.stringify(action)}`,
        {
          next: 'see -help',
        },
      );
    }
    for (const [flag, other] of ACTION_FLAGS) {
      if (!context.isFlag(flag)) continue;
      throw coreError('usage', `-${flag} changes nothing without ${other}`, {
        next: `leave -${flag} out, or run engine ${other}`,
      });
    }
    return runEngine(context);
  },
});
