/** COPY … FROM STDIN over pg: a statement object that speaks the copy sub-protocol, with
 *  back-pressure from the socket. */
import type pg from 'pg';
import { toCopyCell } from './pg-values.ts';
import type { SqlValue } from './port.ts';

const CHUNK_BYTES = 64 * 1024;

/** The part of pg's connection that a copy uses. */
interface CopyConnection {
  readonly stream: {
    readonly writableNeedDrain: boolean;
    once(event: 'drain', listener: () => void): unknown;
  };
  query(text: string): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
}

/** Wraps an error of the caller's row iterator, so that it is not mapped as a server error. */
export class RowsFailure extends Error {
  readonly thrown: unknown;
  constructor(thrown: unknown) {
    super('the rows of a COPY could not be read');
    this.thrown = thrown;
  }
}

class CopyIn {
  private readonly text: string;
  private readonly rows: Iterator<readonly SqlValue[]>;
  private readonly settle: { resolve(rows: number): void; reject(error: unknown): void };
  private copied = 0;
  private settled = false;
  /** Set by pg for a statement with a timeout: cancels the timer. */
  callback: (() => void) | undefined;
  /** Error of the caller's row iterator; it has precedence over the server's answer to CopyFail. */
  private rowsFailure: RowsFailure | undefined;

  constructor(text: string, rows: Iterator<readonly SqlValue[]>, settle: CopyIn['settle']) {
    this.text = text;
    this.rows = rows;
    this.settle = settle;
  }

  submit(connection: CopyConnection): void {
    connection.query(this.text);
  }

  handleCopyInResponse(connection: CopyConnection): void {
    this.pump(connection);
  }

  private pump(connection: CopyConnection): void {
    while (!this.settled) {
      let chunk = '';
      let done = false;
      try {
        while (chunk.length < CHUNK_BYTES) {
          const next = this.rows.next();
          if (next.done === true) {
            done = true;
            break;
          }
          chunk += `${next.value.map(toCopyCell).join('\t')}\n`;
        }
      } catch (thrown) {
        this.rowsFailure = new RowsFailure(thrown);
        connection.sendCopyFail('the rows could not be read');
        return;
      }
      if (chunk !== '') connection.sendCopyFromChunk(Buffer.from(chunk, 'utf8'));
      if (done) {
        connection.endCopyFrom();
        return;
      }
      if (connection.stream.writableNeedDrain) {
        connection.stream.once('drain', () => this.pump(connection));
        return;
      }
    }
  }

  handleCommandComplete(message: { readonly text: string }): void {
    this.copied = Number(/^COPY (\d+)/.exec(message.text)?.[1] ?? 0);
  }

  handleReadyForQuery(): void {
    if (this.settled) return;
    this.settled = true;
    this.callback?.();
    this.settle.resolve(this.copied);
  }

  handleError(error: unknown): void {
    if (this.settled) return;
    this.settled = true;
    this.callback?.();
    this.rows.return?.();
    this.settle.reject(this.rowsFailure ?? error);
  }

  // A COPY gets none of these messages; pg requires the methods on every statement.
  handleRowDescription(): void {}
  handleDataRow(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
  handleCopyData(): void {}
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Copies rows into a table. @throws RowsFailure, or pg's error */
export function copyIn(
  client: pg.ClientBase,
  table: string,
  columns: readonly string[],
  rows: Iterable<readonly SqlValue[]>,
): Promise<number> {
  const target = table.split('.').map(quoted).join('.');
  const text = `COPY ${target} (${columns.map(quoted).join(', ')}) FROM STDIN`;
  return new Promise<number>((resolve, reject) => {
    client.query(new CopyIn(text, rows[Symbol.iterator](), { resolve, reject }) as unknown as pg.Submittable);
  });
}
