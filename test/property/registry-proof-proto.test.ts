/** Random pairs of Protobuf schemas: the verdict equals the worst outcome of the consumer's decoder
 *  for any event, each refusal and loss has an event that shows it, and no decoded value
 *  contradicts the specification. The long run is `millrace bench compatibility`. */
import { describe, expect, it } from 'vitest';
import { verdictOf } from '../../bench/compatibility/avro-verdicts.ts';
import { PROTO_CHANGE_NAMES } from '../../bench/compatibility/proto-changes.ts';
import { protoPair } from '../../bench/compatibility/proto-pairs.ts';
import { judgeProtoPair } from '../../bench/compatibility/proto-verdicts.ts';
import { parseProto } from '../../src/formats/protobuf/tree.ts';
import type { Finding, Severity } from '../../src/registry/compatibility/finding.ts';
import type { Outcome } from '../../src/registry/proof/trial.ts';
import { PROTO_RULES } from '../../src/registry/rules/protobuf.ts';

const PAIRS = 450;

interface Fault {
  readonly name: string;
  /** Changes the findings as a checker with the fault would. */
  readonly plant: (findings: readonly Finding[]) => readonly Finding[];
}

const OTHER: Readonly<Record<Severity, Severity>> = {
  fail: 'lossy',
  lossy: 'fail',
  note: 'lossy',
  unjudged: 'note',
};

/** Two faults for each rule that compares two schemas. */
const PLANTED: readonly Fault[] = PROTO_RULES.filter(
  ({ policy, severity }) => policy === 'PROVEN' && severity !== 'unjudged',
).flatMap(({ id, severity }): Fault[] => {
  const changed = (other: Severity): Fault => ({
    name: `${id} is ${other}`,
    plant: (findings) => findings.map((one) => (one.rule === id ? { ...one, severity: other } : one)),
  });
  if (severity === 'note') return [changed('lossy'), changed('fail')];
  const forgotten: Fault = {
    name: `${id} is forgotten`,
    plant: (findings) => findings.filter(({ rule }) => rule !== id),
  };
  return [forgotten, changed(OTHER[severity])];
});

describe('random Protobuf pairs', () => {
  it('a seed always gives the same Protobuf pair, and both schemas are valid', () => {
    for (let seed = 5_000; seed < 5_000 + 2 * PROTO_CHANGE_NAMES.length; seed++) {
      const pair = protoPair(seed);
      expect(protoPair(seed)).toEqual(pair);
      for (const text of [pair.reader, pair.writer]) expect(() => parseProto(text)).not.toThrow();
    }
  });

  it('the random Protobuf pairs differ in every class and at every depth', () => {
    const unequal = new Map<string, number>();
    let nested = 0;
    for (let seed = 0; seed < 10 * PROTO_CHANGE_NAMES.length; seed++) {
      const { changes, reader, writer, depth } = protoPair(seed);
      const [first] = changes;
      if (reader !== writer) unequal.set(first as string, (unequal.get(first as string) ?? 0) + 1);
      if (depth >= 3) nested++;
    }
    const rare = PROTO_CHANGE_NAMES.filter((name) => name !== 'unchanged' && (unequal.get(name) ?? 0) < 7);
    expect(rare).toEqual([]);
    expect(nested).toBeGreaterThan(2 * PROTO_CHANGE_NAMES.length);
  });

  it('the verdicts of Protobuf pairs equal their live decode, and every planted fault in the rules is detected', () => {
    const outcomes: Record<Outcome, number> = { OK: 0, LOSSY: 0, FAIL: 0 };
    const faults = new Set(PLANTED.map(({ name }) => name));
    for (let seed = 0; seed < PAIRS; seed++) {
      const pair = protoPair(seed);
      const { findings, live, verdict, disagreement } = judgeProtoPair(pair);
      if (disagreement !== undefined)
        expect.fail(
          `pair ${seed} (${pair.changes.join(', ')}): ${disagreement}\n${pair.reader}\n${pair.writer}`,
        );
      expect(verdict).toBe(live);
      outcomes[live]++;
      for (const { name, plant } of PLANTED) if (verdictOf(plant(findings)) !== live) faults.delete(name);
    }
    // Faults that the pairs did not reveal.
    expect([...faults]).toEqual([]);
    expect(Math.min(outcomes.OK, outcomes.FAIL)).toBeGreaterThan(0.3 * PAIRS);
    expect(outcomes.LOSSY).toBeGreaterThan(0.05 * PAIRS);
  });
});
