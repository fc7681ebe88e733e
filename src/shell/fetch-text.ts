/** Options of a GET whose body is a text of limited length. */
export interface FetchTextOptions {
  readonly timeoutMs: number;
  readonly bytesMax: number;
  readonly accept?: string;
}

/** Reads the body of an address. @throws Error whose message is the reason in a few words */
export async function textOf(url: string, options: FetchTextOptions): Promise<string> {
  let response: Response;
  try {
    response = await fetch(url, {
      headers: { accept: options.accept ?? 'application/json' },
      redirect: 'error',
      signal: AbortSignal.timeout(options.timeoutMs),
    });
  } catch (thrown) {
    const { cause, message } = thrown as Error;
    const { code } = (cause ?? {}) as { readonly code?: string };
    throw new Error(code ?? (cause as Error | undefined)?.message ?? message, { cause: thrown });
  }
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new Error(`it answers ${response.status}`);
  }
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += (chunk as Uint8Array).length;
    if (bytes > options.bytesMax) throw new Error(`an answer over ${options.bytesMax} bytes`);
    chunks.push(chunk as Uint8Array);
  }
  return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
}
