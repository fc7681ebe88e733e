/** Checks the docker files without a Docker engine: syntax, references between their parts, and the
 *  properties that they must have. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { validate } from 'dockerfile-utils';
import { describe, expect, it } from 'vitest';
import { parseDocument } from 'yaml';
import { CrossSiteGuard } from '../../src/io/http/cross-site.ts';
import { alertRules, dashboards, everyExpression, usesOf, yamlOf } from './monitoring.ts';
import { projectRoot, read, repositoryFiles } from './root.ts';

const dockerfile = readFileSync(join(projectRoot, 'docker/Dockerfile'), 'utf8');
const composeText = readFileSync(join(projectRoot, 'docker/compose.yaml'), 'utf8');
const compose = parseDocument(composeText, { merge: true });

interface Service {
  readonly image: string;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly environment?: Readonly<Record<string, string | number>>;
  readonly healthcheck?: { readonly test: readonly string[] };
}
const services = (): Readonly<Record<string, Service>> => compose.toJS().services;

describe('Dockerfile', () => {
  it('the Dockerfile has no syntax error', () => {
    const errors = validate(dockerfile).filter((problem) => problem.severity === 1);
    expect(errors.map((problem) => `${problem.range.start.line + 1}: ${problem.message}`)).toEqual([]);
  });

  it('the syntax check detects a broken Dockerfile', () => {
    expect(
      validate(dockerfile.replace('FROM node:20-bookworm AS build', 'FORM node')).some(
        (problem) => problem.severity === 1,
      ),
    ).toBe(true);
  });

  it('the Dockerfile ends in a slim stage that is not root and is stopped by SIGTERM', () => {
    const runtime = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
    expect(runtime).toMatch(/^\nFROM \S+-slim AS runtime/);
    expect(runtime).toMatch(/^USER millrace$/m);
    expect(runtime).toMatch(/^STOPSIGNAL SIGTERM$/m);
    expect(runtime).not.toMatch(/build-essential|-dev\b/);
  });

  it('the image has the rules of slo, git for compat-check, the launcher on PATH and a health check', () => {
    const runtime = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
    expect(runtime).toMatch(/^COPY docs\/reference\/slo \.\/docs\/reference\/slo$/m);
    expect(runtime).toMatch(/apt-get install[^&]*\bgit\b/);
    expect(runtime).toMatch(/^ENV PATH=\/millrace\/bin:\$PATH$/m);
    expect(runtime).toMatch(/^HEALTHCHECK .*CMD \["node", "\/millrace\/docker\/health\.mjs"\]$/m);
  });

  it.each([
    [['registry', '-listen=0.0.0.0:8081'], {}, 'http://127.0.0.1:8081/health'],
    [['orders', '--listen', '10.0.0.1:8080', '-tls-cert=a.pem'], {}, 'https://10.0.0.1:8080/health'],
    [
      ['orders', '-tls-cert=a.pem', '-listen=:8080', '-metrics-listen=:9464'],
      {},
      'http://127.0.0.1:9464/health',
    ],
    [['relay'], { MILLRACE_METRICS_LISTEN: '127.0.0.1:9464' }, 'http://127.0.0.1:9464/health'],
    [['relay', '-listen=127.0.0.1:0'], {}, undefined],
    [['relay'], {}, undefined],
  ])('the health check of the container %j with %j requests %s', async (args, environment, url) => {
    const { healthUrl } = (await import(join(projectRoot, 'docker/health.mjs'))) as {
      healthUrl(args: readonly string[], environment: object): string | undefined;
    };
    expect(healthUrl(args, environment)).toBe(url);
  });

  it('the Dockerfile copies only what the repository has or an earlier stage made', () => {
    const madeByBuild = ['node_modules', 'prebuilds', 'dist'];
    const copied = [...dockerfile.matchAll(/^COPY (--from=build )?(.+)$/gm)].flatMap(([, from, list]) => {
      const sources = (list as string).trim().split(/\s+/).slice(0, -1);
      return sources.map((source) => ({
        from: from !== undefined,
        source: source.replace('/millrace/', ''),
      }));
    });
    expect(copied.length).toBeGreaterThan(5);
    for (const { from, source } of copied) {
      if (from && madeByBuild.includes(source)) continue;
      expect(() => readFileSync(join(projectRoot, source))).not.toThrow(/ENOENT/);
    }
  });

  it('the Dockerfile installs the compiler packages of bin/bootstrap', () => {
    const bootstrap = readFileSync(join(projectRoot, 'bin/bootstrap'), 'utf8');
    const headers = [...bootstrap.matchAll(/\|\| echo (lib[a-z0-9-]+-dev|zlib1g-dev)/g)].map(
      ([, name]) => name as string,
    );
    expect(headers.length).toBeGreaterThanOrEqual(7);
    for (const name of headers) expect(dockerfile).toContain(name);
  });
});

describe('compose.yaml', () => {
  it('compose.yaml parses without error or warning', () => {
    expect([...compose.errors, ...compose.warnings]).toEqual([]);
  });

  it('compose.yaml has three brokers that know each other and PostgreSQL 18 with logical decoding', () => {
    const brokers = Object.entries(services()).filter(([, service]) =>
      service.image.startsWith('apache/kafka:'),
    );
    expect(brokers.map(([name]) => name)).toEqual(['kafka1', 'kafka2', 'kafka3']);
    const ids = brokers.map(([, service]) => service.environment?.['KAFKA_NODE_ID']);
    expect(new Set(ids).size).toBe(3);
    for (const [name, service] of brokers) {
      expect(service.environment?.['KAFKA_CONTROLLER_QUORUM_VOTERS']).toContain(
        `${service.environment?.['KAFKA_NODE_ID']}@${name}:9093`,
      );
      expect(service.environment?.['KAFKA_ADVERTISED_LISTENERS']).toContain(`INTERNAL://${name}:9092`);
    }
    expect(services()['postgres']?.image).toMatch(/^postgres:18/);
    expect(composeText).toContain('wal_level=logical');
  });

  it('compose.yaml publishes on loopback only, checks health everywhere and declares each volume', () => {
    const declared = Object.keys(compose.toJS().volumes);
    for (const [name, service] of Object.entries(services())) {
      expect(service.healthcheck?.test.length, name).toBeGreaterThan(1);
      expect(service.image, name).toMatch(/:[\w.-]+$/);
      for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
      for (const volume of service.volumes ?? []) {
        const [source = ''] = volume.split(':');
        if (source.startsWith('./'))
          expect(existsSync(join(projectRoot, 'docker', source)), volume).toBe(true);
        else expect(declared).toContain(source);
      }
    }
  });
});

/** Sentences and rows of a table that say to alert on something. */
const alertSentences = (page: string): readonly string[] =>
  page
    .split(/\n{2,}|\n(?=[|-] ?)/)
    .flatMap((block) => block.replaceAll('\n', ' ').split(/(?<=\.)\s+/))
    .filter((sentence) => /\balert\b\W*\bon\b/i.test(sentence));

