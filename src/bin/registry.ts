/** `millrace registry`: serves the schema registry over HTTP. */
import { setFlagsFromString } from 'node:v8';
import { EXIT } from '../core/errors.ts';
import { formatDuration } from '../core/quantity.ts';
import { registryFallbacks, WIRES, type Wire } from '../registry/api/answers.ts';
import { signForwarded } from '../registry/api/forward.ts';
import { SCHEMA_LIMITS } from '../registry/api/limits.ts';
import { REGISTRY_BODY_BYTES_MAX, REGISTRY_PAGE_MAX, registryRoutes } from '../registry/api/routes.ts';
import { warnOfStale } from '../registry/api/stale.ts';
import { registryError } from '../registry/errors.ts';
import { Registry } from '../registry/store/registry.ts';
import { CHECK_MS_MAX } from '../registry/worker/checks.ts';
import { CheckThread } from '../registry/worker/thread.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { packageVersion } from '../shell/package.ts';
import { ACCESS_SETTINGS, accessGate, warnOfExposure } from '../shell/servers/access.ts';
import type { Store } from './registry/opened-store.ts';
import { checkStore, STORE_SETTINGS, storesOf } from './registry/store.ts';

const SETTINGS = {
  listen: {
    type: 'listen',
    default: '127.0.0.1:8081',
    help: 'host:port of the registry and of /metrics /health /ready /version',
  },
  ...STORE_SETTINGS,
  wire: {
    type: 'string',
    choices: ['own', '7', '8'],
    default: 'own',
    help: 'dialect of bodies and error codes: 7, as existing registries up to 7.9, which also accept misfit Avro defaults and any namespace; 8, as from 8.1 (guid, ts, 40901, full answers to registrations); own, as 7 but with schemaType also for AVRO, and reads by id with ?subject= return its version there',
  },
  ...ACCESS_SETTINGS,
  'body-max': {
    type: 'size',
    default: `${REGISTRY_BODY_BYTES_MAX >> 20}MiB`,
    min: 1024,
    max: 64 << 20,
    help: 'bytes of a request body; a larger one is answered 413',
  },
  'schema-max': {
    type: 'size',
    default: `${SCHEMA_LIMITS.schemaMax >> 10}KiB`,
    min: 1,
    max: SCHEMA_LIMITS.schemaMax,
    help: 'bytes of a schema text with its references, metadata and rules; a larger one is answered 413',
  },
  'nesting-max': {
    type: 'int',
    default: String(SCHEMA_LIMITS.nestingMax),
    min: 1,
    max: SCHEMA_LIMITS.nestingMax,
    help: 'nesting depth of brackets in a schema text',
  },
  'references-max': {
    type: 'int',
    default: String(SCHEMA_LIMITS.referencesMax),
    min: 0,
    max: SCHEMA_LIMITS.referencesMax,
    help: 'nesting depth of the references of a schema',
  },
  'check-timeout': {
    type: 'duration',
    default: formatDuration(CHECK_MS_MAX),
    min: 100,
    max: 600_000,
    help: 'time of a request on the worker thread that parses and compares large schemas, for all versions together; a longer check is answered 422',
  },
  'page-max': {
    type: 'int',
    default: String(REGISTRY_PAGE_MAX),
    min: 1,
    help: 'subjects, versions or schemas of one answer; a longer list is refused and must be read with offset and limit',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

/** Store and registry of a run. The routes exist before they are open. */
interface Running {
  readonly registry: Registry;
  readonly store: Store;
}
const running = new WeakMap<Context, Running>();

function runningOf(context: Context): Running {
  const found = running.get(context);
  if (found === undefined) throw registryError('starting', 'the registry still reads its store');
  return found;
}

function measure(context: Context, { registry, store }: Running): void {
  const { metrics } = context;
  const gauges = [
    ['registry_subjects', 'Subjects with at least one version.', 'subjects'],
    ['registry_versions', 'Versions of all subjects, without soft-deleted versions.', 'versions'],
    ['registry_deleted_versions', 'Soft-deleted versions.', 'deletedVersions'],
    ['registry_schemas', 'Distinct schemas.', 'schemas'],
    ['registry_contexts', 'Contexts.', 'contexts'],
  ] as const;
  const known = gauges.map(([name, help, key]) => [metrics.gauge(name, help), key] as const);
  const leads = metrics.gauge(
    'registry_is_leader',
    '1 if this instance is the leader, which decides writes.',
  );
  const writable = metrics.gauge(
    'registry_is_writable',
    '1 if a write is accepted, here or by the leader; 0 after a failed write until a write succeeds.',
  );
  const unread = metrics.gauge('registry_unread_records', 'Records of the log that this instance ignored.');
  const failures = metrics.counter(
    'registry_store_failures_total',
    'Failed appends to the store; each fails all requests of its batch.',
  );
  let counted = 0;
  metrics.onCollect(() => {
    const counts = registry.counts();
    for (const [gauge, key] of known) gauge.set(counts[key]);
    const { leader } = store.log.role();
    const condition = registry.storeFaults();
    leads.set(leader ? 1 : 0);
    writable.set(store.masterAvailable() && !(leader && condition.failing) ? 1 : 0);
    unread.set(condition.unread);
    failures.add(condition.failures - counted);
    counted = condition.failures;
  });
}

const wireOf = (setting: string): Wire => WIRES.find((wire) => String(wire) === setting) ?? 'own';

export const command = defineCommand({
  name: 'registry',
  summary: 'Serve the schema registry over HTTP.',
  description:
    'Examples: millrace registry -store=file:./registry\n          millrace registry -store=kafka:127.0.0.1:9092 -listen=0.0.0.0:8081 -advertise=http://registry-1:8081\nOne process a folder; a second one on the same folder is refused. While writes fail /ready stays 200, because reads are answered; registry_is_writable is then 0. Any number of processes on one topic: one decides the writes, the others forward them and take over.\nThe interface is described at /openapi.json. Behind a proxy that speaks HTTP/1.0 to it, give -http=net.',
  settings: SETTINGS,
  // Keys are in the path or the body, and requests are independent of each other; but a token may
  // be long.
  httpNeeds: ({ settings }) => (settings['auth-jwks'] === undefined ? [] : ['long_heads']),
  routes: (context) => {
    const { settings } = context;
    checkStore(context);
    warnOfExposure(context, [settings.listen]);
    const gate = accessGate(context, {
      logsAllowed: true,
      counters: () => ({
        decisions: context.metrics.counter(
          'registry_auth_decisions_total',
          'Requests by authentication scheme and outcome.',
          ['scheme', 'outcome'],
        ),
        reloads: context.metrics.counter(
          'registry_auth_reloads_total',
          'Reloads of credential files after a change.',
          ['file', 'outcome'],
        ),
      }),
    });
    const routes = registryRoutes(() => runningOf(context).registry, {
      wire: wireOf(settings.wire),
      pageMax: settings['page-max'],
      bodyBytesMax: settings['body-max'],
      limits: {
        schemaMax: settings['schema-max'],
        nestingMax: settings['nesting-max'],
        referencesMax: settings['references-max'],
      },
      checkMs: settings['check-timeout'],
      version: packageVersion(),
      ...(gate === undefined ? {} : { gate }),
      writeAtLeader: (request, here) => runningOf(context).store.writeAtLeader(request, here),
      masterAvailable: () => running.get(context)?.store.masterAvailable() ?? false,
    });
    const warning = warnOfStale(
      routes,
      () => running.get(context)?.store.stale?.() ?? false,
      wireOf(settings.wire),
    );
    return signForwarded(warning, () => running.get(context)?.store.instance);
  },
  http: ({ settings }) => ({
    fallbacks: registryFallbacks(settings['body-max']),
    bodyBytesMax: settings['body-max'],
  }),
  async run(context) {
    // A large registry consists of small long-lived objects. With V8's default growth, garbage
    // could fill as much memory again.
    setFlagsFromString('--heap-growing-percent=20');
    const open = await storesOf(context, 'serves', context.settings['auth-rules'] !== undefined);
    const store = open();
    context.onClose(() => store.close());
    const checkRunner = new CheckThread(context.settings['check-timeout'], context.clock);
    const registry = await Registry.open(store.log, context.log, {
      clock: context.clock,
      checkRunner,
      validatesNewSchemas: context.settings.wire !== '7',
    });
    context.onClose(() => registry.close());
    const started = { registry, store };
    running.set(context, started);
    measure(context, started);
    context.setReady();
    await new Promise<void>((resolve) => {
      if (context.drain.aborted) resolve();
      context.drain.addEventListener('abort', () => resolve(), { once: true });
    });
    return EXIT.done;
  },
});
