/** `millrace registry hash-password USER`: prints a line for the file of -auth-basic. The password
 *  is read only from stdin, because arguments are visible to every user of the machine. */

import { hashPassword, PASSWORD_BYTES_MAX, PASSWORD_USER } from '../../access/index.ts';
import { coreError, EXIT } from '../../core/errors.ts';
import { defineCommand } from '../../shell/command.ts';

/** @throws bad_value */
async function readPassword(input: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of input) {
    chunks.push(Buffer.from(chunk as Uint8Array));
    bytes += (chunk as Uint8Array).length;
    if (bytes > PASSWORD_BYTES_MAX + 2) break;
  }
  const line = Buffer.concat(chunks);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(line);
  } catch (cause) {
    throw coreError('bad_value', 'the password on stdin is not UTF-8 text', {
      next: 'send it as UTF-8',
      cause,
    });
  }
  const password = text.replace(/\r?\n$/u, '');
  const refuse = (why: string): Error =>
    coreError('bad_value', `the password on stdin ${why}`, {
      next: 'send one line, such as: printf \'%s\' "$PASSWORD" | millrace registry hash-password USER',
    });
  if (password === '') throw refuse('is empty');
  if (Buffer.byteLength(password) > PASSWORD_BYTES_MAX) throw refuse(`is over ${PASSWORD_BYTES_MAX} bytes`);
  if (/\p{Cc}/u.test(password)) throw refuse('has a control character in it, or more than one line');
  return password;
}

export const command = defineCommand({
  name: 'registry hash-password',
  summary: 'Print a line for the file of -auth-basic; the password is read from stdin.',
  description: 'Example: printf \'%s\' "$PASSWORD" | millrace registry hash-password alice >> users',
  settings: {},
  positionalMax: 1,
  positionalHelp: 'USER',
  listens: false,
  async run(context) {
    const user = context.positional[0];
    if (user === undefined || !PASSWORD_USER.test(user)) {
      throw coreError('usage', 'a user name is needed, without colons and control characters', {
        next: 'give millrace registry hash-password USER',
      });
    }
    if (process.stdin.isTTY) context.say('type the password (it is echoed), then Enter and Ctrl-D');
    const hash = await hashPassword(await readPassword(process.stdin));
    context.print(`${user}:${hash}`, { user, hash });
    return EXIT.done;
  },
});