describe('Prometheus', () => {
  const config = yamlOf('prometheus/prometheus.yml') as {
    readonly rule_files: readonly string[];
    readonly scrape_configs: ReadonlyArray<{
      readonly job_name: string;
      readonly static_configs: ReadonlyArray<{ readonly targets: readonly string[] }>;
    }>;
  };
  const rules = [...alertRules()].flatMap(([name, list]) => list.map((rule) => ({ name, ...rule })));

  it('Prometheus scrapes each command once and finds the rules where compose mounts them', () => {
    const jobs = config.scrape_configs.map((job) => job.job_name);
    expect(jobs).toEqual(expect.arrayContaining(['registry', 'orders', 'relay', 'payments', 'engine']));
    const targets = config.scrape_configs.flatMap((job) => job.static_configs.flatMap((one) => one.targets));
    expect(new Set(targets).size).toBe(jobs.length);
    for (const target of targets) expect(target).toMatch(/^host\.docker\.internal:\d+$/);
    expect(config.rule_files).toEqual(['/etc/prometheus/alerts/*.yml']);
    expect(composeText).toContain('./prometheus/alerts:/etc/prometheus/alerts:ro');
  });

  it('Prometheus scrapes -metrics-listen, so no service opens its own port for monitoring', () => {
    const told = [composeText, read('docker/prometheus/prometheus.yml')];
    for (const text of told) expect(text).not.toMatch(/-listen=0\.0\.0\.0/);
    for (const text of told) expect(text).toContain('-metrics-listen=');
  });

  it('a service on loopback answers the Host of Prometheus with the flag that compose.yaml names', () => {
    const origin = /-allowed-origins=(\S+)/.exec(composeText)?.[1];
    const guard = new CrossSiteGuard({
      allowedOrigins: origin === undefined ? [] : [origin],
      listenHost: '127.0.0.1',
      address: '127.0.0.1',
    });
    const targets = [...read('docker/prometheus/prometheus.yml').matchAll(/targets: \["([^"]+)"\]/g)].map(
      ([, target = '']) => target,
    );
    expect(targets.length).toBeGreaterThan(6);
    expect(targets.filter((target) => guard.refusal(['Host', target]) !== undefined)).toEqual([]);
  });

  it('the alert rules cover the three products, each with a summary and a section of the runbook', () => {
    expect([...alertRules().keys()]).toEqual(['contracts.yml', 'effects.yml', 'windows.yml']);
    const runbook = readFileSync(join(projectRoot, 'docs/how-to/runbook.md'), 'utf8');
    const sections = [...runbook.matchAll(/^### (\S+)\n\n(.{40,})/gm)].map(([, title]) => title as string);
    expect(new Set(rules.map((rule) => rule.alert)).size).toBe(rules.length);
    for (const rule of rules) {
      expect(rule.alert).toMatch(/^[A-Z][A-Za-z]+$/);
      expect(rule.for, rule.alert).toMatch(/^\d+[sm]$/);
      expect(rule.annotations['summary'], rule.alert).toMatch(/^.{20,}\.$/);
      expect(rule.annotations['runbook']).toBe(`docs/how-to/runbook.md#${rule.alert.toLowerCase()}`);
      expect(rule.labels['severity'], rule.alert).toMatch(/^(page|ticket)$/);
      expect(`${rule.labels['product']}.yml`).toBe(rule.name);
      // The summary of the alert may show only labels that its expression keeps.
      const { grouped } = usesOf(rule.expr);
      for (const [, label] of (rule.annotations['summary'] as string).matchAll(/\$labels\.(\w+)/g))
        expect(grouped, rule.alert).toContain(label);
    }
    expect([...sections].sort()).toEqual(rules.map((rule) => rule.alert).sort());
  });

  it('each metric that a guide says to alert on is in an alert rule', () => {
    const used = new Set(rules.flatMap(({ expr }) => usesOf(expr).uses.map(({ metric }) => metric)));
    const sentences = repositoryFiles()
      .filter((path) => /^docs\/how-to\/.*\.md$/.test(path))
      .flatMap((path) => alertSentences(read(path)));
    const promised = sentences.flatMap((sentence) =>
      [...sentence.matchAll(/`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?:\{[^`]*\})?`/g)].map(
        ([, name]) => name as string,
      ),
    );
    for (const name of ['registry_auth_reloads_total', 'inbox_parked_total', 'effect_rows'])
      expect(promised).toContain(name);
    expect(promised.filter((name) => !used.has(name))).toEqual([]);
  });

  it('every Prometheus expression names only jobs that are scraped', () => {
    const jobs = new Set(config.scrape_configs.map((job) => job.job_name));
    for (const { where, expression } of everyExpression())
      for (const { matched } of usesOf(expression).uses)
        if (matched.has('job')) expect(jobs, where).toContain(matched.get('job'));
  });
});

describe('Grafana', () => {
  it('each product has a dashboard whose panels describe what they show', () => {
    const all = dashboards();
    expect([...all.keys()]).toEqual(['contracts.json', 'effects.json', 'windows.json']);
    for (const [name, dashboard] of all) {
      expect(dashboard.uid).toBe(`millrace-${name.replace('.json', '')}`);
      const panels = dashboard.panels.filter((panel) => panel.type !== 'row');
      expect(panels.length).toBeGreaterThanOrEqual(12);
      for (const panel of panels) {
        expect(panel.description, panel.title).toMatch(/^.{10,}\.$/);
        expect(panel.targets?.length, panel.title).toBeGreaterThan(0);
      }
    }
  });

  it('Grafana finds its data source and its dashboards where compose mounts them', () => {
    const { datasources } = yamlOf('grafana/provisioning/datasources/prometheus.yml') as {
      datasources: ReadonlyArray<{ uid: string; url: string }>;
    };
    expect(datasources).toMatchObject([{ uid: 'millrace', url: 'http://prometheus:9090' }]);
    const { providers } = yamlOf('grafana/provisioning/dashboards/millrace.yml') as {
      providers: ReadonlyArray<{ options: { path: string } }>;
    };
    expect(composeText).toContain(`./grafana/dashboards:${providers[0]?.options.path}:ro`);
    for (const dashboard of dashboards().values()) {
      const sources = JSON.stringify(dashboard).matchAll(/"datasource":\{[^}]*"uid":"([^"]+)"/g);
      expect(new Set([...sources].map(([, uid]) => uid))).toEqual(new Set(['millrace']));
    }
  });
});
