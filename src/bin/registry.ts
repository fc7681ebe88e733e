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
import { KAFKA_STORE_SETTINGS, type KafkaStore, kafkaStore } from './registry/kafka.ts';
import { registryGate, SECURITY_SETTINGS } from './registry/security.ts';
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
    help: 'file:DIR keeps everything in a folder, each write on disk before its answer; kafka:HOST:PORT,… in a topic that several instances share; memory forgets at the end',
  },
  ...KAFKA_STORE_SETTINGS,
  ...SECURITY_SETTINGS,
} as const;

type Context = CommandContext<typeof SETTINGS>;

/** The Kafka store of a run that has one. */
const kafka = new WeakMap<Context, KafkaStore>();

async function logOf(context: Context): Promise<RegistryLog> {
  const { store } = context.settings;
  if (store === 'memory') return new MemoryLog();
  const brokers = /^kafka:(.+)$/s.exec(store)?.[1];
  if (brokers !== undefined) {
    const made = await kafkaStore(context, brokers);
    context.onClose(() => made.close());
    kafka.set(context, made);
    return made.log;
  }
  const dir = /^file:(.+)$/s.exec(store)?.[1];
  if (dir === undefined) {
    throw coreError('bad_value', `-store=${store} is not a store`, {
      next: 'give file:DIR, kafka:HOST:PORT or memory',
    });
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
  // Every key is in the path or the body, and each request stands for itself.
  httpNeeds: [],
  routes: (context) => {
    const gate = registryGate(context);
    return registryRoutes(() => registryOf(context), {
      ...(gate === undefined ? {} : { gate }),
      writeAtLeader: (request, here) => kafka.get(context)?.writeAtLeader(request, here) ?? here(),
      masterAvailable: () => kafka.get(context)?.masterAvailable() ?? true,
    });
  },
  http: () => ({ fallbacks: registryFallbacks, bodyBytesMax: REGISTRY_BODY_BYTES_MAX }),
  async run(context) {
    const registry = await Registry.open(await logOf(context), context.log);
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
