/** SCRAM against the example of its standard, and against a server that does not know the password.
 */
import { expect, test } from 'vitest';
import { scramClient } from '../../../../src/io/kafka/scram.ts';

// Source: RFC 7677, section 3.
const NONCE = 'rOprNGfwEbeRWgbNEkqO';
const SERVER_NONCE = `${NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0`;
const FIRST = `r=${SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096`;
const LAST = 'v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=';
const example = () => scramClient('sha256', 'user', 'pencil', NONCE);

test('SCRAM-SHA-256 gives the messages of the example in RFC 7677', () => {
  const client = example();
  expect(client.first.toString()).toBe(`n,,n=user,r=${NONCE}`);
  expect(client.final(Buffer.from(FIRST))?.toString()).toBe(
    `c=biws,r=${SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=`,
  );
  expect(client.isGenuine(Buffer.from(LAST))).toBe(true);
});

// The proof was computed by hashlib of Python from the definitions of RFC 5802; the native client
// has the same vector.
test('a password is hashed as its bytes are, and not normalized', () => {
  const client = scramClient('sha256', 'user', 'pass²ﬁ', NONCE);
  expect(client.final(Buffer.from(FIRST))?.toString()).toBe(
    `c=biws,r=${SERVER_NONCE},p=wbTFcNvQk/ns4O2LGS4owm0Ux8cazBeRHHxsPvIZdlA=`,
  );
  expect(client.isGenuine(Buffer.from('v=EovWjOoXuG2C81c4DmiCD+RW9h/4XyXizJuGu5UNGls='))).toBe(true);
});

test('a server that does not know the password is not believed', () => {
  const client = example();
  expect(client.isGenuine(Buffer.from(LAST))).toBe(false);
  client.final(Buffer.from(FIRST));
  expect(client.isGenuine(Buffer.from('v='))).toBe(false);
  expect(client.isGenuine(Buffer.from('e=invalid-proof'))).toBe(false);
  expect(client.isGenuine(Buffer.from(LAST.replace('6', '7')))).toBe(false);
});

test.each([
  'r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096',
  `r=${NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096`,
  `r=${SERVER_NONCE},i=4096`,
  `r=${SERVER_NONCE},s=AA==,i=0`,
  `r=${SERVER_NONCE},s=AA==,i=4095`,
  `r=${SERVER_NONCE},s=AA==,i=99999999999`,
  '',
])('the malformed first message "%s" of a server gets no answer', (message) => {
  expect(example().final(Buffer.from(message))).toBeUndefined();
});
