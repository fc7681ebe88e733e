// Imports only point down: bin -> what stands above the products -> products -> serde -> (formats,
// access) -> (addon, io ports, core). Drivers are chosen in src/shell and src/bin.
const products = '(registry|outbox|engine)';
const ports = '^src/io/[a-z/]+/(client-)?port\\.ts$';
module.exports = {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-orphans',
      severity: 'error',
      from: { orphan: true, path: '^src', pathNot: ['^src/bin/main\\.ts$', '^src/.*/index\\.ts$'] },
      to: {},
    },
    {
      name: 'core-imports-core',
      severity: 'error',
      comment: 'core is deterministic and imports nothing but core',
      from: { path: '^src/core' },
      to: { pathNot: '^src/core' },
    },
    {
      name: 'addon-imports-core',
      severity: 'error',
      comment: 'src/addon is the door to the C++ addon',
      from: { path: '^src/addon' },
      to: { path: '^src', pathNot: '^src/(core|addon)' },
    },
    {
      name: 'io-imports-down',
      severity: 'error',
      comment: 'a driver sees core, the addon and its own folder',
      from: { path: '^src/io/([^/]+)/' },
      to: { path: '^src', pathNot: '^src/(core|addon|io/$1)/' },
    },
    {
      name: 'port-names-no-driver',
      severity: 'error',
      comment: 'a port never shows a driver type',
      from: { path: ports },
      to: { pathNot: `^src/core|${ports}` },
    },
    {
      name: 'products-import-down',
      severity: 'error',
      comment: 'products import core, the addon, access, formats, serde and ports',
      from: { path: `^src/${products}/`, pathNot: `^src/${products}/system\\.ts$` },
      to: { path: '^src', pathNot: `^src/(core|addon|access|formats|serde|$1)/|${ports}` },
    },
    {
      name: 'products-system-clock',
      severity: 'error',
      comment:
        'one file of a product may bind the real clock and randomness, as the default of a function that has no options',
      from: { path: `^src/${products}/system\\.ts$` },
      to: { path: '^src', pathNot: `^src/(core|$1)/|^src/io/clock/system\\.ts$` },
    },
    {
      name: 'access-imports-down',
      severity: 'error',
      comment: 'the gate stands below the products',
      from: { path: '^src/access/' },
      to: { path: '^src', pathNot: `^src/(core|access)/|${ports}` },
    },
    {
      name: 'formats-import-core',
      severity: 'error',
      comment: 'a schema language knows no product: all three use it',
      from: { path: '^src/formats/' },
      to: { path: '^src', pathNot: '^src/(core|formats)/' },
    },
    {
      name: 'serde-imports-down',
      severity: 'error',
      from: { path: '^src/serde/' },
      to: { path: '^src', pathNot: `^src/(core|addon|access|formats|serde)/|${ports}` },
    },
    {
      name: 'load-imports-down',
      severity: 'error',
      from: { path: '^src/load/' },
      to: { path: '^src', pathNot: `^src/(core|outbox|load)/|${ports}` },
    },
    {
      name: 'chaos-imports-down',
      severity: 'error',
      comment: 'the plan, the verdict and the report of a chaos run start nothing',
      from: { path: '^src/chaos/' },
      to: { path: '^src', pathNot: `^src/(core|outbox|chaos)/|${ports}` },
    },
    {
      name: 'shell-imports-down',
      severity: 'error',
      comment: 'the shell of a command chooses drivers and knows no command',
      from: { path: '^src/shell/' },
      to: { path: '^src/(bin|chaos|demo|doctor|slo|load|gen|sim)/' },
    },
    {
      name: 'gen-imports-down',
      severity: 'error',
      from: { path: '^src/gen/' },
      to: { path: '^src', pathNot: `^src/(core|addon|gen)/|${ports}` },
    },
    {
      name: 'devstack-imports-down',
      severity: 'error',
      comment:
        'devstack imports core, ports, and the reading of a PostgreSQL address: its folder is locked by the driver that bin chose',
      from: { path: '^src/devstack/' },
      to: { path: '^src', pathNot: `^src/(core|devstack)/|^src/io/postgres/tls\\.ts$|${ports}` },
    },
    {
      name: 'sim-imports-ports',
      severity: 'error',
      from: { path: '^src/sim/' },
      to: { path: '^src', pathNot: `^src/(core|sim)/|${ports}` },
    },
    {
      name: 'drivers-import-down',
      severity: 'error',
      comment: 'the door to the drivers shows no product',
      from: { path: '^src/drivers\\.ts$' },
      to: { path: '^src', pathNot: '^src/(core|addon|io)/' },
    },
    {
      name: 'addon-by-one-door',
      severity: 'error',
      comment: 'only src/addon loads the addon',
      from: { pathNot: '^(src/addon|test|tools)' },
      to: { path: '\\.node$' },
    },
    {
      name: 'src-not-to-outside',
      severity: 'error',
      from: { path: '^src', pathNot: '^src/(bin|demo)/' },
      to: { path: '^(test|bench|tools|docs)/' },
    },
    {
      name: 'only-bin-imports-bin',
      severity: 'error',
      from: { path: '^src', pathNot: '^src/bin/' },
      to: { path: '^src/bin/' },
    },
    {
      name: 'no-undeclared',
      severity: 'error',
      from: { path: '^(src|bench)', pathNot: '^bench/peers/' },
      to: { dependencyTypes: ['npm-no-pkg', 'npm-unknown', 'unknown', 'undetermined'] },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsConfig: { fileName: 'tsconfig.check.json' },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      extensions: ['.ts', '.js', '.mjs', '.cjs'],
      conditionNames: ['import', 'require', 'node', 'default', 'types'],
    },
  },
};
