import { relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { LONGEST_FIRST, SECOND_PASS, SECOND_PASS_ONLY } from './test/passes.ts';

const secondPass = process.env['MILLRACE_NATIVE'] === 'off';

/** The named files in their order, then the tests with real servers, then the others. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId }: TestSpecification): number => {
      const path = relative(this.ctx.config.root, moduleId);
      const named = LONGEST_FIRST.indexOf(path);
      if (named >= 0) return named;
      return LONGEST_FIRST.length + (path.startsWith('test/e2e/') ? 0 : 1);
    };
    return (await super.sort(files)).sort((a, b) => rankOf(a) - rankOf(b));
  }
}

export default defineConfig({
  test: {
    include: secondPass ? [...SECOND_PASS] : ['test/**/*.test.ts'],
    exclude: secondPass ? [] : [...SECOND_PASS_ONLY],
    setupFiles: ['test/setup.ts'],
    globalSetup: ['test/e2e/global-setup.ts'],
    pool: 'forks',
    // Twice the processors of a small machine: most files wait for processes, servers and timers of their own.
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    // Generous, because nothing is proven by how fast a busy machine is.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
