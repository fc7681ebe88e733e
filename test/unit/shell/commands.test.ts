/** Rules for the settings table of every command. */
import { describe, expect, test } from 'vitest';
import { COMMANDS } from '../../../src/bin/main.ts';
import { environmentName, formatValue, parseSettings } from '../../../src/core/settings.ts';
import { type Command, SHARED_SETTINGS } from '../../../src/shell/command.ts';
import { loadSettings, settingTableOf } from '../../../src/shell/load-settings.ts';
import { helpText } from '../../../src/shell/run.ts';

const commands = new Map<string, Command>();
for (const [name, load] of Object.entries(COMMANDS)) commands.set(name, (await load()).command);

describe.each([...commands])('%s', (name, command) => {
  const table = settingTableOf(command);

  test('a command has its listed name and a one-line summary', () => {
    expect(command.name).toBe(name);
    expect(command.summary).toMatch(/^[A-Z][^\n]{10,100}$/);
    expect(command.description ?? '').not.toContain('\t');
  });

  test('a command names every setting in one form and explains it', () => {
    for (const [flag, setting] of Object.entries(table)) {
      expect(flag).toMatch(/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/);
      expect(setting.help.trim(), flag).not.toBe('');
      expect(setting.help, flag).not.toContain('\n');
    }
    const variables = Object.entries(table).flatMap(([flag, setting]) => [
      environmentName(flag),
      ...(setting.env ?? []),
    ]);
    expect(new Set(variables).size).toBe(variables.length);
  });

  test('the defaults of a command are accepted by its parser and survive formatting', () => {
    const lenient = Object.fromEntries(
      Object.entries(table).map(([flag, setting]) => [flag, { ...setting, required: false }]),
    );
    const { values } = parseSettings(lenient, { argv: [], env: {} });
    for (const [flag, { needs, excludes, ...setting }] of Object.entries(table)) {
      if (setting.default === undefined) continue;
      const value = (values as Record<string, unknown>)[flag];
      const again = parseSettings(
        { [flag]: { ...setting, required: false } },
        { argv: [`-${flag}=${formatValue(setting.type, value)}`], env: {} },
      );
      expect((again.values as Record<string, unknown>)[flag], flag).toEqual(value);
    }
  });

  test('needed and excluded settings name existing settings and values', () => {
    for (const [flag, { needs = [], excludes = [] }] of Object.entries(table)) {
      for (const what of [...needs, ...excludes]) {
        const [name = '', value] = what.split('=');
        expect(Object.keys(table), `${flag}: ${what}`).toContain(name);
        const { choices } = table[name] as { readonly choices?: readonly string[] };
        if (choices !== undefined && value !== undefined)
          expect(choices, `${flag}: ${what}`).toContain(value);
      }
    }
  });

  test('a command changes no type of a shared setting', () => {
    for (const [flag, shared] of Object.entries(SHARED_SETTINGS)) {
      if (table[flag] !== undefined) expect([flag, table[flag].type]).toEqual([flag, shared.type]);
    }
  });

  test('a command has help text and refuses an unknown flag', () => {
    expect(helpText(command)).toContain(`millrace ${name}`);
    expect(() => loadSettings(command, ['-no-such-flag-here=1'], {})).toThrow('unknown flag');
  });
});
