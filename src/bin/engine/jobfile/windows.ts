/** `windows` of a job file: a list of mappings, one for each window over one read. It becomes the
 *  setting `window`, whose text has the same content. */
import { isMap, isScalar } from 'yaml';
import { findMillraceError, type MillraceError } from '../../../core/errors.ts';
import { nearest, parseValue, type Setting, type SettingTable } from '../../../core/settings.ts';
import { aggregateSpecs } from '../../../engine/aggregate/definition.ts';
import { checkWindow } from '../windows/specs.ts';
import type { FilePlace, Part } from './place.ts';

/** Fields of a window that only some kinds have. */
const TIMES: Readonly<Record<string, readonly string[]>> = {
  tumbling: ['size'],
  sliding: ['size', 'slide'],
  session: ['gap'],
};

/** Settings of the fields of a window, of which the first two are required. */
export const windowFields = ({ size, slide, gap, ...table }: SettingTable): SettingTable => ({
  name: {
    type: 'string',
    help: 'name of the window: up to 31 small letters, digits and underscores, a letter first',
  },
  window: { type: 'string', choices: Object.keys(TIMES), help: 'kind of window' },
  ...{ size: size as Setting, slide: slide as Setting, gap: gap as Setting },
  'allowed-lateness': fieldOf(table['allowed-lateness'] as Setting),
  emit: fieldOf(table['emit'] as Setting),
  aggregate: fieldOf(table['aggregate'] as Setting),
});

/** The default of a field is the setting of the run. */
const fieldOf = ({ default: _default, ...setting }: Setting): Setting => setting;

/** Part of a reader of files that a window needs. */
export interface WindowReader {
  placeOf(node: unknown): FilePlace;
  /** Reads a value, or the parts of a list; undefined after a problem. */
  parts(name: string, setting: Setting, value: unknown, at: FilePlace): readonly Part[] | undefined;
  problem(at: FilePlace, message: string, next: string | undefined, code?: string): void;
}

interface Field {
  readonly text: string;
  readonly at: FilePlace;
  readonly parts: readonly Part[];
}

/** A window of a file. */
export interface WindowPart {
  readonly name: string;
  readonly namePlace: FilePlace;
  readonly part: Part;
  /** Aggregates of this window, `NAME=AGGREGATES`; undefined: those of the job. */
  readonly aggregate: Part | undefined;
}

/** Text of a window as the flag has it, with its place and its name; undefined after a problem. */
export function windowIn(item: unknown, reader: WindowReader, fields: SettingTable): WindowPart | undefined {
  const at = reader.placeOf(item);
  if (!isMap(item) || item.anchor !== undefined) {
    reader.problem(at, 'a window is no mapping', 'give name: NAME, window: KIND and its times');
    return undefined;
  }
  const found = new Map<string, Field>();
  let isSound = true;
  for (const { key, value } of item.items) {
    const name = isScalar(key) && typeof key.value === 'string' ? key.value : '';
    const place = reader.placeOf(key);
    const setting = Object.hasOwn(fields, name) ? (fields[name] as Setting) : undefined;
    const field =
      setting === undefined ? unknown(reader, place, name, fields) : fieldIn(name, setting, value, place);
    if (field === undefined) isSound = false;
    else found.set(name, field);
  }
  return isSound ? complete(found) : undefined;

  function fieldIn(name: string, setting: Setting, value: unknown, place: FilePlace): Field | undefined {
    const parts = reader.parts(name, setting, value, place);
    const [first] = parts ?? [];
    if (parts === undefined || first === undefined) return undefined;
    const text = parts.map((part) => part.text).join();
    try {
      parseValue(name, setting, text, 'job file');
      if (name === 'aggregate') aggregateSpecs(text);
      return { text, at: { line: first.line, column: first.column }, parts };
    } catch (thrown) {
      const { message, next, code } = findMillraceError(thrown) as MillraceError;
      reader.problem(first, message, next, code);
      return undefined;
    }
  }

  function complete(of: ReadonlyMap<string, Field>): WindowPart | undefined {
    const [name, kind] = [of.get('name'), of.get('window')];
    if (name === undefined || kind === undefined) {
      const lacking = name === undefined ? 'name' : 'window';
      reader.problem(at, `a window has no ${lacking}`, `give ${lacking}: VALUE`);
      return undefined;
    }
    const times = TIMES[kind.text] as readonly string[];
    for (const time of ['size', 'slide', 'gap']) {
      const given = of.get(time);
      if ((given !== undefined) === times.includes(time)) continue;
      const text = `a ${kind.text} window has ${given === undefined ? 'a' : 'no'} ${time}`;
      reader.problem(given?.at ?? at, text, given === undefined ? `give ${time}: TIME` : `leave ${time} out`);
      return undefined;
    }
    const option = (field: string, flag: string): readonly string[] => {
      const value = of.get(field);
      return value === undefined ? [] : [`${flag}=${value.text}`];
    };
    const parts = [
      ...[kind.text, ...times.map((time) => of.get(time)?.text ?? '')],
      ...option('allowed-lateness', 'lateness'),
      ...option('emit', 'emit'),
    ];
    const text = `${name.text}=${parts.join(':')}`;
    try {
      checkWindow(text, name.text);
    } catch (thrown) {
      const { message, next, code } = findMillraceError(thrown) as MillraceError;
      reader.problem(name.at, message, next, code);
      return undefined;
    }
    return {
      ...{ name: name.text, namePlace: name.at, part: { text, ...at, placeOf: () => at } },
      aggregate: aggregateIn(name.text, of.get('aggregate')),
    };
  }
}

function aggregateIn(name: string, field: Field | undefined): Part | undefined {
  if (field === undefined) return undefined;
  const placeOf = (index: number): FilePlace => {
    let left = index - name.length - 1;
    for (const part of field.parts) {
      if (left >= 0 && left < part.text.length) return part.placeOf(left);
      left -= part.text.length + 1;
    }
    return field.at;
  };
  return { text: `${name}=${field.text}`, ...field.at, placeOf };
}

function unknown(reader: WindowReader, at: FilePlace, name: string, fields: SettingTable): undefined {
  const near = nearest(name, Object.keys(fields));
  const shown = /^[\w.-]{1,64}$/.test(name) ? name : 'this name';
  const next =
    near === undefined ? `a window has ${Object.keys(fields).join(', ')}` : `did you mean ${near}?`;
  reader.problem(at, `${shown} is no field of a window`, next, 'unknown_flag');
  return undefined;
}
