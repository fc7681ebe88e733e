/** Object store in a bucket with the S3 API. Replacements are conditional PUTs: If-Match with the
 *  ETag, or If-None-Match for a new object. Requests are signed by aws4fetch. */
import { AwsClient } from 'aws4fetch';
import { coreError, type MillraceError } from '../../core/errors.ts';
import { type ObjectStore, objectError, type StoredObject } from './port.ts';

const REQUEST_TIMEOUT_MS = 10_000;
const LIST_MAX = 1000;
/** Attempts of a request whose repetition changes nothing. */
const ATTEMPTS = 3;

export interface S3Options {
  readonly bucket: string;
  /** Prefix of all names, with a slash at its end; empty: none. */
  readonly prefix: string;
  /** Variables of the AWS tools: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
   *  AWS_REGION, AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Parses `s3://bucket/prefix`. @throws bad_value */
export function s3Address(text: string): Pick<S3Options, 'bucket' | 'prefix'> {
  const [, bucket, prefix = ''] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/.exec(text) ?? [];
  if (bucket === undefined || !/^[\w./-]*$/.test(prefix) || prefix.includes('..'))
    throw coreError('bad_value', '-checkpoint-store is not an address of a bucket', {
      next: 'give s3://BUCKET/PREFIX: letters, digits, dots, underscores, dashes and slashes',
      details: { setting: 'checkpoint-store' },
    });
  const trimmed = prefix.replace(/^\/+|\/+$/g, '');
  return { bucket, prefix: trimmed === '' ? '' : `${trimmed}/` };
}

/** @throws usage without credentials */
export function s3Store({ bucket, prefix, env }: S3Options): ObjectStore {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = env;
  if (accessKeyId === undefined || secretAccessKey === undefined)
    throw coreError('usage', '-checkpoint-store=s3://… needs credentials', {
      next: 'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, AWS_REGION) in the environment',
    });
  const region = env['AWS_REGION'] ?? env['AWS_DEFAULT_REGION'] ?? 'us-east-1';
  const sessionToken = env['AWS_SESSION_TOKEN'];
  const client = new AwsClient({
    ...{ accessKeyId, secretAccessKey, region, service: 's3', retries: 0 },
    ...(sessionToken === undefined ? {} : { sessionToken }),
  });
  const endpoint = env['AWS_ENDPOINT_URL_S3'] ?? env['AWS_ENDPOINT_URL'];
  const base =
    endpoint === undefined
      ? `https://${bucket}.s3.${region}.amazonaws.com`
      : `${endpoint.replace(/\/+$/, '')}/${bucket}`;
  return new S3Store(client, base, prefix, `s3://${bucket}/${prefix}`);
}

type Body = NonNullable<RequestInit['body']>;

class S3Store implements ObjectStore {
  readonly where: string;
  private readonly client: AwsClient;
  private readonly base: string;
  private readonly prefix: string;

  constructor(client: AwsClient, base: string, prefix: string, where: string) {
    this.client = client;
    this.base = base;
    this.prefix = prefix;
    this.where = where;
  }

  async get(name: string): Promise<StoredObject | undefined> {
    const response = await this.send(this.urlOf(name), { method: 'GET' }, [404]);
    if (response.status === 404) {
      const failure = await failureOf(this.where, response);
      // An object that is missing, and not its bucket.
      if (failure.message.endsWith('NoSuchKey') || failure.message.endsWith(' 404')) return undefined;
      throw failure;
    }
    return { bytes: await this.bodyOf(response), tag: response.headers.get('etag') ?? '' };
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    const response = await this.send(this.urlOf(name), { method: 'PUT', body: bytes as Body }, []);
    await response.body?.cancel();
  }

  async replace(name: string, bytes: Uint8Array, tag: string | undefined): Promise<string | undefined> {
    const headers: Record<string, string> =
      tag === undefined ? { 'if-none-match': '*' } : { 'if-match': tag };
    const init = { method: 'PUT', body: bytes as Body, headers };
    // 404: the object with the tag was removed. 409: another replacement is in progress.
    const response = await this.send(this.urlOf(name), init, [404, 409, 412]);
    await response.body?.cancel();
    if (response.ok) return response.headers.get('etag') ?? '';
    // An earlier attempt may have written it, and its answer was lost.
    const now = await this.get(name);
    return now !== undefined && Buffer.compare(now.bytes, bytes) === 0 ? now.tag : undefined;
  }

  async list(start: string): Promise<readonly string[]> {
    const { prefix, base } = this;
    const names: string[] = [];
    for (let token: string | undefined; ; ) {
      const query = new URLSearchParams({
        'list-type': '2',
        prefix: prefix + start,
        'max-keys': String(LIST_MAX),
      });
      if (token !== undefined) query.set('continuation-token', token);
      const response = await this.send(`${base}?${query}`, { method: 'GET' }, []);
      const text = new TextDecoder().decode(await this.bodyOf(response));
      // Names have no character that XML escapes.
      for (const [, key] of text.matchAll(/<Key>([^<]*)<\/Key>/g))
        if (key?.startsWith(prefix)) names.push(key.slice(prefix.length));
      token = /<NextContinuationToken>([^<]*)<\/NextContinuationToken>/.exec(text)?.[1];
      if (token === undefined) return names;
    }
  }

  async remove(name: string): Promise<void> {
    const response = await this.send(this.urlOf(name), { method: 'DELETE' }, [404]);
    await response.body?.cancel();
  }

  private urlOf(name: string): string {
    return `${this.base}/${(this.prefix + name).split('/').map(encodeURIComponent).join('/')}`;
  }

  private async bodyOf(response: Response): Promise<Uint8Array> {
    try {
      return new Uint8Array(await response.arrayBuffer());
    } catch (cause) {
      throw objectError('store_unavailable', `${this.where} ended an answer early`, { cause });
    }
  }

  /** Sends a request, several times while the store is away. @param known statuses beside success
   *  that the caller handles */
  private async send(url: string, init: RequestInit, known: readonly number[]): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const outcome = await this.once(url, init);
      if (outcome instanceof Response && (outcome.ok || known.includes(outcome.status))) return outcome;
      const failure = outcome instanceof Response ? await failureOf(this.where, outcome) : outcome;
      if (failure.code !== 'store_unavailable' || attempt === ATTEMPTS) throw failure;
    }
  }

  private async once(url: string, init: RequestInit): Promise<Response | MillraceError> {
    try {
      return await this.client.fetch(url, { ...init, signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
    } catch (thrown) {
      const { cause, message } = thrown as Error;
      const reason = (cause as NodeJS.ErrnoException | undefined)?.code ?? message;
      return objectError('store_unavailable', `no answer from ${this.where}: ${reason}`, {
        next: 'check the network and the endpoint (AWS_ENDPOINT_URL)',
        cause: thrown,
      });
    }
  }
}

async function failureOf(where: string, response: Response): Promise<MillraceError> {
  const text = (await response.text().catch(() => '')).slice(0, 2000);
  const code = /<Code>([\w.]{1,100})<\/Code>/.exec(text)?.[1] ?? '';
  const answer = `${where} answers ${response.status}${code === '' ? '' : ` ${code}`}`;
  const isAway = response.status >= 500 || response.status === 429;
  if (isAway) return objectError('store_unavailable', answer, { next: 'check the store' });
  return objectError('store_refused', answer, {
    next: 'check the bucket, the credentials and their rights: GetObject, PutObject, DeleteObject and ListBucket',
  });
}
