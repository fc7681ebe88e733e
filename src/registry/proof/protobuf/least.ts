/** The smallest event of each message that a file reaches, or that a message has none that is worth building.
 *
 *  It holds the required fields alone. A message that requires itself has no finite event; what requires it has none
 *  either. Found from the inside out: a message is settled when all that it requires are.
 */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../../formats/datum.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import { protoEdges } from './edges.ts';

/** Values of a smallest event; a message whose smallest has more counts as one without. */
const VALUES_MAX = 50_000;
/** Messages inside messages of a smallest event. */
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
    const met = new Set<ProtoMessage>(file.messages);
    const open: ProtoMessage[] = [];
    for (const message of met) {
      const required = requiredOf(message);
      for (const field of message.fields) if (field.message !== undefined) met.add(field.message);
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

  /** Whether an event can hold it. */
  has(message: ProtoMessage): boolean {
    return this.settled.has(message);
  }

  /** Whether an event can hold a value of it. */
  holds({ message }: ProtoField): boolean {
    return message === undefined || this.has(message);
  }

  /** Of a message that has one. */
  of(message: ProtoMessage): ProtoDatum {
    return (this.settled.get(message) as Least).datum;
  }

  valuesOf(message: ProtoMessage): number {
    return (this.settled.get(message) as Least).values;
  }

  /** The smallest event that also holds this. */
  with(message: ProtoMessage, field: ProtoField, value: ProtoFieldDatum): ProtoDatum {
    return new Map<number, ProtoFieldDatum>(this.of(message)).set(field.number, value);
  }

  /** The smallest single value: of a repeated field an item, of a map a value. */
  valueOf(field: ProtoField): ProtoValueDatum {
    return field.message === undefined ? (protoEdges(field)[0] as ProtoValueDatum) : this.of(field.message);
  }
}

const requiredOf = (message: ProtoMessage): ReadonlySet<ProtoMessage> =>
  new Set(
    message.fields.flatMap(({ required, message }) => (required && message !== undefined ? [message] : [])),
  );
