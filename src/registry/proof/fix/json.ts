/** Candidate changes of a JSON Schema that may remove a finding: restorations of the former text.
 */
import { type JsonNode, type JsonObject, readJson } from '../../../formats/json/text.ts';
import type { Change, Edit, FixContext } from './change.ts';
import { jsonSpan } from './spans.ts';

const SHOWN_CHARS_MAX = 60;

/** Value at a place, and the object that has it as a member. */
interface Found {
  readonly node: JsonNode;
  readonly holder: JsonObject | undefined;
  readonly key: string | undefined;
}

function find(text: string, at: number): Found | undefined {
  const open: Found[] = [
    { node: readJson(text, { comments: false, repeatedKeys: true }), holder: undefined, key: undefined },
  ];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    const { node } = one;
    if (node.at === at) return one;
    if (node.kind === 'object')
      for (const [key, member] of node.members) {
        // The place may be the keyword itself.
        if (member.keyAt === at) return { node: member.value, holder: node, key };
        open.push({ node: member.value, holder: node, key });
      }
    else if (node.kind === 'array')
      for (const item of node.items) open.push({ node: item, holder: undefined, key: undefined });
  }
  return undefined;
}

const sliceOf = (text: string, { at }: JsonNode): string => text.slice(at, jsonSpan(text, at).end);

function replaced(text: string, { at }: JsonNode, put: string): Edit {
  return { at, end: jsonSpan(text, at).end, text: put };
}

/** Removes a member with its comma. */
function without(text: string, object: JsonObject, key: string): Edit | undefined {
  const member = object.members.get(key);
  if (member === undefined) return undefined;
  const { end } = jsonSpan(text, member.value.at);
  const comma = /^\s*,\s*/.exec(text.slice(end))?.[0];
  if (comma !== undefined) return { at: member.keyAt, end: end + comma.length, text: '' };
  const lead = /,\s*$/.exec(text.slice(0, member.keyAt))?.[0] ?? '';
  return { at: member.keyAt - lead.length, end, text: '' };
}

export function* jsonChanges({ finding, direction, proposed, other }: FixContext): Generator<Change> {
  if (proposed.format !== 'JSON' || other?.format !== 'JSON') return;
  const [here, there] =
    direction === 'FORWARD' ? [finding.writer, finding.reader] : [finding.reader, finding.writer];
  if (here === undefined || !('at' in here) || here.from !== undefined) return;
  const own = find(proposed.source, here.at);
  const theirs =
    there === undefined || !('at' in there) || there.from !== undefined
      ? undefined
      : find(other.source, there.at);
  if (own === undefined) return;
  const holders: Array<readonly [JsonObject, JsonObject | undefined]> = [];
  const object = (node: JsonNode | undefined): JsonObject | undefined =>
    node?.kind === 'object' ? node : undefined;
  const mine = object(own.node);
  if (mine !== undefined) holders.push([mine, object(theirs?.node)]);
  if (own.holder !== undefined) holders.push([own.holder, theirs?.holder]);
  for (const [now, was] of holders) {
    // One keyword at a time: a new keyword is removed, a changed one is restored.
    for (const [key, { value }] of now.members) {
      const old = was?.members.get(key)?.value;
      const put = old === undefined ? undefined : sliceOf(other.source, old);
      if (put === sliceOf(proposed.source, value)) continue;
      const edit =
        put === undefined ? without(proposed.source, now, key) : replaced(proposed.source, value, put);
      if (edit === undefined) continue;
      const shown =
        put !== undefined && put.length > SHOWN_CHARS_MAX ? `${put.slice(0, SHOWN_CHARS_MAX)}…` : put;
      const words = put === undefined ? `remove "${key}"` : `restore "${key}": ${shown}`;
      yield { words, edits: [edit] };
    }
  }
  if (theirs !== undefined)
    yield {
      words: 'restore the former value',
      edits: [replaced(proposed.source, own.node, sliceOf(other.source, theirs.node))],
    };
}
