/** ChaosVerdict, replay command and report of a chaos run. */
import { describe, expect, it } from 'vitest';
import type { ChaosCoverage } from '../../../src/chaos/coverage.ts';
import { crashLineOf } from '../../../src/chaos/crash-line.ts';
import { type ChaosReport, chaosPage, chaosPlot, REPORT_FORMAT } from '../../../src/chaos/report.ts';
import type { FaultOutcome } from '../../../src/chaos/run.ts';
import { judge, type RunFacts, replayCommand, type UnplannedEnd } from '../../../src/chaos/verdict.ts';
import type { Delta, Reconciliation } from '../../../src/outbox/reconcile/run.ts';

const RECONCILED: Reconciliation = {
  holds: true,
  intents_from: 'ledger',
  produced_intents: 10,
  distinct_orders: 10,
  distinct_charges: 10,
  unanswered_intents: 0,
  refused_intents: 0,
  expired_keys: 0,
  suppressed: {},
  parked: {},
  classes: ['double_charge'],
  deltas: [],
  from: null,
  to: null,
  comparisons: 1,
};
const DOUBLE: Delta = {
  class: 'double_charge',
  meaning: 'an order that was charged more than once',
  count: 4,
  idsOf: 'order_id',
  ids: ['a', 'b', 'c', 'd'],
};
const OUTCOME: FaultOutcome = {
  fault: { id: 3, atMs: 500, lane: 'relay', kind: 'kill', target: 'relay', durationMs: 1000 },
  applied: true,
  detail: 'pid 12',
  startMs: 600,
  endMs: 2100,
};
const COVERAGE: ChaosCoverage = {
  injected_duplicates: 3,
  redelivered: 4,
  repeats: 5,
  replayed: 6,
  answers: 15,
  answers_over_grpc: 7,
};
const SHARES = { dupRate: 0.3, retryRate: 0.15, grpcShare: 0.5 };
const END: UnplannedEnd = { service: 'relay', code: 3, signal: null, atMs: 5, logPath: 'relay.log' };

const reasons = (over: Partial<RunFacts>): readonly string[] => {
  const facts = {
    ...{ reconciliation: RECONCILED, outcomes: [OUTCOME], ends: [], undrained: undefined },
    ...{ coverage: COVERAGE, shares: SHARES },
  };
  const verdict = judge({ ...facts, ...over });
  expect(verdict.holds).toBe(verdict.reasons.length === 0);
  return verdict.reasons;
};

describe('verdict of a chaos run', () => {
  it('a run without deltas whose faults were all applied holds', () => {
    expect(reasons({})).toEqual([]);
  });

  it('a delta is named with its first ids', () => {
    const reconciliation = { ...RECONCILED, holds: false, deltas: [DOUBLE] };
    expect(reasons({ reconciliation })).toEqual([
      'double_charge: 4, an order that was charged more than once (a, b, c)',
    ]);
  });

  it('counts that differ without a delta, missing answers and an empty run do not hold', () => {
    const counts = { ...RECONCILED, holds: false, distinct_charges: 9 };
    expect(reasons({ reconciliation: counts })).toEqual([
      'the counts differ: 10 intents, 10 orders, 9 charges',
    ]);
    const unanswered = { ...RECONCILED, unanswered_intents: 2 };
    expect(reasons({ reconciliation: unanswered })).toEqual(['2 intents have no answer and no order']);
    const empty = { ...RECONCILED, produced_intents: 0, distinct_orders: 0, distinct_charges: 0 };
    expect(reasons({ reconciliation: empty })).toEqual(['no intent was produced']);
  });

  it('a planned fault that met nothing does not hold', () => {
    const missed = { ...OUTCOME, applied: false, detail: 'the run was stopped before' };
    expect(reasons({ outcomes: [OUTCOME, missed] })).toEqual([
      'fault 3, kill of relay for 1.0 s, was not applied: the run was stopped before',
    ]);
  });

  it('a process may end because a server is down, and not by a bug or a foreign signal', () => {
    expect(reasons({ ends: [END] })).toEqual([]);
    expect(
      reasons({
        ends: [
          { ...END, code: 70 },
          { ...END, code: null, signal: 'SIGSEGV' },
        ],
      }),
    ).toEqual([
      'relay ended by itself with code 70; see relay.log',
      'relay ended by itself with SIGSEGV; see relay.log',
    ]);
  });

  it('a pipeline that does not drain does not hold', () => {
    expect(reasons({ undrained: '3 rows are pending' })).toEqual(['3 rows are pending']);
  });

  describe('coverage of a run of 1,000 orders', () => {
    const reconciliation = {
      ...RECONCILED,
      ...{ produced_intents: 1000, distinct_orders: 1000, distinct_charges: 1000 },
    };
    const coverage = { ...COVERAGE, answers: 1300 };

    it('a run without an injected duplicate does not hold, even if messages were published again', () => {
      expect(reasons({ reconciliation, coverage: { ...coverage, injected_duplicates: 0 } })).toEqual([
        'no duplicate was injected at the consumer, although -dup-rate=0.3 and 1000 orders were charged',
      ]);
    });

    it('a run whose client repeated no key does not hold', () => {
      expect(reasons({ reconciliation, coverage: { ...coverage, repeats: 0 } })).toEqual([
        'no key was repeated by the client, although -retry-rate=0.15 and it had 1000 intents',
      ]);
    });

    it('a run without an answer over gRPC does not hold', () => {
      expect(reasons({ reconciliation, coverage: { ...coverage, answers_over_grpc: 0 } })).toEqual([
        'no request was answered over gRPC, although 1300 requests were answered and a share of 0.5 goes over gRPC',
      ]);
    });

    const none = { ...coverage, injected_duplicates: 0, repeats: 0, answers_over_grpc: 0 };

    it('a run whose settings ask for no duplicate, repeat or gRPC request needs none', () => {
      const shares = { dupRate: 0, retryRate: 0, grpcShare: 0 };
      expect(reasons({ reconciliation, coverage: none, shares })).toEqual([]);
    });

    it('a run is as long as each of them needs, with a rate of 100% from the first message on', () => {
      const all = { dupRate: 1, retryRate: 1, grpcShare: 1 };
      const short = { ...none, answers: 10 };
      expect(reasons({ coverage: short })).toEqual([]);
      // Half of the copies may be lost, so ten charges do not require one.
      expect(reasons({ coverage: short, shares: all })).toEqual([
        'no key was repeated by the client, although -retry-rate=1 and it had 10 intents',
        'no request was answered over gRPC, although 10 requests were answered and a share of 1 goes over gRPC',
      ]);
      const empty = { ...RECONCILED, produced_intents: 0, distinct_orders: 0, distinct_charges: 0 };
      expect(reasons({ reconciliation: empty, coverage: { ...none, answers: 0 }, shares: all })).toEqual([
        'no intent was produced',
      ]);
    });
  });
});

