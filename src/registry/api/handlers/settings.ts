/** Compatibility levels and what else is configured, and modes: of everything, of a context, of a
 *  subject. */
import { readBody, readConfigBody } from '../bodies.ts';
import { configDocument, configEcho } from '../documents.ts';
import { checkSettings } from '../limits.ts';
import { ref } from '../openapi/schemas.ts';
import type { Call, Operation } from '../operation.ts';

/** What the whole registry is set to is always there. */
const inForce = (call: Call): boolean => call.scope() === undefined || call.flag('defaultToGlobal');

async function setConfig(call: Call): Promise<unknown> {
  const update = readConfigBody(call.request);
  checkSettings(update, call.limits);
  // What is allowed on an alias reaches the subject behind it.
  const { alias } = update as { readonly alias?: unknown };
  if (typeof alias === 'string' && alias !== '') call.demandAlias(alias);
  return configEcho(await call.service.setConfig(call.scope(), update), update);
}

async function setMode(call: Call): Promise<unknown> {
  const { mode } = readBody(call.request);
  const wanted = typeof mode === 'string' ? mode.toUpperCase() : mode;
  return { mode: await call.service.setMode(call.scope(), wanted, call.flag('force')) };
}

type Half = Pick<Operation, 'id' | 'method' | 'summary' | 'errors' | 'run' | 'answer'> & Partial<Operation>;

/** The same operation for the whole and for a subject. */
function both(path: string, tag: 'config' | 'mode', half: Half): Operation[] {
  const one = (id: string, at: string, of: string): Operation => ({
    right: half.method === 'GET' ? 'read' : 'admin',
    ...half,
    tag,
    id,
    path: at,
    summary: half.summary.replace('OF', of),
  });
  return [
    one(half.id, path, 'of the registry, or of a context'),
    one(`${half.id}OfSubject`, `${path}/{subject}`, 'of a subject'),
  ];
}

export const SETTING_OPERATIONS: readonly Operation[] = [
  ...both('/config', 'config', {
    id: 'getConfig',
    method: 'GET',
    summary: 'The compatibility level OF, with what else is set.',
    query: ['defaultToGlobal', 'verdictPolicy'],
    answer: ref('Config'),
    errors: ['subject_level_not_set', 'subject_not_found'],
    run: (call) => ({
      ...configDocument(call.service.config(call.scope(), inForce(call))),
      ...(call.flag('verdictPolicy') ? { verdictPolicy: call.service.verdictPolicy(call.scope()) } : {}),
    }),
  }),
  ...both('/config', 'config', {
    id: 'setConfig',
    method: 'PUT',
    summary: 'Set the compatibility level OF; what is absent stays, null removes.',
    body: 'ConfigRequest',
    answer: ref('ConfigRequest'),
    errors: ['invalid_level', 'malformed_request', 'not_permitted', 'schema_too_large'],
    write: true,
    run: setConfig,
  }),
  ...both('/config', 'config', {
    id: 'deleteConfig',
    method: 'DELETE',
    summary: 'Remove the settings OF. Answers with what they were.',
    answer: ref('Config'),
    errors: ['subject_level_not_set', 'subject_not_found', 'not_permitted'],
    write: true,
    run: async (call) => configDocument(await call.service.deleteConfig(call.scope())),
  }),
  ...both('/mode', 'mode', {
    id: 'getMode',
    method: 'GET',
    summary: 'The mode OF.',
    query: ['defaultToGlobal'],
    answer: ref('Mode'),
    errors: ['subject_mode_not_set', 'subject_not_found'],
    run: (call) => ({ mode: call.service.mode(call.scope(), inForce(call)) }),
  }),
  ...both('/mode', 'mode', {
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
  ...both('/mode', 'mode', {
    id: 'deleteMode',
    method: 'DELETE',
    summary: 'Remove the mode OF. Answers with what it was.',
    query: ['recursive'],
    answer: ref('Mode'),
    errors: ['subject_mode_not_set', 'subject_not_found', 'not_permitted'],
    write: true,
    run: async (call) => ({ mode: await call.service.deleteMode(call.scope(), call.flag('recursive')) }),
  }),
];
