/** Client properties of either client, checked and translated to those of librdkafka.
 *
 *  Invariant: no text of a problem quotes a value, because any value may be secret.
 */
import { nearest } from '../../../core/settings.ts';
import { translateJaas } from './jaas.ts';
import { ACCEPTED, IGNORED, REFUSED, RENAMED } from './names.ts';

/** Property with the place that names it in an error, such as `line 3: ` or nothing. */
export interface PlacedProperty {
  readonly name: string;
  readonly value: string;
  readonly place: string;
}

export interface Translated {
  /** bootstrap.servers, where the properties have it. */
  readonly brokers: string | undefined;
  /** By the names of librdkafka. */
  readonly properties: Readonly<Record<string, string>>;
  /** Names of properties that concern no connection to Kafka. */
  readonly ignored: readonly string[];
  readonly problems: readonly string[];
}

/** Java's stores in the formats that librdkafka reads. */
const TRUSTSTORE =
  'librdkafka reads PEM only: export the authorities with keytool -exportcert -rfc, then give ssl.ca.location';
const KEYSTORE =
  'librdkafka reads PEM and PKCS12 only: convert it with keytool -importkeystore -deststoretype PKCS12';

const OAUTH_HANDLER = /(^|\.)OAuthBearerLoginCallbackHandler$/;

class Translation {
  brokers: string | undefined;
  readonly properties = new Map<string, string>();
  readonly ignored: string[] = [];
  readonly problems: string[] = [];
  private readonly given: ReadonlyMap<string, string>;
  private readonly mayNameBrokers: boolean;

  constructor(given: readonly PlacedProperty[], mayNameBrokers: boolean) {
    this.given = new Map(given.map(({ name, value }) => [name, value]));
    this.mayNameBrokers = mayNameBrokers;
    for (const one of given) this.add(one);
  }

  private set(name: string, value: string): void {
    // The last of two names of one property counts.
    this.properties.delete(name);
    this.properties.set(name, value);
  }

  private add({ name, value, place }: PlacedProperty): void {
    const bad = (why: string): void => void this.problems.push(`${place}${name} ${why}`);
    if (!/^[\w.-]{1,100}$/.test(name)) this.problems.push(`${place}no name=value`);
    else if (this.mayNameBrokers && /^(bootstrap\.servers|metadata\.broker\.list)$/.test(name))
      this.brokers = value.replace(/\s+/g, '');
    else if (IGNORED.test(name)) this.ignored.push(name);
    else if (!this.addSecurity(name, value, bad)) this.addPlain(name, value, bad);
  }

  private addPlain(name: string, value: string, bad: (why: string) => void): void {
    const reason = REFUSED.get(name);
    const known = RENAMED.get(name) ?? name;
    if (reason !== undefined) bad(`is refused: ${reason}`);
    else if (ACCEPTED.has(known)) this.set(known, value);
    else {
      const near = nearest(name, [...ACCEPTED, ...RENAMED.keys()]);
      bad(`is no property of librdkafka${near === undefined ? '' : `: did you mean ${near}?`}`);
    }
  }

  /** Handles a property whose form differs between the clients. @returns false for any other */
  private addSecurity(name: string, value: string, bad: (why: string) => void): boolean {
    switch (name) {
      case 'security.protocol':
        if (/^(plaintext|ssl|sasl_plaintext|sasl_ssl)$/i.test(value)) this.set(name, value.toLowerCase());
        else bad('is not plaintext, ssl, sasl_plaintext or sasl_ssl');
        return true;
      case 'ssl.endpoint.identification.algorithm':
        this.set(name, value === '' ? 'none' : value.toLowerCase());
        return true;
      case 'sasl.jaas.config': {
        const login = translateJaas(value);
        if (typeof login === 'string') bad(login);
        else for (const [one, text] of Object.entries(login)) this.set(one, text);
        return true;
      }
      case 'sasl.login.callback.handler.class':
        if (OAUTH_HANDLER.test(value)) this.set('sasl.oauthbearer.method', 'oidc');
        else bad('names a class of Java');
        return true;
      default:
        return this.addStore(name, value, bad);
    }
  }

  private addStore(name: string, value: string, bad: (why: string) => void): boolean {
    const typeOf = (store: string): string => (this.given.get(`ssl.${store}.type`) ?? '').toUpperCase();
    switch (name) {
      case 'ssl.truststore.type':
      case 'ssl.keystore.type':
      case 'ssl.truststore.password':
        return true;
      case 'ssl.truststore.location':
        if (typeOf('truststore') === 'PEM') this.set('ssl.ca.location', value);
        else bad(`is a store of Java without ssl.truststore.type=PEM; ${TRUSTSTORE}`);
        return true;
      case 'ssl.keystore.location':
        // librdkafka has this name too, for a PKCS12 file.
        if (typeOf('keystore') === 'PEM') {
          this.set('ssl.certificate.location', value);
          this.set('ssl.key.location', value);
        } else if (typeOf('keystore') === 'JKS' || /\.jks$/i.test(value)) bad(`is a JKS store; ${KEYSTORE}`);
        else this.set(name, value);
        return true;
      default:
        return false;
    }
  }
}

/** Translates properties of librdkafka or the Java client, and checks their names.
 *  @param mayNameBrokers bootstrap.servers is accepted
 *  @example
 *  translate([{ name: 'sasl.mechanism', value: 'PLAIN', place: '' }], false);
 */
export function translate(given: readonly PlacedProperty[], mayNameBrokers: boolean): Translated {
  const { brokers, properties, ignored, problems } = new Translation(given, mayNameBrokers);
  return { brokers, properties: Object.fromEntries(properties), ignored, problems };
}
