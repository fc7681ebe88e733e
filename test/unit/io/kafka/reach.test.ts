/** Wait of a new client for a broker: what ends it, and what does not. */
import { expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import { reachBroker } from '../../../../src/io/kafka/reach.ts';

const HOURS_MS = 10 * 3_600_000;
const AT = '[thrd:sasl_ssl://k:9093/bootstrap]: sasl_ssl://k:9093/bootstrap';
const FAIL = `FAIL: ${AT}`;
const WRONG_PASSWORD = `${FAIL}: SASL authentication error: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512 (after 312ms in state AUTH_REQ)`;
const WRONG_MECHANISM = `${FAIL}: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: SCRAM-SHA-512`;
const UNTRUSTED = `${FAIL}: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be verified`;
const REFUSED = `FAIL: ${AT}: Connect to ipv4#10.0.0.1:9093 failed: Connection refused (after 0ms in state CONNECT)`;
const BROKEN_OFF = [
  `${FAIL}: SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure (after 90ms in state AUTH_REQ)`,
  `${FAIL}: SASL PLAIN mechanism handshake failed: Local: Timed out: broker's supported mechanisms: (n/a)`,
];

/** Waits with these answers, one after the other; the rest are those of a broker. Returns the error
 *  and the limit of each request. */
async function reach(
  answers: readonly string[],
  { brokers = 'k:9093', timeoutMs = HOURS_MS } = {},
): Promise<{ readonly error: ReturnType<typeof findMillraceError>; readonly limits: readonly number[] }> {
  const limits: number[] = [];
  try {
    await reachBroker({ brokers }, timeoutMs, async (limitMs) => answers[limits.push(limitMs) - 1]);
    return { error: undefined, limits };
  } catch (thrown) {
    return { error: findMillraceError(thrown), limits };
  }
}

it.each([
  ['a wrong password', WRONG_PASSWORD, 'broker_unauthenticated'],
  ['a mechanism that the listener lacks', WRONG_MECHANISM, 'broker_unauthenticated'],
  ['an untrusted certificate', UNTRUSTED, 'broker_untrusted'],
])('the wait ends with the first report of %s', async (_what, line, code) => {
  const { error, limits } = await reach([REFUSED, `${REFUSED}\n${line}\n${REFUSED}`]);
  expect(error?.code).toBe(code);
  expect(error?.row.exit).toBe(2);
  expect(error?.message).toContain(line);
  expect(limits).toHaveLength(2);
});

it.each([REFUSED, ...BROKEN_OFF, 'Local: Timed out'])('the wait continues after "%s"', async (line) => {
  const { error, limits } = await reach(Array.from({ length: 6 }, () => line));
  expect(error).toBeUndefined();
  expect(limits).toEqual([250, 500, 1000, 2000, 2000, 2000, 2000]);
});

it('a certificate of one broker among several does not end the wait, and wrong credentials do', async () => {
  const brokers = 'k:9093,l:9093';
  expect((await reach([UNTRUSTED], { brokers })).error).toBeUndefined();
  expect((await reach([WRONG_PASSWORD], { brokers })).error?.code).toBe('broker_unauthenticated');
  // At the end of the time it is the reason.
  expect((await reach([UNTRUSTED], { brokers, timeoutMs: 0 })).error?.code).toBe('broker_untrusted');
});

it.each([
  `${FAIL}: Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol configuration (connecting to a SSL listener?)`,
  `${FAIL}: Receive failed: Invalid response size 352518912 (0..100000000): increase receive.message.max.bytes`,
  `${FAIL}: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 30ms in state SSL_HANDSHAKE)`,
])('another security protocol is named as the likely cause of "%s"', async (line) => {
  const { error } = await reach([line], { timeoutMs: 0 });
  expect(error).toMatchObject({
    code: 'unreachable',
    next: expect.stringContaining('check security.protocol'),
  });
  // A broker that restarts breaks connections off, too.
  expect((await reach([line])).error).toBeUndefined();
});

it('the newest line of the log is the reason of an unreachable cluster', async () => {
  const { error } = await reach([`${BROKEN_OFF[0]}\n${REFUSED}`], { timeoutMs: 0 });
  expect(error).toMatchObject({ code: 'unreachable', message: `no broker answers at k:9093: ${REFUSED}` });
});
