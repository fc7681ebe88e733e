/** `millrace registry`: the schema registry over HTTP. */
import { coreError, EXIT } from '../core/errors.ts';
import {
  FileLog,
  MemoryLog,
  REGISTRY_BODY_BYTES_MAX,
  Registry,
  type RegistryLog,
  registryError,
  registryFallbacks,
  registryRoutes,
} from '../registry/index.ts';
import { type CommandContext, defineCommand } from './shell/command.ts';

const SETTINGS = {
  listen: {
    type: 'listen',
    default: '127.0.0.1:8081',
    help: 'host:port of the registry and of /metrics /health /ready /version',
  },
  store: {
    type: 'string',
    default: 'memory',
    help: 'file:DIR keeps everything in a folder, each write on disk before its answer; memory forgets at the end',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

function logOf(store: string): RegistryLog {
  if (store === 'memory') return new MemoryLog();
  const dir = /^file:(.+)$/s.exec(store)?.[1];
  if (dir === undefined) {
    throw coreError('bad_value', `-store=${store} is not a store`, { next: 'give file:DIR or memory' });
  }
  return new FileLog(dir);
}

/** The registry of a run: its routes stand before its store is read. */
const open = new WeakMap<Context, Registry>();

function registryOf(context: Context): Registry {
  const registry = open.get(context);
  if (registry === undefined) throw registryError('starting', 'the registry still reads its store');
  return registry;
}

export const command = defineCommand({
  name: 'registry',
  summary: 'Serve the schema registry over HTTP.',
  description:
    'Example: millrace registry -store=file:./registry\nOne process a folder; a second one on the same folder is refused.',
  settings: SETTINGS,
  routes: (context) => registryRoutes(() => registryOf(context)),
  http: () => ({ fallbacks: registryFallbacks, bodyBytesMax: REGISTRY_BODY_BYTES_MAX }),
  async run(context) {
    const registry = await Registry.open(logOf(context.settings.store), context.log);
    context.onClose(() => registry.close());
    open.set(context, registry);
    const subjects = context.metrics.gauge('registry_subjects', 'Subjects with at least one version.');
    const versions = context.metrics.gauge('registry_versions', 'Versions over all subjects.');
    const schemas = context.metrics.gauge('registry_schemas', 'Distinct schemas.');
    context.metrics.onCollect(() => {
      const counts = registry.counts();
      subjects.set(counts.subjects);
      versions.set(counts.versions);
      schemas.set(counts.schemas);
    });
    context.setReady();
    await new Promise<void>((resolve) => {
      if (context.drain.aborted) resolve();
      context.drain.addEventListener('abort', () => resolve(), { once: true });
    });
    return EXIT.done;
  },
});
