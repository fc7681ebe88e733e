/** The example of another service as it stands in docs/outbox.md, on a real broker and database, killed in the middle. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/bin/shell/package.ts';
import { survivesKills } from './shipping-kit.ts';

const EXAMPLE = join(packageRoot(), 'examples', 'shipping', 'shipping.mjs');

describe('the example service', () => {
  it('is printed in docs/outbox.md as it runs', () => {
    const docs = readFileSync(join(packageRoot(), 'docs', 'outbox.md'), 'utf8');
    expect(docs).toContain(`\`\`\`js\n${readFileSync(EXAMPLE, 'utf8')}\`\`\``);
  });

  it('moves each parcel once, publishes each move once and in order, though SIGKILL ends it twice', () =>
    survivesKills(EXAMPLE, packageRoot()));
});
