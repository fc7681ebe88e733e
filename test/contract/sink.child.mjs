// Process that repeatedly writes the same windows to a sink until it is killed:
//   node sink.child.mjs JSON It reports on stdout, one line per write. It runs the compiled sinks
// directly, so that a signal hits their process.
import { readFileSync } from 'node:fs';
import { openBroker, openKv, openSql } from '../../dist/src/drivers.js';
import {
  FIRED_FAMILIES,
  FiredStore,
  KafkaSink,
  ParquetSink,
  PostgresSink,
  ReopeningStore,
  resultShape,
} from '../../dist/src/engine/index.js';
import { existingDisk } from '../../dist/src/io/disk/node.js';

const given = JSON.parse(process.argv[2]);
const report = (line) => process.stdout.write(`${line}\n`);

const SINKS = {
  async rocksdb({ folder, native }) {
    const driver = await openKv(native);
    const options = { budgetBytes: 16 * 1024 * 1024, families: FIRED_FAMILIES };
    const store = await ReopeningStore.open(() => driver.open(folder, options));
    const shape = { kind: 'windows', sizeMs: 1000, slideMs: 1000 };
    return FiredStore.open(store, { shape, role: 'sink', retainMs: 3_600_000 });
  },
  async parquet({ folder }) {
    const job = { topic: 'events', windows: { kind: 'windows', sizeMs: 1000, slideMs: 1000 } };
    const sink = new ParquetSink({ folder, open: () => existingDisk(folder), job });
    await sink.bind(undefined, resultShape({}));
    return sink;
  },
  async postgres({ url, table, key }) {
    const driver = await openSql();
    const pool = await driver.connect({
      url,
      connectionsMax: 1,
      applicationName: 'sink child',
      connectTimeoutMs: 60_000,
    });
    const shape = key === undefined ? resultShape({}) : resultShape({ input: { format: 'json', key } });
    return new PostgresSink(pool, table, { shape });
  },
  async kafka({ brokers, topic }) {
    const driver = await openBroker();
    const scratch = () => Promise.reject(new Error('this process does not read'));
    return new KafkaSink({ driver, brokers, topic, partitions: 3, replicationFactor: 1, scratch });
  },
};

const sink = await SINKS[given.kind](given);
const rows = new Uint8Array(readFileSync(given.file));
for (let turn = 0; ; turn++) {
  const window = turn % given.windows;
  const bounds = { kind: 'window', start: window * 1000, end: (window + 1) * 1000 };
  report(`writing ${turn}`);
  const pages = [{ bounds, rows, rowCount: given.rows[window % 2] }];
  for (let done = false; !done; ) {
    try {
      await sink.write(pages);
      await sink.finish?.([bounds]);
      done = true;
    } catch (error) {
      if (error.row?.kind !== 'unavailable') throw error;
      report(`failed ${turn} ${error.code}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  report(`wrote ${turn}`);
}
