/** Access settings of a service, and the gate built from them. All files are read before the
 *  service listens. */
import {
  BasicScheme,
  checkAlgorithms,
  fileKeys,
  Gate,
  type GateOptions,
  JWKS_BYTES_MAX,
  JwtScheme,
  type KeySet,
  type KeySource,
  PASSWORDS_BYTES_MAX,
  parseKeySet,
  parsePasswords,
  RemoteKeys,
  type RequestGate,
  RULES_BYTES_MAX,
  Rules,
  WatchedFile,
} from '../../access/index.ts';
import { isLoopback } from '../../core/connections.ts';
import { coreError } from '../../core/errors.ts';
import type { Counter } from '../../core/metrics.ts';
import type { SettingTable } from '../../core/settings.ts';
import type { CommandContext } from '../command.ts';
import { textOf } from '../fetch-text.ts';
import { addressOf } from './serve.ts';

export const ACCESS_SETTINGS = {
  'auth-rules': {
    type: 'string',
    help: 'file of rules, one per line: PRINCIPAL OPERATIONS SUBJECTS; an operation that no rule allows is denied. Absent: every client may do everything',
  },
  'auth-basic': {
    type: 'string',
    help: 'file of users and hashed passwords; millrace registry hash-password creates its lines',
  },
  'auth-jwks': {
    type: 'string',
    help: 'file or https address of the keys that verify bearer tokens',
  },
  'auth-jwt-issuer': { type: 'string', help: 'the issuer (iss) that every token must name' },
  'auth-jwt-audience': { type: 'string', help: 'the audience (aud) that every token must name' },
  'auth-jwt-algorithms': {
    type: 'list',
    default: 'RS256,PS256,ES256,EdDSA',
    help: 'accepted signature algorithms',
  },
  'auth-jwt-name': { type: 'string', default: 'sub', help: 'claim that names the principal of a token' },
  'auth-jwt-leeway': {
    type: 'duration',
    default: '30s',
    min: 0,
    max: 600_000,
    help: 'largest accepted difference between the clocks of the issuer and of this process',
  },
  'auth-mtls': {
    type: 'bool',
    default: 'false',
    help: "use the subject of a client's certificate as its principal",
  },
  'auth-failure-rate': {
    type: 'rate',
    default: '5',
    min: 0.01,
    help: 'attempts per second with wrong credentials from one address, after the first 50',
  },
  'client-rate': {
    type: 'rate',
    default: '0',
    min: 0,
    help: 'requests per second of one client (its principal, or its address); further requests are answered 429; 0: no limit',
  },
} as const satisfies SettingTable;

type Context = CommandContext<typeof ACCESS_SETTINGS>;

/** Interval between two checks of the files, in ms. */
const CHECK_EVERY_MS = 2000;
const JWKS_TIMEOUT_MS = 5000;

/** Gate options that differ between services. */
export interface GatedService extends Pick<GateOptions, 'logsAllowed'> {
  /** Creates the counters; called once, only if there is a gate. */
  readonly counters: () => {
    readonly decisions: Counter;
    /** Counter with the labels file (the flag) and outcome. */
    readonly reloads: Counter;
  };
}

/** Builds the gate; undefined: neither access rules nor a rate limit. @throws usage, bad_value,
 *  bad_file */
export function accessGate(context: Context, service: GatedService): RequestGate | undefined {
  const { settings, clock, log } = context;
  const schemes = ['auth-basic', 'auth-jwks'] as const;
  const given = [
    ...schemes.filter((name) => settings[name] !== undefined),
    ...(settings['auth-mtls'] ? ['auth-mtls'] : []),
  ];
  const rulesPath = settings['auth-rules'];
  if (rulesPath === undefined && given.length > 0) {
    throw coreError('usage', `-${given[0]} without -auth-rules would refuse every request`, {
      next: 'give -auth-rules=FILE, with rules such as: authenticated read *',
    });
  }
  if (settings['auth-mtls'] && settings['tls-client-ca'] === undefined) {
    throw coreError(
      'usage',
      '-auth-mtls needs -tls-client-ca: without it no client certificate is verified',
      {
        next: 'give -tls-cert, -tls-key and -tls-client-ca',
      },
    );
  }
  if (rulesPath === undefined && settings['client-rate'] === 0) return undefined;
  const files: Array<WatchedFile<unknown>> = [];
  const { decisions, reloads } = service.counters();
  const watch = <T>(
    flag: string,
    path: string,
    bytesMax: number,
    parse: (text: string, where: string) => T,
    onChange: () => void = () => {},
  ): WatchedFile<T> => {
    const file = new WatchedFile({ path, flag, bytesMax, parse, onChange, log, reloads });
    files.push(file as WatchedFile<unknown>);
    return file;
  };
  const rules =
    rulesPath === undefined ? undefined : watch('auth-rules', rulesPath, RULES_BYTES_MAX, Rules.parse);
  const basic = basicOf(context, watch);
  const jwt = jwtOf(context, watch);
  if (files.length > 0) watchFiles(context, files);
  if (rules !== undefined) {
    log.info(
      { rules: rules.current.size, schemes: given },
      'access rules are in force; an operation that no rule allows is denied',
    );
  }
  return new Gate({
    decisions,
    logsAllowed: service.logsAllowed,
    rules: rules === undefined ? undefined : () => rules.current,
    basic,
    jwt,
    mtls: settings['auth-mtls'],
    clientRate: settings['client-rate'],
    failureRate: settings['auth-failure-rate'],
    clock,
    log,
  });
}

