/** Smallest event of each message that a file reaches, if the message has one within the limits.
 *
 *  It holds only the required fields. A message that requires itself has no finite event; neither
 *  has a message that requires such a message. Found from the inside out: a message is settled when
 *  all messages that it requires are. */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { protoEdges } from './edges.ts';

/** Most values of a smallest event; a message whose smallest event has more counts as having none.
 */
const VALUES_MAX = 50_000;
/** Most messages inside messages of a smallest event. */
const DEPTH_MAX = 95;

interface Least {
  readonly datum: ProtoDatum;
  readonly values: number;
  readonly depth: number;
}

export class LeastMessages {
  private readonly settled = new Map<ProtoMessage, Least>();

  constructor(file: ProtoFile) {
    const waiting = new Map<ProtoMessage, number>();
    const users = new Map<ProtoMessage, ProtoMessage[]>();
    const reached = new Set<ProtoMessage>(file.messages);
    const open: ProtoMessage[] = [];
    for (const message of reached) {
      const required = requiredOf(message);
      for (const field of message.fields) if (field.message !== undefined) reached.add(field.message);
      if (message.unknown) continue;
      waiting.set(message, required.size);
      for (const one of required) {
        const held = users.get(one);
        if (held === undefined) users.set(one, [message]);
        else held.push(message);
      }
      if (required.size === 0) open.push(message);
    }
    for (let message = open.pop(); message !== undefined; message = open.pop()) {
      const least = this.settle(message);
      if (least === undefined) continue;
      this.settled.set(message, least);
      for (const user of users.get(message) ?? []) {
        const left = (waiting.get(user) as number) - 1;
        waiting.set(user, left);
        if (left === 0) open.push(user);
      }
    }
  }

  private settle(message: ProtoMessage): Least | undefined {
    const datum = new Map<number, ProtoFieldDatum>();
    let values = 1;
    let depth = 0;
    for (const field of message.fields) {
      if (!field.required) continue;
      const inner = field.message === undefined ? undefined : this.settled.get(field.message);
      const value = field.message === undefined ? protoEdges(field)[0] : inner?.datum;
      if (value === undefined) return undefined;
      values += inner?.values ?? 1;
      depth = Math.max(depth, inner?.depth ?? 0);
      datum.set(field.number, value);
    }
    if (values > VALUES_MAX || depth >= DEPTH_MAX) return undefined;
    return { datum, values, depth: depth + 1 };
  }

  /** True if the message has an event within the limits. */
  has(message: ProtoMessage): boolean {
    return this.settled.has(message);
  }

  /** True if a field can have a value within the limits. */
  holds({ message }: ProtoField): boolean {
    return message === undefined || this.has(message);
  }

  /** Returns the smallest event. The message must have one. */
  of(message: ProtoMessage): ProtoDatum {
    return (this.settled.get(message) as Least).datum;
  }

  valuesOf(message: ProtoMessage): number {
    return (this.settled.get(message) as Least).values;
  }

  /** Returns the smallest event that also has this field. */
  with(message: ProtoMessage, field: ProtoField, value: ProtoFieldDatum): ProtoDatum {
    return new Map<number, ProtoFieldDatum>(this.of(message)).set(field.number, value);
  }

  /** Returns the smallest single value: an item of a repeated field, a value of a map. */
  valueOf(field: ProtoField): ProtoValueDatum {
    return field.message === undefined ? (protoEdges(field)[0] as ProtoValueDatum) : this.of(field.message);
  }
}

const requiredOf = (message: ProtoMessage): ReadonlySet<ProtoMessage> =>
  new Set(
    message.fields.flatMap(({ required, message }) => (required && message !== undefined ? [message] : [])),
  );
