/** Live table of a fleet: a row for each instance, in the space that the terminal has. */
import type { FleetSlotState } from '../../registry/rollout/model.ts';
import type { ScreenSize } from '../../shell/terminal/screen.ts';

interface Column {
  readonly head: string;
  readonly isNumber: boolean;
  readonly of: (one: FleetSlotState) => string;
}

const isConsumer = ({ slot }: FleetSlotState): boolean => slot.role === 'consumer';

const COLUMNS: readonly Column[] = [
  { head: 'instance', isNumber: false, of: ({ slot }) => slot.name },
  { head: 'role', isNumber: false, of: ({ slot }) => slot.role },
  { head: 'version', isNumber: false, of: ({ side }) => side },
  { head: 'state', isNumber: false, of: ({ state }) => state },
  { head: 'rate/s', isNumber: true, of: ({ perSecond }) => String(Math.round(perSecond)) },
  { head: 'lag', isNumber: true, of: (one) => (isConsumer(one) ? String(one.counts.lag) : '-') },
  { head: 'errors', isNumber: true, of: (one) => (isConsumer(one) ? String(one.counts.errors) : '-') },
];
/** Columns that a narrow terminal leaves out, in this order; the name shows the role too. */
const DROPPED: readonly string[] = ['role', 'rate/s', 'lag', 'state', 'version'];
const GAP = '  ';

/** Lines of the table, none wider than the terminal.
 *  @param title line above the table */
export function fleetTable(
  title: string,
  fleet: readonly FleetSlotState[],
  { columns, rows }: ScreenSize,
): readonly string[] {
  if (rows < 3) return [];
  const shown = selected(fleet, rows - 2);
  const hidden = fleet.length - shown.length;
  const cells = fitting(shown, columns - 1);
  const more = hidden === 0 ? [] : [`and ${hidden} more, running without errors`];
  return [title, ...cells, ...more].map((line) => line.slice(0, Math.max(1, columns - 1)).trimEnd());
}

/** Instances with rows, in their order. Where there are too many, those with a change or an error
 *  come first, and one row says how many are left out. */
function selected(fleet: readonly FleetSlotState[], rowsMax: number): readonly FleetSlotState[] {
  if (fleet.length <= rowsMax) return fleet;
  const isQuiet = ({ state, counts }: FleetSlotState): boolean => state === 'running' && counts.errors === 0;
  const first = [...fleet].sort((one, other) => Number(isQuiet(one)) - Number(isQuiet(other)));
  const chosen = new Set(first.slice(0, Math.max(0, rowsMax - 1)));
  return fleet.filter((one) => chosen.has(one));
}

/** Head and rows with as many columns as the width allows. */
function fitting(fleet: readonly FleetSlotState[], width: number): readonly string[] {
  for (let dropped = 0; ; dropped++) {
    const gone = DROPPED.slice(0, dropped);
    const columns = COLUMNS.filter(({ head }) => !gone.includes(head));
    const table = [columns.map(({ head }) => head), ...fleet.map((one) => columns.map(({ of }) => of(one)))];
    const widths = columns.map((_, at) => Math.max(...table.map((row) => (row[at] as string).length)));
    const total = widths.reduce((sum, one) => sum + one, 0) + GAP.length * (columns.length - 1);
    if (total > width && dropped < DROPPED.length) continue;
    return table.map((row) =>
      row
        .map((text, at) =>
          columns[at]?.isNumber === true
            ? text.padStart(widths[at] as number)
            : text.padEnd(widths[at] as number),
        )
        .join(GAP),
    );
  }
}
