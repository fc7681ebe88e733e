// Refuses to pack a package that would not run. A fresh clone has neither dist/ nor prebuilds/,
// which bin/bootstrap builds. MILLRACE_NATIVE=off packs a package without the addons.
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const prebuilds = join(root, 'prebuilds');

const hasAddon = (name) => existsSync(join(prebuilds, name, 'millrace.node'));
const missing = [
  ...(existsSync(join(root, 'dist', 'src', 'bin', 'main.js')) ? [] : ['dist/']),
  ...(process.env.MILLRACE_NATIVE === 'off' ||
  (existsSync(prebuilds) && readdirSync(prebuilds).some(hasAddon))
    ? []
    : ['prebuilds/']),
];
if (missing.length > 0) {
  process.stderr.write(
    `error: the package would lack ${missing.join(' and ')}, which no clone has; run bin/bootstrap first\n`,
  );
  process.exitCode = 1;
}