type Watch = <T>(
  flag: string,
  path: string,
  bytesMax: number,
  parse: (text: string, where: string) => T,
  onChange?: () => void,
) => WatchedFile<T>;

function basicOf(context: Context, watch: Watch): BasicScheme | undefined {
  const path = context.settings['auth-basic'];
  if (path === undefined) return undefined;
  const users = watch('auth-basic', path, PASSWORDS_BYTES_MAX, parsePasswords, (): void => {
    scheme.forget();
  });
  const scheme: BasicScheme = new BasicScheme({ users: () => users.current, clock: context.clock });
  return scheme;
}

function jwtOf(context: Context, watch: Watch): JwtScheme | undefined {
  const { settings, clock, log } = context;
  const jwks = settings['auth-jwks'];
  const issuer = settings['auth-jwt-issuer'];
  const audience = settings['auth-jwt-audience'];
  if (jwks === undefined) {
    if (issuer === undefined && audience === undefined) return undefined;
    throw coreError('usage', '-auth-jwt-issuer and -auth-jwt-audience need -auth-jwks', {
      next: 'give -auth-jwks=FILE or an https address',
    });
  }
  if (issuer === undefined || audience === undefined) {
    throw coreError('usage', '-auth-jwks needs -auth-jwt-issuer and -auth-jwt-audience', {
      next: 'without them a token made for another service would be accepted here',
    });
  }
  checkAlgorithms(settings['auth-jwt-algorithms']);
  let remote: RemoteKeys | undefined;
  const onChange = (): void => scheme.forget();
  let keys: KeySource;
  if (/^https?:/i.test(jwks)) {
    remote = new RemoteKeys({ url: keysAddress(jwks), get: fetchKeys, clock, log, onChange });
    keys = remote;
  } else {
    const file = watch<KeySet>('auth-jwks', jwks, JWKS_BYTES_MAX, parseKeySet, onChange);
    keys = fileKeys(() => file.current);
  }
  const scheme = new JwtScheme({
    keys,
    issuer,
    audience,
    algorithms: settings['auth-jwt-algorithms'],
    leewayMs: settings['auth-jwt-leeway'],
    nameClaim: settings['auth-jwt-name'],
    clock,
  });
  // Reads the keys before the first token arrives, without delaying the start.
  void remote?.refresh();
  return scheme;
}

const fetchKeys = (url: string): Promise<string> =>
  textOf(url, { timeoutMs: JWKS_TIMEOUT_MS, bytesMax: JWKS_BYTES_MAX });

/** Checks the address of the keys. @throws bad_value */
function keysAddress(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol === 'http:' && !isLoopback(url.hostname))) {
    throw coreError('bad_value', `-auth-jwks=${text} is not an address to trust`, {
      next: 'give an https address or a file: keys over plain http can be replaced in transit',
    });
  }
  return text;
}

/** Warns about an address beyond this machine that is open to everyone, or on which credentials
 *  would be sent unencrypted.
 *  @param listens host:port of each port that the gate protects */
export function warnOfExposure(context: Context, listens: readonly string[]): void {
  const { settings, log } = context;
  const exposed = listens.filter((listen) => !isLoopback(addressOf(listen).host.toLowerCase()));
  if (exposed.length === 0) return;
  const tls = settings['tls-cert'] !== undefined;
  const certificates = settings['tls-client-ca'] !== undefined && settings['tls-client-auth'] === 'required';
  if (settings['auth-rules'] === undefined && !certificates) {
    log.warn(
      { listen: exposed },
      'every client that reaches this address may do everything; give -auth-rules, require client certificates with -tls-client-ca, or bind to 127.0.0.1',
    );
  }
  if ((settings['auth-basic'] !== undefined || settings['auth-jwks'] !== undefined) && !tls) {
    log.warn(
      { listen: exposed },
      'passwords and tokens arrive here without TLS; give -tls-cert and -tls-key, or put a TLS proxy before it',
    );
  }
}

/** Checks the files at an interval, and reads them immediately on SIGHUP. */
function watchFiles(context: Context, files: ReadonlyArray<WatchedFile<unknown>>): void {
  const timer = setInterval(() => {
    for (const file of files) file.check();
  }, CHECK_EVERY_MS);
  timer.unref();
  const reread = (): void => {
    for (const file of files) file.check(true);
  };
  process.on('SIGHUP', reread);
  context.onClose(() => {
    clearInterval(timer);
    process.off('SIGHUP', reread);
  });
}