it('the replay command leaves unset flags out and quotes for a shell', () => {
  const command = replayCommand([
    ['seed', '7'],
    ['dedup-ttl', undefined],
    ['faults', 'crash,kill'],
    ['broker-config', "my file's"],
  ]);
  expect(command).toBe("millrace chaos -seed=7 -faults=crash,kill '-broker-config=my file'\\''s'");
});

it('the crash line of a log is found among other lines, and a log without one has none', () => {
  const line = JSON.stringify({ msg: 'crash point reached', point: 'publish', unfinished: 3 });
  expect(crashLineOf(`{"msg":"start"}\nlistening on x\n${line}\n`)).toEqual({
    point: 'publish',
    unfinished: 3,
  });
  expect(crashLineOf('{"msg":"start"}\n')).toBeUndefined();
});

describe('report of a chaos run', () => {
  const sample = {
    atMs: 0,
    answered: 0,
    answeredPerSecond: 0,
    pending: 0,
    lag: 0,
    consumed: 0,
    consumedPerSecond: 0,
  };
  const samples = [sample, { ...sample, atMs: 3000, answeredPerSecond: 90 }];

  it('the plot has a band from the beginning to the end of each fault, and a line for each panel', () => {
    const missed: FaultOutcome = {
      ...OUTCOME,
      fault: { ...OUTCOME.fault, kind: 'net-cut', target: 'a<b', lane: 'network' },
      applied: false,
    };
    const svg = chaosPlot('a & b', { format: REPORT_FORMAT, samples, outcomes: [OUTCOME, missed] });
    expect(svg.match(/<polyline/g)).toHaveLength(4);
    expect(svg.match(/class="process band"/g)).toHaveLength(1);
    expect(svg.match(/class="missed band"/g)).toHaveLength(1);
    expect(svg).toContain('a &#38; b');
    expect(svg).not.toContain('a<b');
    const [, x, width] = /class="process band" x="([\d.]+)" width="([\d.]+)"/.exec(svg) ?? [];
    // The time axis has 850 units for 3 s, from 90 on.
    expect(Number(x)).toBeCloseTo(90 + (850 * 600) / 3000, 0);
    expect(Number(width)).toBeCloseTo((850 * 1500) / 3000, 0);
  });

  it('the page is one file with the verdict, the plot, each fault and the replay command', () => {
    const report: ChaosReport = {
      ...{ format: REPORT_FORMAT, version: '0', seed: 1, settings: {}, replay: 'millrace chaos -seed=1' },
      ...{ seconds: 3, load: {}, plan: [OUTCOME.fault], outcomes: [OUTCOME], unplanned_ends: [] },
      ...{ reconciliation: RECONCILED, samples, holds: false, reasons: ['a reason <here>'] },
    };
    const page = chaosPage('a title', { ...report, coverage: COVERAGE });
    expect(page).toContain('; 3 injected duplicates and 4 other redeliveries recognised, 5 repeats of a key');
    // A report of an earlier version has no coverage.
    expect(chaosPage('a title', report)).toContain('distinct_charges 10</p>');
    expect(page).not.toMatch(/(src|href)=/);
    expect(page).toContain('a reason &#60;here&#62;');
    expect(page).toContain('<svg ');
    expect(page).toContain('kill of relay for 1.0 s: pid 12');
    expect(page).toContain('millrace chaos -seed=1');
  });
});
