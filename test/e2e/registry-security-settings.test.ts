/** Security settings that an operator may get wrong, and the command that prints lines of the
 *  password file. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parsePasswords, passwordMatches } from '../../src/access/password.ts';
import { launcher } from '../fixtures/process.ts';
import { runHashPassword, runRegistry } from '../fixtures/registry.ts';

const own = launcher();
const file = (name: string, text: string): string => {
  writeFileSync(join(own.dir, name), text);
  return join(own.dir, name);
};
const PASSWORD = 'a password: with colons, blanks and ü';
const rulesPath = file('rules', 'basic:alice read *');

describe('invalid security settings', () => {
  it.each([
    [['-auth-basic=x'], '-auth-basic without -auth-rules would refuse every request'],
    [['-auth-rules=/nowhere'], '/nowhere cannot be read (ENOENT)'],
    [
      [`-auth-rules=${file('bad-rules', '# first\nalice read *')}`],
      'bad-rules:2: "alice" is not a principal',
    ],
    [
      [`-auth-rules=${rulesPath}`, `-auth-basic=${file('bad-users', 'alice:hunter2')}`],
      'bad-users:1: the hash of alice',
    ],
    [
      [
        `-auth-rules=${rulesPath}`,
        '-auth-jwks=http://issuer.example/keys',
        '-auth-jwt-issuer=i',
        '-auth-jwt-audience=a',
      ],
      'is not an address to trust',
    ],
    [
      [`-auth-rules=${rulesPath}`, '-auth-jwks=keys'],
      '-auth-jwks needs -auth-jwt-issuer and -auth-jwt-audience',
    ],
    [
      [
        `-auth-rules=${rulesPath}`,
        '-auth-jwks=keys',
        '-auth-jwt-issuer=i',
        '-auth-jwt-audience=a',
        '-auth-jwt-algorithms=HS256',
      ],
      'cannot be allowed',
    ],
    [[`-auth-rules=${rulesPath}`, '-auth-mtls'], '-auth-mtls needs -tls-client-ca'],
  ])('the registry refuses %j with exit code 2 and one line', async (flags, message) => {
    const { code, stderr } = await runRegistry(own, ['-listen=127.0.0.1:0', '-log-level=error', ...flags]);
    expect(code).toBe(2);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stderr).toContain(message);
    expect(stderr).not.toContain('hunter2');
  });
});

describe('hash-password', () => {
  const run = async (args: readonly string[], input: string | Uint8Array) => {
    const { code, stdout, stderr } = await runHashPassword(own, args, input);
    return { status: code, stdout, stderr };
  };

  it('hash-password prints a line that admits its user, from a password on stdin', async () => {
    const { status, stdout } = await run(['carol'], `${PASSWORD}\n`);
    expect(status).toBe(0);
    const hashed = parsePasswords(stdout, 'stdout').get('carol');
    expect(await passwordMatches(PASSWORD, hashed as NonNullable<typeof hashed>)).toBe(true);
    expect(stdout).not.toContain(PASSWORD);
    const { hash } = JSON.parse((await run(['carol', '-json'], PASSWORD)).stdout) as {
      readonly hash: string;
    };
    expect(parsePasswords(`carol:${hash}`, 'json').size).toBe(1);
  });

  it.each([
    [['carol'], '', 'is empty'],
    [['carol'], 'one\ntwo', 'more than one line'],
    [['carol'], 'x'.repeat(2000), 'is over 1024 bytes'],
    [['carol'], new Uint8Array([0xff, 0xfe]), 'is not UTF-8'],
    [[], PASSWORD, 'a user name is needed'],
    [['a:b'], PASSWORD, 'a user name is needed'],
    [['carol', PASSWORD], PASSWORD, 'unexpected argument'],
  ] as const)('hash-password refuses %j with invalid input and exit code 2', async (args, input, message) => {
    const { status, stdout, stderr } = await run(args, input);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });
});
