/** Live decode of every row of the compatibility tables. An accepted pair decodes all its events; a
 *  refused pair has an event that is refused, wrong or lost. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import type { Finding } from '../../src/registry/compatibility/finding.ts';
import { compareHistory, compareWith } from '../../src/registry/compatibility/modes.ts';
import { explain } from '../../src/registry/proof/explain.ts';
import { isSurprise, trialsOf } from '../../src/registry/proof/live.ts';
import type { Outcome } from '../../src/registry/proof/trial.ts';

type AvroField = readonly [name: string, type: unknown, value?: unknown, alias?: string];
interface Row {
  readonly change: string;
  readonly syntax?: string;
  readonly old: readonly AvroField[] | string;
  readonly new: readonly AvroField[] | string;
}

const rowsOf = (name: string): readonly Row[] =>
  (JSON.parse(readFileSync(new URL(name, import.meta.url), 'utf8')) as { readonly cases: readonly Row[] })
    .cases;
const ROWS = [...rowsOf('./registry-compatibility.json'), ...rowsOf('./registry-compatibility-proto.json')];

const EVENTS_MAX = 300;

const formatOf = ({ old }: Row): string => (typeof old === 'string' ? 'PROTOBUF' : 'AVRO');

function avroField([name, type, value, alias]: AvroField): Record<string, unknown> {
  if (value === 'ALIAS') return { name, type, aliases: [alias] };
  return value === undefined ? { name, type } : { name, type, default: value };
}

function schemaOf(row: Row, source: Row['old']): Schema {
  if (typeof source === 'string') {
    const whole = /^(syntax|edition) /.test(source);
    return parseSchema(
      'PROTOBUF',
      whole ? source : `syntax = "${row.syntax ?? 'proto3'}";\nmessage Order {\n${source}\n}\n`,
    );
  }
  const fields = source.map(avroField);
  return parseSchema('AVRO', JSON.stringify({ type: 'record', name: 'Order', fields }, null, 2));
}

function worstOf(findings: readonly Finding[]): Outcome {
  const severities = new Set(findings.map(({ severity }) => severity));
  expect(severities.has('unjudged')).toBe(false);
  return severities.has('fail') ? 'FAIL' : severities.has('lossy') ? 'LOSSY' : 'OK';
}

it('the compatibility tables have rows of both formats', () => {
  expect(new Set(ROWS.map(formatOf))).toEqual(new Set(['AVRO', 'PROTOBUF']));
  expect(ROWS.length).toBeGreaterThan(20);
});

describe.each(ROWS.map((row) => ({ ...row, format: formatOf(row) })))('$format: $change', (row) => {
  const before = schemaOf(row, row.old);
  const after = schemaOf(row, row.new);

  it.each([
    ['BACKWARD', after, before],
    ['FORWARD', before, after],
  ] as const)('the %s verdict equals the outcome of live decode', (direction, reader, writer) => {
    const [comparison] = compareWith(after, direction, [{ version: 1, schema: before }]);
    let outcome: Outcome = 'OK';
    let told = 'no event';
    for (const trial of trialsOf(reader, writer, { limit: EVENTS_MAX })) {
      const { witness, projection, read } = trial;
      expect(isSurprise(trial), witness.json).toBe(false);
      if (row.format === 'AVRO') expect('error' in read).toBe(projection.kind === 'none');
      if (outcome === trial.outcome || outcome === 'FAIL' || trial.outcome === 'OK') continue;
      outcome = trial.outcome;
      told = witness.json;
    }
    expect(worstOf(comparison?.findings ?? []), told).toBe(outcome);
  });

  it('each finding is explained by existing texts and an event that was run', () => {
    const comparisons = [
      ...compareWith(after, 'FULL', [{ version: 1, schema: before }]),
      ...compareHistory(after, [{ version: 1, schema: before }]),
    ];
    for (const comparison of comparisons)
      for (const one of explain(comparison, after, before)) {
        const { finding, explanation, direction } = one;
        const { counterexample, reader, writer } = explanation;
        const refuses = finding.severity === 'fail' || finding.severity === 'lossy';
        // The number history includes numbers of messages that are never written.
        if (direction !== 'HISTORY') {
          const wanted = finding.severity === 'lossy' ? 'LOSSY' : 'FAIL';
          const shown = counterexample?.outcome;
          expect(shown, `${finding.rule} at ${finding.path}`).toBe(refuses ? wanted : undefined);
        }
        expect(reader !== undefined || writer !== undefined, finding.rule).toBe(true);
        const [mine, its] = direction === 'FORWARD' ? [writer, reader] : [reader, writer];
        for (const [fragment, schema] of [
          [mine, after],
          [its, before],
        ] as const) {
          if (fragment === undefined) continue;
          const line = schema.source.split('\n')[fragment.line - 1] ?? '';
          expect(fragment.text).not.toBe('');
          expect(
            line
              .slice(fragment.column - 1)
              .trimEnd()
              .replace(/\s+/g, ' '),
          ).toContain(fragment.text.split(' ')[0]);
        }
      }
  });
});
