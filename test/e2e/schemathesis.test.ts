/** schemathesis generates requests from the OpenAPI descriptions of the registry, of orders and of
 *  the engine, and checks every answer: no 5xx, and no undescribed status, header or body.
 *  Described requests are accepted, all others are refused. Undescribed methods get 405 with
 *  Allow. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { clientsFolder } from '../clients/kit.ts';
import { consumedAt, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { projectRoot } from '../repository/root.ts';
import { until } from '../wait.ts';
import { ordersKit } from './orders-kit.ts';

const RUN = 'import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())';
const CONFIG = join(projectRoot, 'test', 'clients', 'schemathesis.toml');

const own = launcher();
const python = join(await clientsFolder(), 'python', 'bin', 'python');

/** Operations under a context share rows and handlers with those above, so two of them suffice. */
const SAME_UNDER_CONTEXTS =
  '^/contexts/[{]context[}]/(?!subjects$|subjects/[{]subject[}]/versions/[{]version[}]$)';

/** Runs schemathesis, and returns its exit code and report. */
async function run(
  address: string,
  flags: readonly string[] = [],
): Promise<{ readonly code: number | null; readonly report: string }> {
  const args = ['-c', RUN, '--config-file', CONFIG, 'run', `http://${address}/openapi.json`, '--no-color'];
  const child = spawn(python, [...args, '--wait-for-schema', '60', ...flags], {
    cwd: own.dir,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const code = new Promise<number | null>((resolve) => child.once('close', resolve));
  const report = await text(child.stdout);
  return { code: await code, report };
}

describe('schemathesis', () => {
  it('schemathesis finds nothing in the answers of the registry', async () => {
    const registry = startRegistry(own, ['-http=net', '-log-level=warn']);
    const { code, report } = await run(await registry.address(), [
      `--exclude-path-regex=${SAME_UNDER_CONTEXTS}`,
    ]);
    expect(code, report).toBe(0);
    expect(report).toMatch(/\d+ generated/);
  });

  it('schemathesis finds nothing in the answers of the engine', async () => {
    const { brokers } = await sharedStack();
    const topic = `described-${own.suffix}`;
    const events = ['-count=5000', '-per-ms=1', '-accounts=50', '-partitions=1'];
    await generateEvents(own, { brokers, topic }, events);
    const engine = startEngine(own, [
      ...[`-brokers=${brokers}`, `-topic=${topic}`, `-state-dir=${join(own.dir, 'described')}`],
      ...['-size=100ms', '-allowed-skew=0', '-allowed-lateness=0', '-http=net'],
    ]);
    const address = await engine.address();
    await until('all events', async () => (await consumedAt(address)) === 5000);
    const { code, report } = await run(address);
    expect(code, report).toBe(0);
    expect(report).toMatch(/\d+ generated/);
    await engine.drain();
  });

  it('schemathesis finds nothing in the answers of orders', async () => {
    const kit = ordersKit(own, (await sharedStack()).postgres);
    const { schema } = await kit.schema();
    const { address } = await kit.serve(schema, ['-grpc-listen=off']);
    const { code, report } = await run(address);
    expect(code, report).toBe(0);
    expect(report).toMatch(/\d+ generated/);
  });
});
