/** `sasl.jaas.config` of the Java client, as properties of librdkafka. */

type Pairs = Record<string, string>;

const LOGIN = /^\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*$/is;
const OPTION = /\s*([\w.]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))/gy;

/** Options of librdkafka by the options of each login module. */
const MODULES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  PlainLoginModule: { username: 'sasl.username', password: 'sasl.password' },
  ScramLoginModule: { username: 'sasl.username', password: 'sasl.password' },
  OAuthBearerLoginModule: {
    clientId: 'sasl.oauthbearer.client.id',
    clientSecret: 'sasl.oauthbearer.client.secret',
    scope: 'sasl.oauthbearer.scope',
  },
  Krb5LoginModule: {
    keyTab: 'sasl.kerberos.keytab',
    principal: 'sasl.kerberos.principal',
    serviceName: 'sasl.kerberos.service.name',
  },
};

/** Options of Krb5LoginModule that librdkafka does by itself. */
const NEEDLESS = new Set(['useKeyTab', 'storeKey', 'useTicketCache', 'refreshKrb5Config', 'doNotPrompt']);

function optionsOf(text: string): Map<string, string> | undefined {
  const options = new Map<string, string>();
  let at = 0;
  while (text.slice(at).trim() !== '') {
    OPTION.lastIndex = at;
    const found = OPTION.exec(text);
    if (found === null) return undefined;
    const quoted = found[2] ?? found[3];
    options.set(found[1] as string, quoted?.replace(/\\(.)/gs, '$1') ?? (found[4] as string));
    at = OPTION.lastIndex;
  }
  return options;
}

/** Translates the login module and its options.
 *  @returns the properties, or a text with the reason why there are none; it quotes no value */
export function translateJaas(text: string): Pairs | string {
  const login = LOGIN.exec(text);
  const known = Object.keys(MODULES).join(', ');
  const options = login === null ? undefined : optionsOf(login[2] as string);
  if (login === null || options === undefined)
    return 'is not `module required name="value" …;` with one module';
  const module = (login[1] as string).split('.').pop() as string;
  const names = Object.hasOwn(MODULES, module) ? (MODULES[module] as Readonly<Pairs>) : undefined;
  if (names === undefined) return `has none of the login modules ${known}`;
  const pairs: Pairs = {};
  for (const [option, value] of options) {
    if (Object.hasOwn(names, option)) pairs[names[option] as string] = value;
    else if (module !== 'Krb5LoginModule' || !NEEDLESS.has(option))
      return `has the option ${option}, which librdkafka does not have`;
  }
  if (module === 'OAuthBearerLoginModule') pairs['sasl.oauthbearer.method'] = 'oidc';
  return pairs;
}
