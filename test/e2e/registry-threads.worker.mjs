// Thread with a registry client of its own, which sends its requests through the main thread.
// workerData: { dist, port, ids, misses }. Answers with the names of the schemas, by id; an id
// without one has the code of its error.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';

const { dist, port, ids, misses } = workerData;
const { SchemaRegistry } = await import(pathToFileURL(join(dist, 'src', 'registry', 'index.js')));

const registry = new SchemaRegistry({ port, sharers: 4 });
const nameOf = async (id) => {
  try {
    return (await registry.client.schemaById(id)).tree.name;
  } catch (error) {
    return error.code;
  }
};
parentPort.once('message', async () => {
  const found = await Promise.all(Array.from({ length: misses }, (_, i) => nameOf(ids[i % ids.length])));
  parentPort.postMessage(Object.fromEntries(ids.map((id, i) => [id, found[i]])));
});
parentPort.postMessage('ready');
