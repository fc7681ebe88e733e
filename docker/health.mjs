// Health check of the image: requests /health from the command that the container runs.
//
// The address is that of -metrics-listen, else of -listen, from the command line of process 1 or
// the environment (MILLRACE_METRICS_LISTEN, MILLRACE_LISTEN). Exit code 0: healthy, or no fixed
// port. Exit code 1: not healthy.
import { readFileSync } from 'node:fs';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { fileURLToPath } from 'node:url';

const TIMEOUT_MS = 4000;

/** Value of a flag in any of its forms: -name=value, --name=value, -name value. */
function flagOf(args, name) {
  for (const [at, arg] of args.entries()) {
    const match = /^--?([a-z-]+)(?:=(.*))?$/.exec(arg);
    if (match?.[1] === name) return match[2] ?? args[at + 1];
  }
  return undefined;
}

/** URL of /health for a command line and an environment; undefined without a fixed port. */
export function healthUrl(args, environment) {
  const of = (name) =>
    flagOf(args, name) ?? environment[`MILLRACE_${name.toUpperCase().replaceAll('-', '_')}`];
  const own = of('metrics-listen');
  const [, host, port] = /^(.*):(\d+)$/.exec(own ?? of('listen') ?? '') ?? [];
  if (port === undefined || port === '0') return undefined;
  const isTls = own === undefined && of('tls-cert') !== undefined;
  const everywhere = ['', '0.0.0.0', '[::]', '*'];
  return `${isTls ? 'https' : 'http'}://${everywhere.includes(host) ? '127.0.0.1' : host}:${port}/health`;
}

/** HTTP status of an address; undefined if there is no answer. The certificate is not verified: the
 *  server is in this container. */
function statusOf(url) {
  const request = url.startsWith('https:') ? requestHttps : requestHttp;
  return new Promise((resolve) => {
    const asked = request(url, { timeout: TIMEOUT_MS, rejectUnauthorized: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve(undefined));
    asked.end();
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = readFileSync('/proc/1/cmdline', 'utf8').split('\0');
  const url = healthUrl(args, process.env);
  const status = url === undefined ? undefined : await statusOf(url);
  process.stdout.write(url === undefined ? 'no fixed port\n' : `${url}: ${status ?? 'no answer'}\n`);
  process.exitCode = url === undefined || status === 200 ? 0 : 1;
}
