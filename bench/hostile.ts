/** `millrace bench hostile`: sends schemas that are expensive to check to a registry and measures
 *  `/health` meanwhile.
 *
 *  The comparison is the slowest answer without other requests, which shows the machine alone. Each
 *  schema is checked against the versions of its own subject (BACKWARD_TRANSITIVE), then
 *  registered. The result is the slowest answer to `/health` during that time, over one connection
 *  that sends the next request after each answer. Every answer to a hostile request is checked: it
 *  must be a verdict, or a refusal that names its limit. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { invariant } from '../src/core/errors.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';
import { ask, HEADERS, type Started, startOurs } from './registry-server.ts';

/** Slowest permitted answer, in ms. */
const HEALTH_MS_MAX = 100;
/** Pause between an answer and the next request. */
const HEALTH_PAUSE_MS = 2;

export interface Hostile {
  readonly name: string;
  readonly format: 'AVRO' | 'PROTOBUF' | 'JSON';
  /** Version `i` of the subject; the last version is the proposed schema. */
  readonly text: (i: number) => string;
}

const times = <T>(count: number, make: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

/** Definitions that each refer to the next twice; the last is a leaf that differs by `i`. */
function twice(count: number, i: number, join: (next: object) => object): string {
  const $defs = Object.fromEntries(
    times(count, (at) => [
      `d${at}`,
      at + 1 < count ? join({ $ref: `#/$defs/d${at + 1}` }) : { type: 'string', maxLength: 100 + i },
    ]),
  );
  return JSON.stringify({ $ref: '#/$defs/d0', $defs });
}

/** Hostile schemas of the maximum size, scaled by `share` for short runs. */
export function hostileSchemas(share: number): readonly Hostile[] {
  const many = (most: number): number => Math.max(10, Math.round(most * share));
  const both =
    (keyword: string) =>
    (next: object): object => ({ [keyword]: [next, next] });
  const ring = (last: string) => (next: object) =>
    ({ anyOf: [next, next], properties: { a: { $ref: '#/$defs/d0' }, [last]: next } }) as object;
  const messages = (count: number, i: number): string =>
    `syntax = "proto3";\n${times(count, (at) => `message M${at} { string a = 1; M${(at + 1) % count} b = 2; int32 c${i} = ${3 + i}; }`).join('\n')}`;
  const record = (count: number, i: number): string =>
    JSON.stringify({
      type: 'record',
      name: 'R',
      fields: times(count, (at) => ({
        name: `f${at}`,
        type: ['null', 'string'],
        default: null,
        doc: `${i}`,
      })),
    });
  return [
    {
      name: 'JSON, each definition twice anyOf the next',
      format: 'JSON',
      text: (i) => twice(many(60), i, both('anyOf')),
    },
    {
      name: 'JSON, each definition twice allOf the next',
      format: 'JSON',
      text: (i) => twice(many(60), i, both('allOf')),
    },
    { name: 'JSON, definitions in rings', format: 'JSON', text: (i) => twice(many(40), i, ring('b')) },
    {
      name: 'JSON, an object of many properties',
      format: 'JSON',
      text: (i) =>
        JSON.stringify({
          type: 'object',
          properties: Object.fromEntries(
            times(many(12_000), (at) => [`p${at}`, { type: 'string', maxLength: 100 + i }]),
          ),
        }),
    },
    { name: 'Protobuf, a ring of messages', format: 'PROTOBUF', text: (i) => messages(many(4_000), i) },
    { name: 'Avro, a record of many fields', format: 'AVRO', text: (i) => record(many(4_000), i) },
  ];
}

/** Bodies that are refused before parsing. */
const bodies = (): readonly string[] => [
  '['.repeat(1_900_000),
  `${'['.repeat(1_900_000)}${']'.repeat(1_900_000)}`,
  `{"schema":"${'['.repeat(1_900_000)}"}`,
  `[${'{},'.repeat(1_300_000)}{}]`,
];

async function post(url: string, path: string, body: string): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${url}${path}`, { method: 'POST', headers: HEADERS, body });
  return { status: answer.status, text: await answer.text() };
}

const VERDICTS = [200, 409, 413, 422];

/** @throws if an answer is neither a verdict nor a refusal with a reason */
async function attack(target: Started, schemas: readonly Hostile[], versions: number): Promise<void> {
  const answers: Array<Promise<{ status: number; text: string }>> = [];
  for (const [at, { text, format }] of schemas.entries()) {
    const body = JSON.stringify({ schema: text(versions), schemaType: format });
    for (const path of [`/compatibility/subjects/h${at}/versions?verbose=true`, `/subjects/h${at}`])
      answers.push(post(target.url, path, body));
    answers.push(post(target.url, `/subjects/h${at}/versions`, body));
  }
  for (const body of bodies()) answers.push(post(target.url, '/subjects/deep/versions', body));
  for (const { status, text } of await Promise.all(answers)) {
    const known =
      VERDICTS.includes(status) ||
      (status === 404 && text.includes('40403')) ||
      // On a slow machine checks may queue and be refused.
      (status === 503 && text.includes('50305'));
    invariant(known, `a hostile schema is answered: ${status} ${text.slice(0, 200)}`);
    invariant(status !== 422 || /limit|nests/.test(text), `a refusal names its limit: ${text.slice(0, 200)}`);
  }
}

async function prepare(target: Started, schemas: readonly Hostile[], versions: number): Promise<void> {
  for (const [at, { text, format }] of schemas.entries()) {
    await ask(target, 'PUT', `/config/h${at}`, '{"compatibility":"NONE"}');
    for (const i of times(versions, (one) => one))
      await ask(
        target,
        'POST',
        `/subjects/h${at}/versions`,
        JSON.stringify({ schema: text(i), schemaType: format }),
      );
    await ask(target, 'PUT', `/config/h${at}`, '{"compatibility":"BACKWARD_TRANSITIVE"}');
  }
}

/** Polls /health until `until` settles.
 *  @returns the answer times in ms */
async function health(target: Started, until: Promise<unknown>): Promise<readonly number[]> {
  let over = false;
  const ended = until.finally(() => {
    over = true;
  });
  const took: number[] = [];
  while (!over) {
    const asked = performance.now();
    const answer = await fetch(`${target.url}/health`);
    await answer.text();
    invariant(answer.status === 200, `the registry is healthy: ${answer.status}`);
    took.push(performance.now() - asked);
    await sleep(HEALTH_PAUSE_MS);
  }
  await ended;
  return took;
}

async function run(context: BenchContext): Promise<readonly BenchResult[]> {
  const dir = mkdtempSync(join(tmpdir(), 'hostile-'));
  context.onClose(() => rmSync(dir, { recursive: true, force: true }));
  const schemas = hostileSchemas(context.smoke ? 0.1 : 1);
  const versions = context.smoke ? 3 : 8;
  const slowest: number[] = [];
  const alone: number[] = [];
  for (let i = 0; i < context.repeats; i++) {
    const target = await startOurs(`file:${join(dir, String(i))}`);
    try {
      alone.push(Math.max(...(await health(target, sleep(context.smoke ? 200 : 5_000)))));
      context.say(`run ${i + 1}: registering the versions to compare with`);
      const prepared = await health(target, prepare(target, schemas, versions));
      context.say(`run ${i + 1}: sending the hostile schemas`);
      const attacked = await health(target, attack(target, schemas, versions));
      slowest.push(Math.max(...prepared, ...attacked));
    } finally {
      await target.stop();
    }
  }
  return [
    result({
      metric: `/health under hostile schemas against ${versions} versions, the slowest answer`,
      unit: 'ms',
      ours: seriesOf(slowest),
      against: { name: 'the same server, no other requests', series: seriesOf(alone) },
      better: 'less',
      list: true,
      goal: { valueAtMost: HEALTH_MS_MAX },
    }),
  ];
}

export const bench: Bench = {
  name: 'hostile',
  summary: 'The slowest answer to /health of a registry that is sent schemas that are expensive to check.',
  run,
};
