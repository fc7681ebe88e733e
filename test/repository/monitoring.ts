/** Collects every metric expression of the dashboards and alert rules of docker/, and the names in
 *  it. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseDocument } from 'yaml';
import { projectRoot } from './root.ts';

export interface MetricQuery {
  /** File and title, for the failure message. */
  readonly where: string;
  readonly expression: string;
}

export interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

interface Panel {
  readonly title: string;
  readonly type: string;
  readonly description?: string;
  readonly targets?: ReadonlyArray<{ readonly expr: string }>;
}

export interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly panels: readonly Panel[];
}

const docker = join(projectRoot, 'docker');
const filesOf = (folder: string): readonly string[] => readdirSync(join(docker, folder)).sort();

export const yamlOf = (path: string): unknown => {
  const document = parseDocument(readFileSync(join(docker, path), 'utf8'));
  if (document.errors.length + document.warnings.length > 0)
    throw new Error(`${path}: ${[...document.errors, ...document.warnings].join('; ')}`);
  return document.toJS();
};

export const dashboards = (): ReadonlyMap<string, Dashboard> =>
  new Map(
    filesOf('grafana/dashboards').map((name) => [
      name,
      JSON.parse(readFileSync(join(docker, 'grafana/dashboards', name), 'utf8')) as Dashboard,
    ]),
  );

export const alertRules = (): ReadonlyMap<string, readonly AlertRule[]> =>
  new Map(
    filesOf('prometheus/alerts').map((name) => {
      const { groups } = yamlOf(join('prometheus/alerts', name)) as {
        groups: ReadonlyArray<{ rules: readonly AlertRule[] }>;
      };
      return [name, groups.flatMap((group) => group.rules)];
    }),
  );

export function everyExpression(): readonly MetricQuery[] {
  const asked: MetricQuery[] = [];
  for (const [name, dashboard] of dashboards())
    for (const panel of dashboard.panels)
      for (const { expr } of panel.targets ?? [])
        asked.push({ where: `${name}: ${panel.title}`, expression: expr });
  for (const [name, rules] of alertRules())
    for (const { alert, expr } of rules) asked.push({ where: `${name}: ${alert}`, expression: expr });
  return asked;
}

export interface Use {
  readonly metric: string;
  /** Labels that the selector matches on, each with its value, or '' unless the operator is `=`. */
  readonly matched: ReadonlyMap<string, string>;
}

/** Keywords of PromQL that occur where a metric name could. */
const WORDS = new Set([
  'and',
  'or',
  'unless',
  'bool',
  'offset',
  'on',
  'ignoring',
  'group_left',
  'group_right',
  'Inf',
]);
const SELECTOR = /([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(\s*\()?/g;
const MATCHER = /([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"([^"]*)"/g;

/** Returns the metrics of an expression, and the labels that it groups by. */
export function usesOf(expression: string): {
  readonly uses: readonly Use[];
  readonly grouped: readonly string[];
} {
  const grouped: string[] = [];
  const rest = expression
    .replace(/\b(?:by|without)\s*\(([^)]*)\)/g, (_all, list: string) => {
      grouped.push(...list.split(',').map((label) => label.trim()));
      return ' ';
    })
    .replace(/\[[^\]]*\]/g, ' ')
    .replace(/\b\d[\w.]*/g, ' ');
  const uses: Use[] = [];
  for (const [, metric = '', matchers = '', call] of rest.matchAll(SELECTOR)) {
    if (call !== undefined || WORDS.has(metric)) continue;
    const matched = new Map(
      [...matchers.matchAll(MATCHER)].map(([, label = '', operator, value = '']) => [
        label,
        operator === '=' ? value : '',
      ]),
    );
    uses.push({ metric, matched });
  }
  return { uses, grouped };
}

/** Returns the labels of each metric name in a text of the exposition format. */
export function served(exposition: string): ReadonlyMap<string, ReadonlySet<string>> {
  const names = new Map<string, Set<string>>();
  for (const line of exposition.split('\n')) {
    const [, name = '', kind] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
    if (kind !== undefined) {
      for (const end of kind === 'histogram' ? ['_bucket', '_sum', '_count'] : [''])
        names.set(name + end, names.get(name + end) ?? new Set(end === '_bucket' ? ['le'] : []));
      continue;
    }
    const [, sample = '', labels = ''] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? /.exec(line) ?? [];
    for (const [, label = ''] of labels.matchAll(/([a-zA-Z_]\w*)="/g)) names.get(sample)?.add(label);
  }
  return names;
}

/** Returns the labels of each metric as the code registers them. A metric without a sample shows no
 *  labels on /metrics. */
export function registeredLabels(sources: readonly string[]): ReadonlyMap<string, ReadonlySet<string>> {
  const found = new Map<string, Set<string>>();
  const call = /\b(?:counter|gauge|histogram)\(\s*'(\w+)',\s*(?:'[^']*'|"[^"]*"|`[^`]*`),\s*\[([^\]]*)\]/g;
  for (const path of sources) {
    for (const [, name = '', list = ''] of readFileSync(join(projectRoot, path), 'utf8').matchAll(call)) {
      const labels = [...list.matchAll(/'(\w+)'/g)].map(([, label]) => label as string);
      for (const end of ['', '_bucket', '_sum', '_count']) {
        const known = found.get(name + end) ?? new Set();
        for (const label of labels) known.add(label);
        found.set(name + end, known);
      }
    }
  }
  return found;
}
