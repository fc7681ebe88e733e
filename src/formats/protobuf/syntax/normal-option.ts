/** Options in normal form: custom options by full name, `(a).b = 1` as `(a) = {b: 1}`, parts of one
 *  value joined, sorted. */

import type { LinkedField, LinkedMessage } from '../link/model.ts';
import type { ProtoLink } from '../link/resolve.ts';
import type { OptionEntry, OptionNode, OptionValue } from './ast.ts';
import { integerOf } from './lexer.ts';

/** Normalizes options. @param scope full name of the element that has the options, in which names
 *  are resolved */
export function normalOptions(
  link: ProtoLink,
  options: readonly OptionNode[],
  message: string,
  scope: string,
): OptionNode[] {
  if (options.length === 0) return [];
  const merged = new Map<string, OptionNode>();
  const out: OptionNode[] = [];
  const root = link.optionsMessage(message);
  for (const option of options) {
    const [first, ...rest] = option.name;
    if (first === undefined) continue;
    const field = first.extension
      ? link.extension(first.name, scope, link.root)
      : root?.fields.find(({ name }) => name === first.name);
    const target = field?.target?.kind === 'message' ? field.target : undefined;
    let value = option.value;
    if (first.extension && rest.length > 0) {
      for (const part of [...rest].reverse()) {
        value = {
          kind: 'message',
          entries: [{ key: part.extension ? `[${part.name}]` : part.name, value, at: option.at }],
        };
      }
    }
    const context = { link, scope };
    const name = first.extension
      ? [{ name: field?.fullName ?? first.name.replace(/^\./, ''), extension: true }]
      : option.name;
    const node: OptionNode = { ...option, name, value: normalValue(value, target, context) };
    const key = name.map((part) => part.name).join('.');
    const held = merged.get(key);
    if (held === undefined || field?.label === 'repeated' || !first.extension) {
      out.push(node);
      merged.set(key, node);
    } else {
      const both = mergedValue(held.value, node.value, target, context);
      out[out.indexOf(held)] = { ...held, value: both };
      merged.set(key, out[out.findIndex((one) => one.value === both)] as OptionNode);
    }
  }
  const key = (option: OptionNode): string => option.name.map((part) => part.name).join('.');
  return out.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
}

interface Context {
  readonly link: ProtoLink;
  readonly scope: string;
}

function fieldOf(
  key: string,
  message: LinkedMessage | undefined,
  { link, scope }: Context,
): LinkedField | undefined {
  if (!key.startsWith('['))
    return message?.fields.find(({ name, type, node }) => (type === 'group' ? node.type : name) === key);
  return key.includes('/') ? undefined : link.extension(key.slice(1, -1), scope, link.root);
}

function normalValue(value: OptionValue, type: LinkedMessage | undefined, context: Context): OptionValue {
  if (value.kind === 'number') return { kind: 'number', text: normalNumber(value.text) };
  if (value.kind === 'list') {
    return { kind: 'list', values: value.values.map((one) => normalValue(one, type, context)) };
  }
  if (value.kind !== 'message') return value;
  const byKey = new Map<string, { readonly values: OptionValue[]; readonly at: OptionEntry['at'] }>();
  for (const { key, value: one, at } of value.entries) {
    const field = fieldOf(key, type, context);
    const inner = field?.target?.kind === 'message' ? field.target : undefined;
    const name = key.startsWith('[') && field !== undefined ? `[${field.fullName}]` : key;
    const held = byKey.get(name) ?? { values: [], at };
    byKey.set(name, held);
    const normal = normalValue(one, inner, context);
    const last = held.values.at(-1);
    if (last !== undefined && field !== undefined && field.label !== 'repeated') {
      held.values[held.values.length - 1] = mergedValue(last, normal, inner, context);
    } else if (normal.kind === 'list') held.values.push(...normal.values);
    else held.values.push(normal);
  }
  const entries: OptionEntry[] = [];
  for (const [key, { values, at }] of byKey) {
    const [only] = values;
    if (only === undefined) continue;
    entries.push({ key, value: values.length === 1 ? only : { kind: 'list', values }, at });
  }
  return { kind: 'message', entries: entries.sort((a, b) => (a.key < b.key ? -1 : 1)) };
}

/** Merges two statements for one value that is not repeated: messages are joined, of scalars the
 *  last applies. */
function mergedValue(
  first: OptionValue,
  second: OptionValue,
  type: LinkedMessage | undefined,
  context: Context,
): OptionValue {
  if (first.kind !== 'message' || second.kind !== 'message') return second;
  return normalValue({ kind: 'message', entries: [...first.entries, ...second.entries] }, type, context);
}

/** Number in decimal notation; a float as the shortest text that reads back as the same value. */
function normalNumber(text: string): string {
  const negative = text.startsWith('-');
  const digits = negative ? text.slice(1) : text;
  if (/^(0[xX][0-9a-fA-F]+|\d+)$/.test(digits)) return `${negative ? '-' : ''}${integerOf(digits)}`;
  const number = Number(text.replace(/[fF]$/, ''));
  if (Object.is(number, -0)) return '-0.0';
  const shortest = String(number);
  return /^-?Infinity$/.test(shortest) ? text : shortest;
}
