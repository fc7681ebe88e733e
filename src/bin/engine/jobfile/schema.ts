/** JSON Schema of job files, made from the table of settings. Editors check and complete with it;
 *  docs/reference/engine-job.schema.json holds its text. */
import { quantityPattern } from '../../../core/quantity.ts';
import { formatValue, parseValue, type Setting, type SettingTable } from '../../../core/settings.ts';
import { FLINK_CALL_FLAGS } from '../flink/settings.ts';
import { SAVEPOINT_ACTION_FLAGS } from '../savepoint/settings.ts';
import { VERIFY_FLAGS } from '../verify/settings.ts';
import { NAME, WINDOWS_MAX } from '../windows/specs.ts';
import { windowFields } from './windows.ts';

/** Settings that are not part of a job: how a file, an output or a fault is chosen. */
const NOT_OF_A_JOB: ReadonlySet<string> = new Set([
  'job',
  'config',
  'json',
  'chaos',
  'export-wait',
  'export-keys',
  'export-window',
  'offline',
  ...SAVEPOINT_ACTION_FLAGS,
  ...VERIFY_FLAGS,
  ...FLINK_CALL_FLAGS,
]);

/** Settings that a job file may have. */
export const jobTable = (table: SettingTable): SettingTable =>
  Object.fromEntries(Object.entries(table).filter(([name]) => !NOT_OF_A_JOB.has(name)));

type Json = Readonly<Record<string, unknown>>;

/** Integers of a setting are exact. */
const LIMIT = Number.MAX_SAFE_INTEGER;

const SCALAR: Json = { type: ['string', 'number', 'boolean'] };

/** Numbers are bytes or events a second, so they need no unit. */
const quantityForm = (kind: 'size' | 'rate', { min = 0, max = LIMIT }: Setting): Json => ({
  anyOf: [
    { type: 'number', minimum: min, maximum: max },
    { type: 'string', pattern: quantityPattern(kind) },
  ],
});

/** A list whose entries have a form, or its text with commas. */
const entryForm = (pattern: string): Json => ({
  anyOf: [
    { type: 'string', pattern: `^\\s*(${pattern})\\s*(,\\s*(${pattern})\\s*)*$` },
    { type: 'array', minItems: 1, items: { type: 'string', pattern: `^(${pattern})$` } },
  ],
});

function valueForm(setting: Setting): Json {
  const { type, choices, min, max, hasParts } = setting;
  switch (type) {
    case 'int':
    case 'number':
      return {
        type: type === 'int' ? 'integer' : 'number',
        minimum: min ?? -LIMIT,
        maximum: max ?? LIMIT,
      };
    case 'bool':
      return { type: 'boolean' };
    case 'duration':
      return { anyOf: [{ const: 0 }, { type: 'string', pattern: quantityPattern('duration') }] };
    case 'size':
    case 'rate':
      return quantityForm(type, setting);
    case 'listen':
      return { type: ['string', 'number'] };
    case 'list':
    case 'ints':
    case 'properties': {
      if (setting.entry !== undefined) return entryForm(setting.entry.pattern);
      const item = choices === undefined ? SCALAR : { enum: choices };
      return { anyOf: [SCALAR, { type: 'array', items: item }] };
    }
    case 'string':
      if (choices !== undefined) return { enum: choices };
      return hasParts === true ? { anyOf: [SCALAR, { type: 'array', items: SCALAR }] } : SCALAR;
  }
}

/** Default as a job file has it; undefined: none. */
function defaultOf(name: string, setting: Setting): unknown {
  if (setting.default === undefined || setting.default === '') return undefined;
  const value = parseValue(name, setting, setting.default, 'default');
  return jobValue(setting, value);
}

/** Value of a setting as a job file has it. */
export function jobValue({ type }: Setting, value: unknown): unknown {
  if (type === 'bool' || type === 'int' || type === 'number' || Array.isArray(value)) return value;
  return formatValue(type, value);
}

/** Form of the list of windows. */
function windowsForm(table: SettingTable): Json {
  const fields = Object.entries(windowFields(table)).map(([name, setting]) => [
    name,
    {
      description: setting.help,
      ...(name === 'name' ? { type: 'string', pattern: `^${NAME}$` } : valueForm(setting)),
    },
  ]);
  const window = {
    type: 'object',
    required: ['name', 'window'],
    additionalProperties: false,
    properties: Object.fromEntries(fields),
  };
  return {
    description: 'Windows over one read, each with results of its own; the setting window in another form.',
    type: 'array',
    minItems: 1,
    maxItems: WINDOWS_MAX,
    items: window,
  };
}

/** Text of the schema. @param table all settings of the command */
export function jobSchema(table: SettingTable): string {
  const properties = Object.entries(jobTable(table)).map(([name, setting]) => {
    const initial = defaultOf(name, setting);
    return [
      name,
      {
        description: setting.help,
        ...valueForm(setting),
        ...(initial === undefined ? {} : { default: initial }),
      },
    ];
  });
  const schema = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Job of millrace engine',
    description:
      'Settings of one run of `millrace engine -job=FILE`, by the names of the flags. Flags and environment override them. `millrace engine validate -job=FILE` checks also what a schema cannot express.',
    type: 'object',
    additionalProperties: false,
    properties: { ...Object.fromEntries(properties), windows: windowsForm(jobTable(table)) },
    not: { properties: { window: true, windows: true }, required: ['window', 'windows'] },
  };
  return `${JSON.stringify(schema, undefined, 2)}\n`;
}
