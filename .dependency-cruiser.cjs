// Imports only point down: bin -> products -> access -> (native, io ports, core). Drivers are chosen in bin alone.
const products = '(registry|outbox|engine)';
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
      name: 'native-imports-core',
      severity: 'error',
      comment: 'native is the door to the addon',
      from: { path: '^src/native' },
      to: { path: '^src', pathNot: '^src/(core|native)' },
    },
    {
      name: 'io-imports-down',
      severity: 'error',
      comment: 'a driver sees core, native and its own folder',
      from: { path: '^src/io/([^/]+)/' },
      to: { path: '^src', pathNot: '^src/(core|native|io/$1)/' },
    },
    {
      name: 'port-names-no-driver',
      severity: 'error',
      comment: 'a port never shows a driver type',
      from: { path: '^src/io/[^/]+/(client-)?port\\.ts$' },
      to: { pathNot: '^src/(core|io/[^/]+/port\\.ts)' },
    },
    {
      name: 'products-import-down',
      severity: 'error',
      comment: 'products import core, native, access and ports',
      from: { path: `^src/${products}/`, pathNot: `^src/${products}/system\\.ts$` },
      to: { path: '^src', pathNot: `^src/(core|native|access|$1)/|^src/io/[^/]+/(client-)?port\\.ts$` },
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
      to: { path: '^src', pathNot: '^src/(core|access)/|^src/io/[^/]+/(client-)?port\\.ts$' },
    },
    {
      name: 'gen-imports-down',
      severity: 'error',
      from: { path: '^src/gen/' },
      to: { path: '^src', pathNot: '^src/(core|native|gen)/|^src/io/[^/]+/(client-)?port\\.ts$' },
    },
    {
      name: 'devstack-imports-down',
      severity: 'error',
      comment: 'devstack imports core and ports: its folder is locked by the driver that bin chose',
      from: { path: '^src/devstack/' },
      to: { path: '^src', pathNot: '^src/(core|devstack)/|^src/io/[^/]+/(client-)?port\\.ts$' },
    },
    {
      name: 'sim-imports-ports',
      severity: 'error',
      from: { path: '^src/sim/' },
      to: { path: '^src', pathNot: '^src/(core|sim)/|^src/io/[^/]+/(client-)?port\\.ts$' },
    },
    {
      name: 'drivers-import-down',
      severity: 'error',
      comment: 'the door to the drivers shows no product',
      from: { path: '^src/drivers\\.ts$' },
      to: { path: '^src', pathNot: '^src/(core|native|io)/' },
    },
    {
      name: 'addon-by-one-door',
      severity: 'error',
      comment: 'only src/native loads the addon',
      from: { pathNot: '^(src/native|test|tools)' },
      to: { path: '\\.node$' },
    },
    {
      name: 'src-not-to-outside',
      severity: 'error',
      from: { path: '^src', pathNot: '^src/bin/' },
      to: { path: '^(test|bench|tools|docs)/' },
    },
    {
      name: 'nobody-imports-bin',
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
