/** Messages that no finite event can hold, so they are never written: messages that require
 *  themselves, through any number of required fields. A list or map of them is always empty, an
 *  optional field of them always absent. */
import type { ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';

const NONE: ReadonlySet<ProtoMessage> = new Set();
const known = new WeakMap<ProtoFile, ReadonlySet<ProtoMessage>>();

/** Returns all such messages in a file and its imports. @cost linear in the fields; cached for each
 *  file */
export function neverWritten(file: ProtoFile): ReadonlySet<ProtoMessage> {
  const held = known.get(file) ?? find(file.messages);
  known.set(file, held);
  return held;
}

function find(roots: readonly ProtoMessage[]): ReadonlySet<ProtoMessage> {
  /** Number of required inner messages that are not known to have a value. */
  const waiting = new Map<ProtoMessage, number>();
  const outer = new Map<ProtoMessage, ProtoMessage[]>();
  const reached = new Set(roots);
  // A set that grows during its iteration replaces recursion: chains of types may be longer than
  // the call stack allows.
  for (const message of reached) {
    for (const { message: inner, required } of message.fields) {
      if (inner === undefined) continue;
      reached.add(inner);
      if (!required) continue;
      waiting.set(message, (waiting.get(message) ?? 0) + 1);
      const holders = outer.get(inner);
      if (holders === undefined) outer.set(inner, [message]);
      else holders.push(message);
    }
  }
  if (waiting.size === 0) return NONE;
  const ready = [...reached].filter((message) => !waiting.has(message));
  for (let next = ready.pop(); next !== undefined; next = ready.pop()) {
    for (const holder of outer.get(next) ?? []) {
      const rest = (waiting.get(holder) as number) - 1;
      waiting.set(holder, rest);
      if (rest > 0) continue;
      waiting.delete(holder);
      ready.push(holder);
    }
  }
  return new Set(waiting.keys());
}
