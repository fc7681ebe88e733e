/** Compares a registry over a file that is compacted as often as possible with its state in
 *  memory. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Logger, silentLogger } from '../../src/core/log.ts';
import { Registry } from '../../src/registry/store/registry.ts';
import type { State } from '../../src/registry/store/state/model.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { runs } from '../tier.ts';
import { simulatedLog, turns } from '../unit/registry/store/file-kit.ts';
import { realClock } from '../wait.ts';

const avro = (name: string): string =>
  JSON.stringify({ type: 'record', name: 'R', fields: [{ name, type: 'string', default: '' }] });
const proto = (number: number): string => `syntax = "proto3"; message M { int32 f${number} = ${number}; }`;

const SUBJECTS = ['s', 't"{é', ':.c:s', ':.c:u'];

/** Everything that determines the registry's answers, including field numbers of deleted versions
 *  and used ids. */
function whole(registry: Registry): unknown {
  const { state } = registry as unknown as { readonly state: State };
  const scopes = [...SUBJECTS, ':.c:'];
  return {
    versions: registry.browse({ prefix: ':*:', deleted: true, latestOnly: false }),
    configs: [undefined, ...scopes].map((scope) => registry.config(scope, true)),
    modes: [undefined, ...scopes].map((scope) => registry.mode(scope, true)),
    ids: ['.', '.c'].map((context) => registry.maxId(context)),
    contexts: registry.contexts(),
    burned: SUBJECTS.map((subject) => state.burned(subject)),
    counts: registry.counts(),
  };
}

const subject = fc.constantFrom(...SUBJECTS);
const operation = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('avro' as const), subject, n: fc.nat(5) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('proto' as const), subject, n: fc.nat(5) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), subject, n: fc.nat(4) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('deleteSubject' as const), subject, n: fc.nat(1) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('clear' as const), subject, n: fc.nat(2) }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('churn' as const), subject, n: fc.nat(8) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

async function run(registry: Registry, { do: what, subject: of, n }: Operation): Promise<void> {
  switch (what) {
    case 'avro':
      await registry.register(of, { text: avro(`f${n}`) }, {});
      break;
    case 'proto':
      await registry.register(of, { format: 'PROTOBUF', text: proto(n + 1) }, {});
      break;
    case 'delete':
      await registry.deleteVersion(of, String(n + 1), false);
      await registry.deleteVersion(of, String(n + 1), true);
      break;
    case 'deleteSubject':
      await registry.deleteSubject(of, false);
      if (n === 1) await registry.deleteSubject(of, true);
      break;
    case 'clear': {
      // Switching a scope to import mode drops its deleted versions.
      const scope = [of, of.startsWith(':') ? ':.c:' : undefined, undefined][n];
      await registry.setMode(scope, 'IMPORT', false);
      await registry.setMode(scope, 'READWRITE', false);
      break;
    }
    case 'churn':
      for (let i = 0; i < n; i++)
        await registry.setConfig(of, { compatibility: i % 2 === 0 ? 'NONE' : 'FULL' });
      await registry.setConfig(of, { compatibility: 'NONE' });
  }
}

/** Opens a registry over the disk whose log is compacted as soon as more than half of it is
 *  garbage. */
async function eager(disk: SimDisk) {
  const told = { compactions: 0 };
  const log: Logger = {
    ...silentLogger,
    info: (_fields, text) => {
      if (text.startsWith('compacted')) told.compactions++;
    },
    warn: (fields) => expect(fields).toBe('no warning'),
  };
  return {
    told,
    registry: await Registry.open(simulatedLog(disk, 1, log), silentLogger, { clock: realClock }),
  };
}

describe('registry over a compacted file', () => {
  it('a registry over a compacted file has the same state after each restart as before it', async () => {
    let compactions = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { minLength: 10, maxLength: 40 }), async (operations) => {
        const disk = new SimDisk();
        const { told, registry } = await eager(disk);
        for (const one of operations) {
          await run(registry, one).catch((thrown: { code?: string }) => {
            if (thrown.code === undefined || thrown.code === 'store_failed') throw thrown;
          });
          await turns(4);
        }
        await turns(20);
        compactions += told.compactions;
        const before = whole(registry);
        await registry.close();
        for (let restart = 0; restart < 2; restart++) {
          const again = await eager(disk);
          await turns(20);
          expect(whole(again.registry)).toEqual(before);
          await again.registry.close();
        }
      }),
      { numRuns: runs(60) },
    );
    expect(compactions).toBeGreaterThan(runs(60));
  });

  it('compaction does not restore a version that a replaced tombstone had deleted', async () => {
    const disk = new SimDisk();
    const { told, registry } = await eager(disk);
    const churn: Operation = { do: 'churn', subject: 'other', n: 30 };
    await registry.setConfig('s', { compatibility: 'NONE' });
    await registry.register('s', { text: avro('a') }, {});
    await registry.register('s', { text: avro('b') }, {});
    await registry.deleteSubject('s', false);
    await registry.setMode('s', 'IMPORT', false);
    await registry.register('s', { text: avro('a'), version: 1, id: 1 }, {});
    await registry.deleteSubject('s', false);
    await run(registry, churn);
    await turns(20);
    expect(told.compactions).toBeGreaterThan(0);
    expect(registry.versions('s', 'also').map(({ version }) => version)).toEqual([1]);
    await registry.close();
    const again = await eager(disk);
    expect(again.registry.versions('s', 'also').map(({ version }) => version)).toEqual([1]);
    expect(again.registry.maxId('.')).toBe(2);
    await again.registry.close();
  });

  it('compaction keeps the highest id and the verdict policy even if only removed foreign records imply them', async () => {
    const disk = new SimDisk();
    const foreign = simulatedLog(disk);
    await foreign.open({ apply: () => {} });
    const key = Buffer.from('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}');
    const schema = { subject: 's', version: 1, id: 9, md5: 'abc', schema: '"int"', deleted: true };
    await foreign.append([{ key, value: Buffer.from(JSON.stringify(schema)) }]);
    await foreign.append([{ key, value: null }]);
    await foreign.close();
    const { told, registry } = await eager(disk);
    expect([registry.maxId('.'), registry.verdictPolicy('s')]).toEqual([9, 'STRICT']);
    await run(registry, { do: 'churn', subject: 's', n: 30 });
    await turns(20);
    expect(told.compactions).toBeGreaterThan(0);
    await registry.close();
    const again = await eager(disk);
    const { registry: after } = again;
    expect([after.maxId('.'), after.verdictPolicy('s')]).toEqual([9, 'STRICT']);
    await after.close();
  });
});
