/** Group leader on the wire level: it assigns every partition to the other member, and can stop in
 *  the middle of a rebalance, as a suspended process does.
 *
 *  Requests with header version 1 (Source: Kafka protocol guide):
 *    size i32 | key i16 | version i16 | correlation i32 | client id str
 *    FindCoordinator 10, 0   group str -> error i16, node i32, host str, port i32
 *    JoinGroup       11, 2   group str | session ms i32 | rebalance ms i32 | member str | type str
 *                            | protocols (name str, bytes)
 *                            -> throttle i32, error i16, generation i32, protocol str, leader str,
 *                            member str, members (id str, bytes)
 *    SyncGroup       14, 1   group str | generation i32 | member str
 *                            | assignments (member str, bytes)
 *                            -> throttle i32, error i16, bytes
 *  Consumer protocol: subscription version 1, assignment version 0.
 */
import { connect, type Socket } from 'node:net';
import { until } from '../wait.ts';
import type { SlowMember } from './broker-world.ts';

const FIND_COORDINATOR = [10, 0] as const;
const JOIN_GROUP = [11, 2] as const;
const SYNC_GROUP = [14, 1] as const;
/** Transient error codes: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
 *  The first group of a broker waits for its log. */
const NOT_YET = new Set([14, 15, 16]);
const REBALANCE_IN_PROGRESS = 27;
/** Session timeout. The member sends no heartbeats, and a slow machine must not evict it. */
const SESSION_MS = 120_000;

const i16 = (value: number): Buffer => {
  const out = Buffer.alloc(2);
  out.writeInt16BE(value);
  return out;
};
const i32 = (value: number): Buffer => {
  const out = Buffer.alloc(4);
  out.writeInt32BE(value);
  return out;
};
const str = (text: string): Buffer => Buffer.concat([i16(Buffer.byteLength(text)), Buffer.from(text)]);
const sized = (bytes: Buffer): Buffer => Buffer.concat([i32(bytes.length), bytes]);
const listOf = (items: readonly Buffer[]): Buffer => Buffer.concat([i32(items.length), ...items]);

/** Reads the fields of an answer one after the other. */
class Fields {
  private readonly body: Buffer;
  private at = 0;
  constructor(body: Buffer) {
    this.body = body;
  }
  i16(): number {
    this.at += 2;
    return this.body.readInt16BE(this.at - 2);
  }
  i32(): number {
    this.at += 4;
    return this.body.readInt32BE(this.at - 4);
  }
  str(): string {
    const length = this.i16();
    this.at += length;
    return this.body.toString('utf8', this.at - length, this.at);
  }
  skipBytes(): void {
    const length = this.i32();
    this.at += length;
  }
}

export class SilentLeader implements SlowMember {
  private readonly brokers: string;
  private readonly group: string;
  private readonly topic: string;
  private readonly partitions: number;
  private socket: Promise<Socket> | undefined;
  private received: Buffer = Buffer.alloc(0);
  private answer: ((body: Buffer) => void) | undefined;
  private memberId = '';
  private generation = -1;
  private others: readonly string[] = [];

  constructor(brokers: string, group: string, topic: string, partitions: number) {
    this.brokers = brokers;
    this.group = group;
    this.topic = topic;
    this.partitions = partitions;
  }

  /** Joins first, and so becomes the leader. */
  async enter(): Promise<void> {
    await this.join();
    await this.assign();
  }

  async gather(): Promise<void> {
    await until('another member of the group', async () => {
      await this.join();
      return (await this.assign()) && this.others.length > 0;
    });
  }

  /** Joins and sends no assignment: the rebalance waits for its leader. */
  async stall(): Promise<void> {
    await this.join();
    if (this.others.length === 0) throw new Error('the other member left the group');
  }

  async complete(): Promise<void> {
    while (!(await this.assign())) await this.join();
  }

  /** Sends the assignment.
   *  @returns false if another member joined meanwhile and the rebalance restarts */
  private async assign(): Promise<boolean> {
    const numbers = Array.from({ length: this.partitions }, (_, partition) => i32(partition));
    const everything = Buffer.concat([
      i16(0),
      listOf([Buffer.concat([str(this.topic), listOf(numbers)])]),
      i32(-1),
    ]);
    const assignments = this.others.map((member) => Buffer.concat([str(member), sized(everything)]));
    const fields = await this.ask(
      SYNC_GROUP,
      Buffer.concat([str(this.group), i32(this.generation), str(this.memberId), listOf(assignments)]),
    );
    fields.i32();
    const error = fields.i16();
    if (error !== 0 && error !== REBALANCE_IN_PROGRESS) throw new Error(`SyncGroup: error ${error}`);
    return error === 0;
  }

  async close(): Promise<void> {
    const open = this.socket;
    (await open)?.destroy();
  }

  /** Joins the group; the broker answers when every member has rejoined. */
  private async join(): Promise<void> {
    // Topics, no user data, no partitions of its own.
    const subscription = Buffer.concat([i16(1), listOf([str(this.topic)]), i32(-1), listOf([])]);
    const request = () =>
      Buffer.concat([
        str(this.group),
        i32(SESSION_MS),
        i32(SESSION_MS),
        str(this.memberId),
        str('consumer'),
        listOf([Buffer.concat([str('cooperative-sticky'), sized(subscription)])]),
      ]);
    const { error, fields } = await until('a coordinator of the group', async () => {
      await this.ask(FIND_COORDINATOR, str(this.group));
      const answered = await this.ask(JOIN_GROUP, request());
      answered.i32();
      const code = answered.i16();
      return NOT_YET.has(code) ? undefined : { error: code, fields: answered };
    });
    if (error !== 0) throw new Error(`JoinGroup: error ${error}`);
    this.generation = fields.i32();
    fields.str();
    const leader = fields.str();
    this.memberId = fields.str();
    if (leader !== this.memberId) throw new Error(`${leader} leads the group, not ${this.memberId}`);
    const members: string[] = [];
    for (let left = fields.i32(); left > 0; left--) {
      members.push(fields.str());
      fields.skipBytes();
    }
    this.others = members.filter((member) => member !== this.memberId);
  }

  private async ask([key, version]: readonly [number, number], body: Buffer): Promise<Fields> {
    this.socket ??= this.open();
    const socket = await this.socket;
    if (socket.destroyed) throw new Error('the broker closed the connection');
    const answered = new Promise<Buffer>((resolve, reject) => {
      this.answer = resolve;
      socket.once('close', () => reject(new Error('the broker closed the connection')));
    });
    socket.write(sized(Buffer.concat([i16(key), i16(version), i32(key), str('silent-leader'), body])));
    const fields = new Fields(await answered);
    fields.i32();
    return fields;
  }

  private open(): Promise<Socket> {
    const [, host, port] = /^(.+):(\d+)$/.exec(this.brokers.split(',')[0] as string) ?? [];
    return new Promise((resolve, reject) => {
      const socket = connect({ host: host as string, port: Number(port) });
      socket.setMaxListeners(0);
      socket.on('error', reject);
      socket.on('connect', () => resolve(socket));
      socket.on('data', (chunk) => {
        this.received = Buffer.concat([this.received, chunk]);
        while (this.received.length >= 4 && this.received.length >= 4 + this.received.readInt32BE(0)) {
          const end = 4 + this.received.readInt32BE(0);
          this.answer?.(this.received.subarray(4, end));
          this.received = this.received.subarray(end);
        }
      });
    });
  }
}
