/** Page about the legs of the volume bench, made from its JSON alone. */
import type { BenchReport } from '../harness.ts';
import type { Leg } from './legs.ts';

/** JSON of the bench: a report with its legs, which may be of several builds and machines. */
export interface VolumeReport extends BenchReport {
  readonly legs: readonly Leg[];
}

const count = (value: number): string => Math.round(value).toLocaleString('en-US');

function row(leg: Leg): string {
  const verdict = leg.holds ? 'holds' : '**broken**';
  return `| ${leg.part} | ${leg.number} | ${leg.relay} | ${leg.brokers} | ${count(leg.preloaded)} | ${count(leg.requests)} | ${count(leg.orders)} | ${count(leg.charges)} | ${count(leg.deltas)} | ${count(leg.loadSeconds)} s | ${count(leg.seconds)} s | ${count(leg.orders / leg.seconds)} | ${count(leg.reconcileSeconds)} s | ${leg.build} | ${leg.machine.cores} x ${leg.machine.cpu} | ${verdict} |`;
}

/** Makes docs/results/volume.md. */
export function volumePage({ legs }: VolumeReport): string {
  const sum = (of: (leg: Leg) => number): string => count(legs.reduce((total, leg) => total + of(leg), 0));
  const lines = [
    '# Volume of effects, leg by leg',
    '',
    '<!-- Generated from volume.json by `npm run generate`; do not edit. -->',
    '',
    '`millrace bench volume -out=docs/results` adds legs until its goals are reached. Each leg names the build and the machine that made it.',
    '',
    'A leg of the API sends new keys to `orders` over HTTP, 15 % of them again one to three times, on top of preloaded keys; relay and payments run beside it. A prepared leg writes',
    'orders, keys and outbox rows in SQL, and the same relay and payments publish and charge them. Odd legs have a relay that polls, even ones a relay that reads the log.',
    'Each leg has a database and a topic of its own; at its end `millrace reconcile` compares every order, of the API with the ledger of the client too ([decision](../decisions/0112-volume-is-counted-in-legs.md)).',
    '',
    `${count(legs.length)} legs: ${sum(({ orders }) => orders)} order events, ${sum(({ part, orders }) => (part === 'api' ? orders : 0))} of them through the API, ${sum(({ charges }) => charges)} charges, ${sum(({ deltas }) => deltas)} deltas.`,
    '',
    '| part | leg | relay | brokers | keys before | requests | orders | charges | deltas | load | until the last charge | orders/s | reconcile | build | machine | verdict |',
    '| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |',
    ...legs.map(row),
  ];
  return `${lines.join('\n')}\n`;
}
