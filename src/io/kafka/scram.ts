/** Client side of SCRAM (RFC 5802), as Kafka uses it: without channel binding. */
import { createHash, createHmac, pbkdf2Sync, randomBytes, timingSafeEqual } from 'node:crypto';

/** Rounds below which a server's demand is refused, because the password is then easily guessed
 *  (RFC 7677, section 4), and above which it is, because they cost this process its time. */
const ROUNDS_MIN = 4096;
const ROUNDS_MAX = 1_000_000;
const HEADER = 'n,,';

/** A conversation of two messages. */
export interface ScramClient {
  readonly first: Buffer;
  /** The answer to the server's first message; undefined when that message is malformed. */
  final(serverFirst: Buffer): Buffer | undefined;
  /** True when the server's last message proves that it knows the password. */
  isGenuine(serverFinal: Buffer): boolean;
}

const fieldsOf = (message: Buffer): ReadonlyMap<string, string> =>
  new Map(
    message
      .toString('utf8')
      .split(',')
      .map((field) => [field.slice(0, 1), field.slice(2)]),
  );

/** Begins a conversation.
 *  @param nonce for tests; random by default
 *  @example
 *  const scram = scramClient('sha512', 'app', password);
 */
export function scramClient(
  digest: 'sha256' | 'sha512',
  user: string,
  password: string,
  nonce = randomBytes(18).toString('base64'),
): ScramClient {
  const name = user.replaceAll('=', '=3D').replaceAll(',', '=2C');
  const bare = `n=${name},r=${nonce}`;
  const hmac = (key: Buffer, text: string): Buffer => createHmac(digest, key).update(text).digest();
  let signature: Buffer | undefined;
  return {
    first: Buffer.from(HEADER + bare),
    final(serverFirst) {
      const fields = fieldsOf(serverFirst);
      const joint = fields.get('r') ?? '';
      const rounds = Number(fields.get('i'));
      const salt = fields.get('s');
      const isValid = joint.startsWith(nonce) && joint.length > nonce.length && salt !== undefined;
      if (!isValid || !Number.isInteger(rounds) || rounds < ROUNDS_MIN || rounds > ROUNDS_MAX)
        return undefined;
      const bytes = digest === 'sha256' ? 32 : 64;
      // Brokers and clients of Kafka hash the bytes of the password as they are, without SASLprep.
      const salted = pbkdf2Sync(password, Buffer.from(salt, 'base64'), rounds, bytes, digest);
      const clientKey = hmac(salted, 'Client Key');
      const stored = createHash(digest).update(clientKey).digest();
      const bound = `c=${Buffer.from(HEADER).toString('base64')},r=${joint}`;
      const all = `${bare},${serverFirst.toString('utf8')},${bound}`;
      const proof = hmac(stored, all);
      for (let i = 0; i < proof.length; i++) proof[i] = (proof[i] as number) ^ (clientKey[i] as number);
      signature = hmac(hmac(salted, 'Server Key'), all);
      return Buffer.from(`${bound},p=${proof.toString('base64')}`);
    },
    isGenuine(serverFinal) {
      const given = Buffer.from(fieldsOf(serverFinal).get('v') ?? '', 'base64');
      return (
        signature !== undefined && given.length === signature.length && timingSafeEqual(given, signature)
      );
    },
  };
}
