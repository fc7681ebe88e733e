/** `millrace slo`: scrapes the metrics of running processes and compares them with the required
 *  limits. */
import { coreError, EXIT } from '../core/errors.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { judge, type RuleVerdict } from '../slo/judge.ts';
import { BOUNDS, BUILT_IN, readRules } from '../slo/rules.ts';
import { metricsAddress, scrape } from '../slo/scrape.ts';
import { tableOf } from '../slo/table.ts';

const SETTINGS = {
  scrape: {
    type: 'list',
    required: true,
    help: 'http addresses of the processes to scrape, with commas between',
  },
  for: {
    type: 'duration',
    default: '60s',
    min: 0,
    max: 86_400_000,
    help: 'how long the processes are observed; 0: a single scrape, which covers the time since they started',
  },
  every: {
    type: 'duration',
    default: '0',
    min: 0,
    help: 'time between two scrapes; 0: a sixtieth of -for, at least 1s',
  },
  rules: {
    type: 'list',
    default: 'registry',
    help: `rule files, or names of built-in rule sets: ${BUILT_IN.join(', ')}`,
  },
  only: { type: 'list', default: '', help: 'ids of the rules to check; empty: all' },
  skip: { type: 'list', default: '', help: 'ids of rules to leave out' },
  'allow-missing': {
    type: 'bool',
    default: 'false',
    help: 'a rule without data is no failure',
  },
  timeout: { type: 'duration', default: '5s', min: 10, help: 'timeout of one scrape' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

const SCRAPES = 60;
const EVERY_MIN_MS = 1000;

function rulesOf({ settings }: Context) {
  const rules = settings.rules.flatMap((one) => readRules(one).rules);
  const ids = new Set(rules.map(({ id }) => id));
  if (ids.size < rules.length) {
    throw coreError('bad_file', 'two of the rules files have a rule of the same id', {
      next: 'rename one of them',
    });
  }
  for (const flag of ['only', 'skip'] as const) {
    const unknown = settings[flag].find((id) => !ids.has(id));
    if (unknown !== undefined) {
      throw coreError('bad_value', `-${flag}=${unknown} is no rule`, {
        next: `the rules are ${[...ids].join(', ')}`,
      });
    }
  }
  const chosen = rules.filter(
    ({ id }) => (settings.only.length === 0 || settings.only.includes(id)) && !settings.skip.includes(id),
  );
  if (chosen.length === 0) {
    throw coreError('bad_value', 'no rule is left to judge by', { next: 'change -rules, -only or -skip' });
  }
  return chosen;
}

function documentOf({ rule, verdict, value, from, note }: RuleVerdict): unknown {
  const bound = BOUNDS.find((one) => one === rule.bound);
  return {
    id: rule.id,
    says: rule.says,
    verdict,
    value: value ?? null,
    ...(from === undefined ? {} : { from }),
    unit: rule.unit,
    bound,
    limit: rule.limit,
    over: rule.over,
    note,
  };
}

async function run(context: Context): Promise<number> {
  const { settings, clock, log } = context;
  const rules = rulesOf(context);
  const targets = [...new Set(settings.scrape.map(metricsAddress))];
  if (targets.length === 0)
    throw coreError('usage', '-scrape names no process', { next: 'give -scrape=http://host:port' });
  const progress = context.progress({ what: 'slo', unit: 'scrapes' });
  const scrapes = context.metrics.counter('slo_scrapes_total', 'Scrapes of other processes.', ['outcome']);
  const startMs = clock.monotonicMs();
  const scraped = await scrape({
    targets,
    keep: new Set(rules.flatMap(({ of, to }) => [...of, ...to]).map(({ metric }) => metric)),
    forMs: settings.for,
    everyMs: settings.every > 0 ? settings.every : Math.max(EVERY_MIN_MS, settings.for / SCRAPES),
    timeoutMs: settings.timeout,
    clock,
    log,
    drain: context.drain,
    onRound: (done, failed) => {
      // After the first round there is something to judge.
      context.setReady();
      scrapes.add(done, scrapes.series('done'));
      scrapes.add(failed, scrapes.series('failed'));
      progress.add(done);
      progress.error(failed);
    },
  });
  progress.done();
  const seconds = (clock.monotonicMs() - startMs) / 1000;
  const verdicts = judge(rules, scraped);
  const count = (verdict: RuleVerdict['verdict']): number =>
    verdicts.filter((one) => one.verdict === verdict).length;
  const missing = count('no_data');
  const ok = count('missed') === 0 && (missing === 0 || settings['allow-missing']);
  const summary = `${count('met')} met, ${count('missed')} missed, ${missing} without data, over ${seconds.toFixed(1)} s of ${targets.length} processes`;
  context.print(`${tableOf(verdicts)}\n${summary}`, {
    ok,
    seconds,
    met: count('met'),
    missed: count('missed'),
    noData: missing,
    processes: scraped.map(({ target, scrapes: { length }, failed }) => ({
      target,
      scrapes: length,
      failed,
    })),
    rules: verdicts.map(documentOf),
  });
  return ok ? EXIT.done : EXIT.no;
}

export const command = defineCommand({
  name: 'slo',
  summary: 'Read the metrics of running processes and judge them by the limits of the requirements.',
  description: [
    'Exit code 0: every limit is met; 1: one is missed, or has no data (-allow-missing lets that pass); 3: a process',
    'cannot be read. A quantile is as exact as the buckets of its histogram: the table shows between which it lies.',
    'Example: millrace slo -scrape=127.0.0.1:9101,127.0.0.1:9102 -for=60s',
  ].join('\n'),
  settings: SETTINGS,
  run,
});
