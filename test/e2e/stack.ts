/** The real Kafka and PostgreSQL of the test run; see global-setup.ts. */
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { inject } from 'vitest';

export interface SharedStack {
  readonly folder: string;
  readonly brokers: string;
  readonly postgres: string;
}

let known: Promise<SharedStack> | undefined;

async function knock(): Promise<SharedStack> {
  const document = JSON.parse(await text(connect({ host: '127.0.0.1', port: inject('stackDoor') })));
  if ('error' in document) throw new Error(`the shared stack did not start: ${document.error}`);
  return document as SharedStack;
}

/** Addresses of the stack that all tests of the run share; starts it if nobody asked before. Use names of your own for
 *  topics, groups and databases. */
export function sharedStack(): Promise<SharedStack> {
  known ??= knock();
  return known;
}
