/** Checks of the options and arguments of the client library. Programs in JavaScript have no
 *  compiler that checks them, and a mistake here would register a schema under a wrong subject. */
import { isUint8Array } from 'node:util/types';
import { shownOf } from '../../formats/shown.ts';
import { CODEC_CHOICES } from '../../serde/codec-choice.ts';
import { registryError } from '../errors.ts';

const refused = (name: string, value: unknown, next: string): Error =>
  registryError('bad_option', `${name} is ${shownOf(value)}`, { next: `give ${next}` });

/** @throws bad_option for anything but undefined and one of the texts */
function demandOneOf(name: string, value: unknown, choices: readonly string[]): void {
  if (value !== undefined && !choices.includes(value as string))
    throw refused(name, value, choices.join(' or '));
}

/** @throws bad_option */
export function demandText(name: string, value: unknown, next = 'a text that is not empty'): void {
  if (typeof value !== 'string' || value === '') throw refused(name, value, next);
}

/** @throws bad_option for anything but undefined and a number of at least `least` */
function demandNumber(name: string, value: unknown, least: number): void {
  if (value !== undefined && !(typeof value === 'number' && value >= least && value < Infinity))
    throw refused(name, value, `a number from ${least}`);
}

/** @throws bad_option */
export function demandObject(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null) throw refused(name, value, 'an object with its options');
}

/** Formats of records, and of columns, which JSON values have not. */
export const RECORD_FORMATS: readonly string[] = ['AVRO', 'PROTOBUF', 'JSON'];
export const COLUMN_FORMATS: readonly string[] = ['AVRO', 'PROTOBUF'];

/** @throws bad_option for anything but undefined and the name of a context */
export function demandContext(value: unknown): void {
  if (value !== undefined && !(typeof value === 'string' && /^\.[^:]*$/.test(value)))
    throw refused('context', value, 'the name of a context with its dot, such as .staging');
}

/** @throws bad_option */
function demandValidator(value: unknown): void {
  if (value !== undefined && typeof value !== 'function')
    throw refused('validator', value, 'a function that compiles a JSON Schema');
}

/** Checks the options of a serializer or column encoder. @throws bad_option */
export function checkWriterOptions(options: object, formats: readonly string[]): void {
  const { topic, subject, format, header, codec, validator } = options as Readonly<Record<string, unknown>>;
  demandText('topic', topic, 'the topic of the records');
  if (typeof subject !== 'function')
    demandOneOf('subject', subject, ['TopicName', 'RecordName', 'TopicRecordName', 'a function']);
  demandOneOf('format', format, formats);
  demandOneOf('header', header, ['prefix', 'headers']);
  demandOneOf('codec', codec, CODEC_CHOICES);
  demandValidator(validator);
}

/** Checks the options of a deserializer or column decoder. @throws bad_option */
export function checkReaderOptions(options: object, formats: readonly string[]): void {
  const { readerVersion, context, format, codec, validator } = options as Readonly<Record<string, unknown>>;
  demandContext(context);
  demandOneOf('format', format, formats);
  demandOneOf('codec', codec, CODEC_CHOICES);
  demandValidator(validator);
  if (readerVersion === undefined || readerVersion === 'writer') return;
  demandObject('readerVersion', readerVersion);
  const { subject, version } = readerVersion as Readonly<Record<string, unknown>>;
  demandText('readerVersion.subject', subject);
  if (version !== 'latest' && !Number.isInteger(version))
    throw refused('readerVersion.version', version, 'a number or latest');
}

/** Checks the settings of a connection. @throws bad_option */
export function checkConnection(options: object): void {
  const given = options as Readonly<Record<string, unknown>>;
  const { url, urls, auth } = given;
  if (url !== undefined) demandText('url', url);
  if (urls !== undefined && !Array.isArray(urls)) throw refused('urls', urls, 'a list of addresses');
  for (const one of (urls as readonly unknown[] | undefined) ?? []) demandText('an address of urls', one);
  demandNumber('timeoutMs', given['timeoutMs'], 1);
  demandNumber('retries', given['retries'], 0);
  demandNumber('retryDelayMs', given['retryDelayMs'], 0);
  if (auth === undefined) return;
  demandObject('auth', auth);
  const { user, password, token } = auth as Readonly<Record<string, unknown>>;
  if (typeof token === 'function') return;
  const isWhole = token === undefined ? isText(user) && isText(password) : isText(token) && token !== '';
  // The message shows no value: one of them is a secret.
  if (!isWhole)
    throw registryError('bad_option', 'auth has neither a user and a password nor a token', {
      next: 'give { user, password } or { token }, as texts',
    });
}

const isText = (value: unknown): boolean => typeof value === 'string';

/** Checks that a record is bytes: a value of another type would be read as a tombstone, or as a
 *  record that cannot be decoded. @throws bad_option */
export function demandBytes(record: unknown): asserts record is Uint8Array {
  if (!isUint8Array(record))
    throw refused('a record', record, 'its bytes, null, or in a batch { bytes, headers }');
}
