/** The docker files are checked without a Docker engine: syntax, references between their parts, and what must hold. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { validate } from 'dockerfile-utils';
import { describe, expect, it } from 'vitest';
import { parseDocument } from 'yaml';
import { projectRoot } from './root.ts';

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
  it('has no syntax error', () => {
    const errors = validate(dockerfile).filter((problem) => problem.severity === 1);
    expect(errors.map((problem) => `${problem.range.start.line + 1}: ${problem.message}`)).toEqual([]);
  });

  it('is caught when it is broken', () => {
    expect(
      validate(dockerfile.replace('FROM node:20-bookworm AS build', 'FORM node')).some(
        (problem) => problem.severity === 1,
      ),
    ).toBe(true);
  });

  it('ends in a slim stage that is not root and is stopped by SIGTERM', () => {
    const runtime = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
    expect(runtime).toMatch(/^\nFROM \S+-slim AS runtime/);
    expect(runtime).toMatch(/^USER millrace$/m);
    expect(runtime).toMatch(/^STOPSIGNAL SIGTERM$/m);
    expect(runtime).not.toMatch(/build-essential|-dev\b/);
  });

  it('copies only what the repository has or an earlier stage made', () => {
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

  it('installs what bin/bootstrap installs for the compiler', () => {
    const bootstrap = readFileSync(join(projectRoot, 'bin/bootstrap'), 'utf8');
    const headers = [...bootstrap.matchAll(/\|\| echo (lib[a-z0-9-]+-dev|zlib1g-dev)/g)].map(
      ([, name]) => name as string,
    );
    expect(headers.length).toBeGreaterThanOrEqual(7);
    for (const name of headers) expect(dockerfile).toContain(name);
  });
});

describe('compose.yaml', () => {
  it('parses without error or warning', () => {
    expect([...compose.errors, ...compose.warnings]).toEqual([]);
  });

  it('has three brokers that know each other and PostgreSQL 18 with logical decoding', () => {
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

  it('publishes on loopback only, checks health everywhere and declares each volume', () => {
    const declared = Object.keys(compose.toJS().volumes);
    for (const [name, service] of Object.entries(services())) {
      expect(service.healthcheck?.test.length, name).toBeGreaterThan(1);
      expect(service.image, name).toMatch(/:[\w.-]+$/);
      for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
      for (const volume of service.volumes ?? []) expect(declared).toContain(volume.split(':')[0]);
    }
  });
});
