/** The job file of a run whose settings the first records completed. */
import { Document } from 'yaml';
import { parseValue, type SettingTable } from '../../../core/settings.ts';
import type { InputDefinition } from '../../../engine/source/input/definition.ts';
import { redactSetting } from '../../../shell/terminal/redact.ts';
import { jobTable, jobValue } from './schema.ts';

const HEADER = ` yaml-language-server: $schema=node_modules/millrace/docs/reference/engine-job.schema.json
 The job of this run, with what the first records decided. Save it and start it with -job=FILE.`;

export interface InferredJob {
  /** Settings that differ from their defaults, as a job file has them. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Settings that may hold a secret, so that they are given otherwise. */
  readonly secret: readonly string[];
}

/** The job of a run with a decided definition. @param table all settings of the command */
export function inferredJob(
  table: SettingTable,
  values: Readonly<Record<string, unknown>>,
  { format, key, time }: InputDefinition,
): InferredJob {
  const decided: Readonly<Record<string, unknown>> = { format, key, time };
  const settings: Record<string, unknown> = {};
  const secret: string[] = [];
  for (const [name, setting] of Object.entries(jobTable(table))) {
    const value = decided[name] ?? values[name];
    if (value === undefined) continue;
    const shown = jobValue(setting, value);
    const initial =
      setting.default === undefined
        ? undefined
        : jobValue(setting, parseValue(name, setting, setting.default, 'default'));
    if (JSON.stringify(shown) === JSON.stringify(initial)) continue;
    if (JSON.stringify(redactSetting(setting, value)) === JSON.stringify(value)) settings[name] = shown;
    else secret.push(name);
  }
  return { settings, secret };
}

/** Text of a job file. */
export function jobFileText({ settings, secret }: InferredJob): string {
  const document = new Document(settings);
  document.commentBefore = HEADER;
  if (secret.length > 0)
    document.comment = ` Not written, because they may hold secrets: ${secret.join(', ')}. Give them in the environment.`;
  return document.toString({ lineWidth: 0 });
}
