/** Page about the cells of the rollout bench, made from its JSON alone. */
import type { OrderShape } from '../../src/gen/order.ts';
import { UPGRADE_ORDERS } from '../../src/registry/rollout/model.ts';
import type { BenchReport } from '../harness.ts';
import { madeByText } from '../stored.ts';
import { CELL_FORMATS, CELL_MODES, type Change, changesOf, wordsOf } from './cells.ts';
import type { Damage } from './damage.ts';
import { agrees, breaks, type CellResult, isFinished } from './fleet.ts';

/** JSON of the bench: a report with its cells. */
export interface RolloutReport extends BenchReport {
  readonly cells: readonly CellResult[];
  readonly damages: readonly Damage[];
}

const TITLES = { avro: 'Avro', protobuf: 'Protobuf' } as const;
const PLACES: Readonly<Record<CellResult['registered'], string>> = {
  mode: 'accepted',
  none: 'refused, runs under NONE',
  apart: 'refused, also under NONE; runs on two subjects',
};
const SHOWN_CHARS_MAX = 200;

const shapeName = (shape: OrderShape): string => (typeof shape === 'number' ? `v${shape}` : shape);
const escaped = (text: string): string => text.replaceAll('|', '\\|').replace(/\s+/g, ' ');
const shorten = (text: string): string =>
  text.length > SHOWN_CHARS_MAX ? `${text.slice(0, SHOWN_CHARS_MAX)}…` : text;

/** One result: the counter, and a mark where it is not what live decode says. */
function outcomeOf(cell: CellResult | undefined): string {
  if (cell === undefined) return 'not run';
  if (!isFinished(cell)) return `**${cell.verdict}**: ${escaped(cell.reason ?? '')}`;
  const count = cell.errors === 0 ? '0' : `${cell.errors} of ${cell.consumed}`;
  return agrees(cell) ? count : `**${count}, live decode: ${breaks(cell) ? 'fails' : 'reads all'}**`;
}

const liveOf = (cell: CellResult | undefined): string => {
  if (cell === undefined) return '';
  const { orders, unreadable, misread } = cell.live;
  if (unreadable + misread === 0) return 'reads all';
  return unreadable === 0 ? `misreads ${misread} of ${orders}` : `fails for ${unreadable} of ${orders}`;
};

function rowsOf(change: Change, cells: readonly CellResult[]): readonly string[] {
  const own = cells.filter(
    ({ format, from, to }) => format === change.format && from === change.from && to === change.to,
  );
  const at = (mode: string, order: string): CellResult | undefined =>
    own.find((cell) => cell.mode === mode && cell.order === order);
  return CELL_MODES.map((mode, index) => {
    const [consumersFirst, producersFirst] = UPGRADE_ORDERS.map((order) => at(mode, order));
    const any = consumersFirst ?? producersFirst;
    const step =
      index === 0 ? `${shapeName(change.from)} to ${shapeName(change.to)}: ${wordsOf(change)}` : '';
    const live = index === 0 ? [liveOf(consumersFirst), liveOf(producersFirst)] : ['', ''];
    const safe = (cell: CellResult | undefined): string => (cell?.safe === true ? 'safe' : 'unsafe');
    return `| ${step} | ${live.join(' | ')} | ${mode} | ${any === undefined ? '' : PLACES[any.registered]} | ${safe(consumersFirst)}: ${outcomeOf(consumersFirst)} | ${safe(producersFirst)}: ${outcomeOf(producersFirst)} |`;
  });
}

function damageRows({ from, to, refusal, misreadings }: Damage): readonly string[] {
  const name = `${shapeName(from)} to ${shapeName(to)}`;
  const first = escaped(shorten(refusal));
  if (misreadings.length === 0) return [`| ${name} | ${first} | none | | | |`];
  return misreadings.map(
    ({ reader, orders, unreadable, misread, refused, shown }, index) =>
      `| ${index === 0 ? name : ''} | ${index === 0 ? first : ''} | ${shapeName(reader)} | ${unreadable} unreadable, ${misread} misread, of ${orders} | ${escaped(shorten(shown))} | ${refused} refused |`,
  );
}

function headOf(report: RolloutReport): readonly string[] {
  const { flags = [], cells } = report;
  const finished = cells.filter(isFinished);
  const sum = (of: (cell: CellResult) => number): string =>
    cells.reduce((total, cell) => total + of(cell), 0).toLocaleString('en-US');
  return [
    '# Rolling upgrades, cell by cell',
    '',
    '<!-- Generated from rollout.json by `npm run generate`; do not edit. -->',
    '',
    `\`millrace bench rollout -out=docs/results\`${flags.length === 0 ? '' : ` with ${flags.join(' ')}`}, ${madeByText(report)}. Each cell ran once.`,
    '',
    'Each cell is `millrace rollout` with a fleet of its own on a real broker: one producer, one consumer, a new topic. Both run',
    'the old schema under load, then each is replaced by an instance of the new schema, which is ready before the old one',
    'stops. A cell ends when each step has shown its effect: the new instance has worked, and the group has read what was written.',
    'The consumer reads every record with its own schema; the cell counts the records that it cannot read',
    '(`deserialize_errors_total`) of the records that it read. It never rolls back.',
    '',
    '- **New reads old, old reads new**: the orders of the producer, decoded without the compatibility rules. Consumers first exercises',
    '  the first direction, producers first the second.',
    '- **Mode**: what the registry answers to the new schema after the old one.',
    '- **Safe, unsafe**: the plan of `rollout -plan` for that order. After it the count of unreadable records; it is bold where it',
    '  disagrees with live decode.',
    '',
    `${finished.length} of ${cells.length} cells finished; ${finished.filter(agrees).length} agree with live decode. ${finished.filter(({ safe, errors }) => safe && errors > 0).length} cells that the plan calls safe had unreadable records. The fleets wrote ${sum(({ produced }) => produced)} records and could not read ${sum(({ errors }) => errors)} of ${sum(({ consumed }) => consumed)}.`,
  ];
}

/** Makes docs/results/rollout.md. */
export function rolloutPage(report: RolloutReport): string {
  const { cells, damages } = report;
  const lines = [...headOf(report)];
  for (const format of CELL_FORMATS)
    lines.push(
      '',
      `## ${TITLES[format]}`,
      '',
      '| change | new reads old | old reads new | mode | the registry | consumers first | producers first |',
      '| --- | --- | --- | --- | --- | --- | --- |',
      ...changesOf(format).flatMap((change) => rowsOf(change, cells)),
    );
  lines.push(
    '',
    '## Refused even under NONE',
    '',
    'A Protobuf number that changed its meaning is refused in every mode. The new schema was registered on a second subject, and its',
    'orders were read with each version of the first subject: by a decoder of Protobuf alone, and by the deserializer of',
    '`millrace/registry`, which checks the two schemas. It refuses no record of a reused number of the same type: between two',
    'schemas that number is a renamed field. Only the history of the subject shows the reuse, so only the registry prevents it. A cell',
    'above has the two schemas of its step as its whole history; therefore it accepts the reused number of an older version.',
    '',
    '| change | answer under NONE | reader | decoder alone | first difference | deserializer |',
    '| --- | --- | --- | --- | --- | --- |',
    ...damages.flatMap(damageRows),
  );
  return `${lines.join('\n')}\n`;
}
