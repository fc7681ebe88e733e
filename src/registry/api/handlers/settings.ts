/** Operations on configs (compatibility levels and other settings) and modes, of the registry, a
 *  context or a subject. */
import { readBody, readConfigBody } from '../bodies.ts';
import { configDocument, configEcho } from '../documents.ts';
import { checkSettings } from '../limits.ts';
import { ref } from '../openapi/schemas.ts';
import type { Call, Operation } from '../operation.ts';

/** Returns true if inherited values are included. The registry's own settings always exist. */
const includeInherited = (call: Call): boolean => call.scope() === undefined || call.flag('defaultToGlobal');

async function setConfig(call: Call): Promise<unknown> {
  const update = readConfigBody(call.request);
  checkSettings(update, call.limits);
  // Rights on an alias reach the subject behind it, so the caller needs a right to that subject
  // too.
  const { alias } = update as { readonly alias?: unknown };
  if (typeof alias === 'string' && alias !== '') call.demandAlias(alias);
  return configEcho(await call.service.setConfig(call.scope(), update), update);
}

async function setMode(call: Call): Promise<unknown> {
  const { mode } = readBody(call.request);
  const wanted = typeof mode === 'string' ? mode.toUpperCase() : mode;
  return { mode: await call.service.setMode(call.scope(), wanted, call.flag('force')) };
}

type SettingOperation = Pick<Operation, 'id' | 'method' | 'summary' | 'errors' | 'run' | 'answer'> &
  Partial<Operation>;

/** Builds the same operation for the registry and for a subject. */
function forRegistryAndSubject(path: string, tag: 'config' | 'mode', base: SettingOperation): Operation[] {
  const operation = (id: string, at: string, of: string): Operation => ({
    right: base.method === 'GET' ? 'read' : 'admin',
    ...base,
    tag,
    id,
    path: at,
    summary: base.summary.replace('OF', of),
  });
  return [
    operation(base.id, path, 'of the registry, or of a context'),
    operation(`${base.id}OfSubject`, `${path}/{subject}`, 'of a subject'),
  ];
}

export const SETTING_OPERATIONS: readonly Operation[] = [
  ...forRegistryAndSubject('/config', 'config', {
    id: 'getConfig',
    method: 'GET',
    summary: 'The compatibility level and other settings OF.',
    query: ['defaultToGlobal', 'verdictPolicy'],
    answer: ref('Config'),
    errors: ['subject_level_not_set', 'subject_not_found'],
    run: (call) => ({
      ...configDocument(call.service.config(call.scope(), includeInherited(call))),
      ...(call.flag('verdictPolicy') ? { verdictPolicy: call.service.verdictPolicy(call.scope()) } : {}),
    }),
  }),
  ...forRegistryAndSubject('/config', 'config', {
    id: 'setConfig',
    method: 'PUT',
    summary: 'Set the compatibility level and other settings OF; an absent property stays, null removes it.',
    body: 'ConfigRequest',
    answer: ref('ConfigRequest'),
    errors: ['invalid_level', 'malformed_request', 'not_permitted', 'schema_too_large'],
    write: true,
    run: setConfig,
  }),
  ...forRegistryAndSubject('/config', 'config', {
    id: 'deleteConfig',
    method: 'DELETE',
    summary: 'Remove the settings OF. Answers with the previous settings.',
    answer: ref('Config'),
    errors: ['subject_level_not_set', 'subject_not_found', 'not_permitted'],
    write: true,
    run: async (call) => configDocument(await call.service.deleteConfig(call.scope())),
  }),
  ...forRegistryAndSubject('/mode', 'mode', {
    id: 'getMode',
    method: 'GET',
    summary: 'The mode OF.',
    query: ['defaultToGlobal'],
    answer: ref('Mode'),
    errors: ['subject_mode_not_set', 'subject_not_found'],
    run: (call) => ({ mode: call.service.mode(call.scope(), includeInherited(call)) }),
  }),
  ...forRegistryAndSubject('/mode', 'mode', {
    id: 'setMode',
    method: 'PUT',
    summary: 'Set the mode OF.',
    query: ['force'],
    body: 'ModeRequest',
    answer: ref('Mode'),
    errors: ['invalid_mode', 'malformed_request', 'not_permitted'],
    write: true,
    run: setMode,
  }),
  ...forRegistryAndSubject('/mode', 'mode', {
    id: 'deleteMode',
    method: 'DELETE',
    summary: 'Remove the mode OF. Answers with the previous mode.',
    query: ['recursive'],
    answer: ref('Mode'),
    errors: ['subject_mode_not_set', 'subject_not_found', 'not_permitted'],
    write: true,
    run: async (call) => ({ mode: await call.service.deleteMode(call.scope(), call.flag('recursive')) }),
  }),
];
