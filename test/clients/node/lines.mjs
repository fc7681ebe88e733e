/** Line protocol of the test drivers: one request per line on stdin, one answer per line on stdout,
 *  in order. */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Loads modules that tools/clients.mjs installed into `dir`. */
export const requireFrom = (dir) => createRequire(join(dir, 'node', 'package.json'));

/** Converts values to plain JSON: without classes and prototypes, 64-bit integers as texts. */
export const plain = (value) =>
  JSON.parse(JSON.stringify(value, (_, inner) => (typeof inner === 'bigint' ? String(inner) : inner)));

const errorOf = (thrown) => ({
  type: thrown.constructor.name,
  status: thrown.status ?? null,
  code: thrown.errorCode ?? null,
  message: thrown.message,
});

/** Serves until stdin ends.
 *  @param operations handlers by name */
export async function serve(operations) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { op, ...request } = JSON.parse(line);
    let answer;
    try {
      const operation = operations[op];
      if (operation === undefined) throw new Error(`this client has no ${op}`);
      answer = { value: (await operation(request)) ?? null };
    } catch (thrown) {
      answer = { error: errorOf(thrown) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
}
