/** Millrace's client and codecs behind the two operations of the foreign clients. */

import { chooseNative, loadKernels } from '../../src/addon/load.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { Metrics } from '../../src/core/metrics.ts';
import type { ResolvedReference } from '../../src/formats/content.ts';
import type { SchemaFormat } from '../../src/formats/format.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../src/formats/schema.ts';
import { systemRandom } from '../../src/io/clock/system.ts';
import { BatchDecoder } from '../../src/registry/consumer/decoder.ts';
import { RegistryClient } from '../../src/serde/client.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { fetchTransport } from '../../src/serde/transport.ts';
import { systemClock } from '../../src/shell/clock.ts';

interface Reference {
  readonly name: string;
  readonly subject: string;
  readonly version: number;
}

interface Described {
  readonly schemaType: string;
  readonly schema: string;
  readonly references: readonly Reference[];
}

interface Request {
  readonly schemaType: string;
  readonly topic: string;
  readonly schema: Described;
  readonly message?: string;
}

const ROWS = 4;
const ARENA_BYTES = 1 << 16;

/** Millrace's codecs use bigint for 64-bit integers, the tests use JSON numbers. The affected
 *  fields are named cents. */
const wide = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value), (name, inner) => (name === 'cents' ? BigInt(inner) : inner));
const narrow = (value: unknown, format: string): unknown =>
  JSON.parse(
    JSON.stringify(value, (_, inner) => {
      if (typeof inner !== 'bigint') return inner;
      return format === 'AVRO' ? Number(inner) : String(inner);
    }),
  );

export class OwnCodec {
  private readonly client: RegistryClient;
  private readonly kernels = loadKernels(chooseNative(process.env['MILLRACE_NATIVE']).mode);

  constructor(url: string) {
    this.client = new RegistryClient({
      transport: fetchTransport({ url, timeoutMs: 10_000, clock: systemClock }),
      clock: systemClock,
      random: systemRandom,
      metrics: new Metrics(),
      unknownForMs: 1000,
      retries: 0,
      retryDelayMs: 0,
    });
  }

  private async resolved(references: readonly Reference[]): Promise<ResolvedReference[]> {
    const all: ResolvedReference[] = [];
    for (const reference of references) {
      const { schema } = await this.client.version(reference.subject, String(reference.version));
      const { format, text, references: deeper } = schema;
      all.push({ ...reference, format, text, references: deeper });
    }
    return all;
  }

  private async parse({ schemaType, schema, references }: Described): Promise<Schema> {
    return parseSchema(schemaType as SchemaFormat, schema, { references: await this.resolved(references) });
  }

  async serialize(
    request: Request & { readonly value: unknown },
  ): Promise<{ bytes: string; headers: Record<string, string> }> {
    const { schemaType, schema, references } = request.schema;
    const format = schemaType as SchemaFormat;
    const id = await this.client.register(`${request.topic}-value`, format, schema, references);
    const codec = writerCodec(await this.client.schemaById(id), request.message);
    const payloads = new Payloads(1, 1024);
    codec.encode(wide(request.value), payloads);
    const batch = RecordBatch.create(ROWS, ARENA_BYTES);
    const { bytes, start, length } = payloads;
    this.kernels.writeFrames(bytes, start, length, 1, id, codec.messageIndexes, batch);
    return { bytes: Buffer.from(batch.value(0) as Uint8Array).toString('base64'), headers: {} };
  }

  async deserialize(request: Request & { readonly bytes: string }): Promise<unknown> {
    const batch = RecordBatch.create(ROWS, ARENA_BYTES);
    batch.append({ key: null, value: Buffer.from(request.bytes, 'base64') });
    const decoder = new BatchDecoder(this.client, this.kernels, await this.parse(request.schema), ROWS);
    await decoder.prepare(batch);
    const { decoded, failed } = decoder.decode(batch);
    const [failure] = failed;
    if (failure !== undefined) throw failure.error;
    return narrow(decoded[0]?.value, request.schemaType);
  }
}
