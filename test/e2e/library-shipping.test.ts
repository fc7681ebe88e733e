/** Runs the example service of docs/how-to/outbox.md on a real broker and database, with kills. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { endsWithItsConsumer, survivesKills } from './shipping-kit.ts';

const EXAMPLE = join(packageRoot(), 'examples', 'shipping', 'shipping.mjs');

describe('example service', () => {
  it('docs/how-to/outbox.md prints the example service exactly as it runs', () => {
    const docs = readFileSync(join(packageRoot(), 'docs', 'how-to', 'outbox.md'), 'utf8');
    expect(docs).toContain(`\`\`\`js\n${readFileSync(EXAMPLE, 'utf8')}\`\`\``);
  });

  it('the example service moves each parcel once and publishes each move once and in order through two SIGKILLs', () =>
    survivesKills(EXAMPLE, packageRoot()));

  it('the example service ends with an error when its consumer does, so that a supervisor restarts it', () =>
    endsWithItsConsumer(EXAMPLE, packageRoot()));
});
