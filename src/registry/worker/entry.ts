/** Thread that checks schemas. A message is a source, or the task that the sources before it belong
 *  to; the answer to a task is its reply. The requesting thread ends this one when a task takes too
 *  long.
 */
import { parentPort } from 'node:worker_threads';
import type { SchemaSource } from './judge.ts';
import { runTask, type Task } from './task.ts';

export type CheckMessage =
  | { readonly source: SchemaSource }
  | { readonly task: Task; readonly steps: number };

let sources: SchemaSource[] = [];

parentPort?.on('message', (message: CheckMessage) => {
  if ('source' in message) {
    sources.push(message.source);
    return;
  }
  const own = sources;
  sources = [];
  void runTask(message.task, own, message.steps).then((reply) => parentPort?.postMessage(reply));
});
