import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { encodeRecord } from '../../../../src/registry/store/state/records.ts';
import { realClock } from '../../../wait.ts';
import { TestLog } from './store-kit.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Number of bytes on the heap after a full collection. */
function heapBytes(): number {
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Log that creates its records while they are read, and keeps none. */
class GeneratedLog extends TestLog {
  private readonly make: () => Iterable<LogRecord>;
  constructor(make: () => Iterable<LogRecord>) {
    super();
    this.make = make;
  }
  override async open(sink: { apply(records: readonly LogRecord[]): void }) {
    let records = 0;
    for (const record of this.make()) {
      sink.apply([record]);
      records++;
    }
    return { records, tornBytes: 0 };
  }
}

const record = (subject: string, version: number, id: number, text: string): LogRecord =>
  encodeRecord({
    kind: 'schema',
    subject,
    version,
    value: { id, format: 'AVRO', text, references: [], deleted: false },
  });

async function cost(make: () => Iterable<LogRecord>): Promise<number> {
  const before = heapBytes();
  const registry = await Registry.open(new GeneratedLog(make), silentLogger, { clock: realClock });
  const after = heapBytes();
  expect(registry.counts().versions).toBeGreaterThan(0);
  return after - before;
}

describe('registry memory', () => {
  it('the memory per schema of 2 KB stays under 5,000 bytes, so 100,000 schemas stay under 600 MB', async () => {
    const schemas = 20_000;
    const bytes = await cost(function* () {
      for (let i = 0; i < schemas; i++) {
        const doc = `${i}`.padEnd(1930, 'documentation ');
        const text = `{"type":"record","name":"R${i}","doc":"${doc}","fields":[]}`;
        yield record(`subject-${i % 4000}`, Math.floor(i / 4000) + 1, i + 1, text);
      }
    });
    expect(bytes / schemas).toBeGreaterThan(1930);
    expect(bytes / schemas).toBeLessThan(5000);
  });

  it('a text is stored once, however many subjects use it', async () => {
    const text = JSON.stringify({ type: 'record', name: 'R', doc: 'x'.repeat(80_000), fields: [] });
    const bytes = await cost(function* () {
      for (let i = 0; i < 500; i++) yield record(`topic-${i}-value`, 1, 1, text);
      for (let i = 0; i < 500; i++) yield record(`:.c:topic-${i}-value`, 1, 1, text);
    });
    expect(bytes).toBeLessThan(4_000_000);
  });
});
