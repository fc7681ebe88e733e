import { relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { selection } from './test/tiers.ts';

const asked = process.env['MILLRACE_TEST_TIER'];
const tier = asked === 'fast' || asked === 'runtime' ? asked : 'full';
const pass = process.env['MILLRACE_NATIVE'] === 'off' ? 'reference' : 'native';

const { shared, own } = selection(tier, pass);

/** Starts the tests on real servers first: they wait most, and one that starts late runs alone at
 *  the end. The files that share processes come last in one row, because a worker continues only
 *  with a file of its kind. */
class ServersFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId, project }: TestSpecification): number => {
      if (project.name === 'shared') return 2;
      return relative(this.ctx.config.root, moduleId).startsWith('test/e2e/') ? 0 : 1;
    };
    return (await super.sort(files)).sort((a, b) => rankOf(a) - rankOf(b));
  }
}

const common = {
  setupFiles: ['test/setup.ts'],
  pool: 'forks' as const,
  // Generous, because nothing is proven by how fast a busy machine is.
  testTimeout: 900_000,
  hookTimeout: 900_000,
  expect: { poll: { timeout: 60_000 } },
};

export default defineConfig({
  test: {
    projects: [
      // A test of the shared processes must leave no trace in a module or in the environment.
      { test: { ...common, name: 'shared', ...shared, isolate: false } },
      { test: { ...common, name: 'own', ...own } },
    ],
    // Not of a project: one stack serves them all.
    globalSetup: ['test/worker-ends.ts', 'test/e2e/global-setup.ts'],
    // Twice the processors of a small machine: most files wait for processes, servers and timers of
    // their own.
    maxWorkers: 4,
    sequence: { sequencer: ServersFirst },
  },
});
