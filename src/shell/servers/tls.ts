/** Loads the TLS configuration of `-listen` from files, and reloads it when they change. */
import { readFileSync, statSync } from 'node:fs';
import { coreError, findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import { tlsFault } from '../../io/http/node/tls.ts';
import type { HttpTls } from '../../io/http/port.ts';

const FILE_BYTES_MAX = 1024 * 1024;
/** Interval between two checks of the files for a change. */
const CHECK_EVERY_MS = 2000;
const FLAGS = { cert: 'tls-cert', key: 'tls-key', clientCa: 'tls-client-ca' } as const;

export interface TlsSettings {
  readonly 'tls-cert': string | undefined;
  readonly 'tls-key': string | undefined;
  readonly 'tls-client-ca': string | undefined;
  readonly 'tls-client-auth': string;
}

function readPem(flag: string, path: string): string {
  const bad = (why: string, cause?: unknown) =>
    coreError('bad_file', `-${flag}=${path} ${why}`, { next: 'give a file in PEM', cause });
  try {
    if (statSync(path).size <= FILE_BYTES_MAX) return readFileSync(path, 'utf8');
  } catch (cause) {
    throw bad(`cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown reason'})`, cause);
  }
  throw bad(`is larger than ${FILE_BYTES_MAX} bytes`);
}

/** Loads the TLS files; undefined: no TLS is configured.
 *  @throws usage for a certificate without its key or the reverse
 *  @throws bad_file for a file that cannot be read or does not match */
export function loadTls(settings: TlsSettings): HttpTls | undefined {
  const cert = settings['tls-cert'];
  const key = settings['tls-key'];
  const clientCa = settings['tls-client-ca'];
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  if (cert === undefined || key === undefined) {
    const missing = cert === undefined ? 'tls-cert' : 'tls-key';
    const given = cert !== undefined ? 'tls-cert' : key !== undefined ? 'tls-key' : 'tls-client-ca';
    throw coreError('usage', `-${given} needs -${missing}`, { next: 'give both -tls-cert and -tls-key' });
  }
  const tls: HttpTls = {
    cert: readPem('tls-cert', cert),
    key: readPem('tls-key', key),
    ...(clientCa === undefined ? {} : { clientCa: readPem('tls-client-ca', clientCa) }),
    clientCertificateRequired: settings['tls-client-auth'] !== 'optional',
  };
  const fault = tlsFault(tls);
  if (fault === undefined) return tls;
  const paths = { cert, key, clientCa };
  throw coreError('bad_file', `-${FLAGS[fault.part]}=${paths[fault.part]} ${fault.why}`, {
    next: 'give certificate and key in PEM, the key that belongs to the certificate',
  });
}

export interface TlsContext {
  readonly settings: TlsSettings;
  readonly log: Logger;
  readonly metrics: Metrics;
  onClose(close: () => void): void;
}

/** Fingerprint of the files' contents, from their metadata. */
function stampOf(settings: TlsSettings): string {
  const paths = [settings['tls-cert'], settings['tls-key'], settings['tls-client-ca']];
  return paths
    .map((path) => {
      if (path === undefined) return '';
      try {
        const { mtimeMs, size, ino } = statSync(path);
        return `${mtimeMs} ${size} ${ino}`;
      } catch (thrown) {
        return String((thrown as NodeJS.ErrnoException).code);
      }
    })
    .join('\n');
}

/** Reloads the `-tls-*` files when one of them changes. If the new files do not match, such as a
 *  new certificate whose key is not written yet, the old ones stay in force until the next change.
 */
class TlsFiles {
  private readonly context: Pick<TlsContext, 'settings' | 'log' | 'metrics'>;
  private readonly apply: (tls: HttpTls) => void;
  private seen: string;

  constructor(context: Pick<TlsContext, 'settings' | 'log' | 'metrics'>, apply: (tls: HttpTls) => void) {
    this.context = context;
    this.apply = apply;
    this.seen = stampOf(context.settings);
  }

  /** @param always reload even if no file changed */
  check(always = false): void {
    const { settings, log, metrics } = this.context;
    const reloads = metrics.counter(
      'tls_reloads_total',
      'Changes of the files of -tls-cert, -tls-key and -tls-client-ca, by outcome: done or failed.',
      ['outcome'],
    );
    try {
      // Taken before the files are read, so the next check sees a change in between.
      const stamp = stampOf(settings);
      if (stamp === this.seen && !always) return;
      this.seen = stamp;
      const tls = loadTls(settings);
      if (tls !== undefined) this.apply(tls);
      reloads.add(1, reloads.series('done'));
      log.info({ file: settings['tls-cert'] }, 'TLS certificate reloaded');
    } catch (thrown) {
      reloads.add(1, reloads.series('failed'));
      const error = findMillraceError(thrown)?.toLine() ?? String(thrown);
      log.error({ error }, 'TLS files not reloaded; the previous certificate stays in force');
    }
  }
}

/** Checks the files every CHECK_EVERY_MS, and on SIGHUP, until the command closes. Call it before
 *  the files are first read, so that no change is missed. */
export function watchTls(context: TlsContext, apply: (tls: HttpTls) => void): void {
  if (context.settings['tls-cert'] === undefined) return;
  const files = new TlsFiles(context, apply);
  const timer = setInterval(() => files.check(), CHECK_EVERY_MS);
  timer.unref();
  const reread = (): void => files.check(true);
  process.on('SIGHUP', reread);
  context.onClose(() => {
    clearInterval(timer);
    process.off('SIGHUP', reread);
  });
}
