import { relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { selection } from './test/tiers.ts';

const asked = process.env['MILLRACE_TEST_TIER'];
const tier = asked === 'fast' || asked === 'runtime' ? asked : 'full';
const pass = process.env['MILLRACE_NATIVE'] === 'off' ? 'reference' : 'native';

/** Starts the tests on real servers first: they wait most, and one that starts late runs alone at the end. */
class ServersFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId }: TestSpecification): number =>
      relative(this.ctx.config.root, moduleId).startsWith('test/e2e/') ? 0 : 1;
    return (await super.sort(files)).sort((a, b) => rankOf(a) - rankOf(b));
  }
}

export default defineConfig({
  test: {
    ...selection(tier, pass),
    setupFiles: ['test/setup.ts'],
    globalSetup: ['test/e2e/global-setup.ts'],
    pool: 'forks',
    // Twice the processors of a small machine: most files wait for processes, servers and timers of their own.
    maxWorkers: 4,
    sequence: { sequencer: ServersFirst },
    // Generous, because nothing is proven by how fast a busy machine is.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
