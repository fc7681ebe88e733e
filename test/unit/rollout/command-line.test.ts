/** Command lines of a user's fleet. */
import { describe, expect, test } from 'vitest';
import {
  fillWords,
  PLACEHOLDERS,
  type Placeholder,
  splitCommand,
  valueEnvironment,
} from '../../../src/bin/rollout/command-line.ts';

const VALUES = Object.fromEntries(PLACEHOLDERS.map((name) => [name, `<${name}>`])) as Record<
  Placeholder,
  string
>;

describe('a command line', () => {
  test.each<[string, readonly string[]]>([
    ['node  app.mjs\t-v', ['node', 'app.mjs', '-v']],
    [`node 'a b' "c d" e\\ f`, ['node', 'a b', 'c d', 'e f']],
    [`node "say \\"no\\" \\\\ \\n" 'it\\'`, ['node', 'say "no" \\ \\n', 'it\\']],
    [`node --name=x'y 'z`, ['node', '--name=xy z']],
    [`node ''`, ['node', '']],
    [
      'node $HOME *.js | cat > out; true && `id`',
      ['node', '$HOME', '*.js', '|', 'cat', '>', 'out;', 'true', '&&', '`id`'],
    ],
  ])('the command line %j is split into words without a shell', (line, words) => {
    expect(splitCommand('-old-command', line)).toEqual(words);
  });

  test.each([
    ['', /^-old-command is empty$/],
    ['   ', /^-old-command is empty$/],
    ['node "app', /has a quote " without its end/],
    ['node app\\', /ends with a backslash/],
    ['node {prot}', /has an unknown value \{prot\}/],
    ['no-such-program-here -v', /no-such-program-here is in no folder of PATH/],
    ['./package.json', /\.\/package\.json is not a program that this user may run/],
  ])('the command line %j is refused before anything is started', (line, why) => {
    expect(() => splitCommand('-old-command', line)).toThrow(why);
  });

  test('a mistyped value is answered with the nearest one', () => {
    expect(() => splitCommand('-old-command', 'node {prot}')).toThrow(
      expect.objectContaining({ code: 'bad_value', next: 'did you mean {port}?' }),
    );
  });
});

describe('values of an instance', () => {
  test('a value fills its place inside one word, whatever characters it has', () => {
    const values = { ...VALUES, topic: `a b"; rm -rf / '$(id)` };
    expect(fillWords(['node', '--topic={topic}', '{port}{group}'], values)).toEqual([
      'node',
      `--topic=a b"; rm -rf / '$(id)`,
      '<port><group>',
    ]);
  });

  test('braces around other texts are kept, and doubled braces are the text itself', () => {
    const json = '{"a":{"b":[1]},"port":"{port}"}';
    expect(fillWords([json, '{{port}}'], VALUES)).toEqual(['{"a":{"b":[1]},"port":"<port>"}', '{port}']);
  });

  test('the environment has each value, and the address that the commands of Millrace listen on', () => {
    const env = valueEnvironment({ ...VALUES, port: '8123' });
    expect(Object.keys(env)).toHaveLength(PLACEHOLDERS.length + 1);
    expect(env).toMatchObject({
      MILLRACE_SCHEMA_VERSION: '<schema_version>',
      MILLRACE_GROUP: '<group>',
      MILLRACE_LISTEN: '127.0.0.1:8123',
    });
  });
});
