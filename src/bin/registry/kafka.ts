/** The registry's store in Kafka: its settings, and the forwarding of writes to the leader. */
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { coreError } from '../../core/errors.ts';
import type { SettingTable } from '../../core/settings.ts';
import { ForwardTrust, forwardTransport, writeAtLeader } from '../../registry/api/forward.ts';
import { KafkaLog } from '../../registry/store/kafka/log.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import { systemRandom } from '../../shell/clock.ts';
import type { CommandContext } from '../../shell/command.ts';
import { brokerDriver } from '../../shell/drivers.ts';
import type { Store } from './opened-store.ts';

export const KAFKA_STORE_SETTINGS = {
  'schemas-topic': {
    type: 'string',
    default: '_schemas',
    help: 'topic of -store=kafka:…; created with one partition, compacted, if it does not exist',
  },
  advertise: {
    type: 'string',
    help: 'address to which other instances on the same topic forward writes; default: -listen, with https if it has a certificate',
  },
  'forward-ca': {
    type: 'string',
    help: 'PEM file of the authorities that sign the certificates of the other instances; default: those of the system',
  },
  'forward-to': {
    type: 'list',
    default: '',
    help: 'addresses of the other instances, http://host:port as they advertise them or http://host:* for any port: with -auth-rules, writes are forwarded only to these, and over https to instances whose certificate -forward-ca verifies',
  },
  'stale-reads': {
    type: 'string',
    choices: ['allow', 'refuse'],
    default: 'allow',
    help: 'while the brokers of -store=kafka:… do not answer: allow, answer reads from the local state with a Warning header; refuse, answer 50002',
  },
  ...BROKER_SETTINGS,
} as const satisfies SettingTable;

/** Longest topic name; leaves room for the name of the companion topic. */
const TOPIC_CHARS_MAX = 242;
const TOPIC = new RegExp(`^[a-zA-Z0-9._-]{1,${TOPIC_CHARS_MAX}}$`);

type Context = CommandContext<typeof KAFKA_STORE_SETTINGS>;

/** Address for the other instances. If the server listens on all interfaces, the host name is
 *  used. */
function urlOf({ settings, address }: Context): string | undefined {
  const given = settings.advertise;
  if (given !== undefined) {
    if (!URL.canParse(given) || !/^https?:$/.test(new URL(given).protocol)) {
      throw coreError('bad_value', `-advertise=${given} is not an http address`, {
        next: 'give http://host:port',
      });
    }
    return given.replace(/\/+$/, '');
  }
  if (address === undefined) return undefined;
  const everywhere = address.host === '0.0.0.0' || address.host === '::';
  const host = everywhere ? hostname() : address.host;
  const scheme = settings['tls-cert'] === undefined ? 'http' : 'https';
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${address.port}`;
}

/** @throws bad_file */
function authorities(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw coreError('bad_file', `-forward-ca=${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** @throws bad_value */
const trustOf = ({ settings }: Context): ForwardTrust =>
  new ForwardTrust(settings['forward-to'], settings['forward-ca'] !== undefined);

/** Validates the settings before anything is opened, whichever store is chosen.
 *  @throws bad_value, bad_file */
export function checkKafkaSettings(context: Context): void {
  const { settings } = context;
  urlOf(context);
  authorities(settings['forward-ca']);
  trustOf(context);
  const topic = settings['schemas-topic'];
  if (!TOPIC.test(topic) || /^\.\.?$/.test(topic)) {
    throw coreError('bad_value', `-schemas-topic=${topic} is not a name of a topic`, {
      next: `give 1 to ${TOPIC_CHARS_MAX} of the letters a-z A-Z 0-9 . _ -`,
    });
  }
}

/** Use of the store by a run: `serves` clients, only `reads`, or `transfers` data into it without
 *  serving. */
export type StoreUse = 'serves' | 'reads' | 'transfers';

/** Resolves to a function that opens a new store with each call.
 *  @param brokers part of -store after `kafka:`
 *  @param hasRules true if clients send credentials, which are forwarded with a write */
export async function kafkaStores(
  context: Context,
  brokers: string,
  use: StoreUse,
  hasRules: boolean,
): Promise<() => Store> {
  const { settings, log } = context;
  const driver = await brokerDriver(context);
  const { nodeHttpClientDriver } = await import('../../io/http/client.ts');
  const url = use === 'serves' ? urlOf(context) : undefined;
  const stale = context.metrics.counter(
    'registry_stale_reads_total',
    'Reads answered from the local state because the broker did not report the end of the log.',
  );
  const believed = authorities(settings['forward-ca']);
  return () => {
    const transport = forwardTransport(nodeHttpClientDriver, {
      authorities: believed,
      trust: hasRules ? trustOf(context) : undefined,
    });
    const store = new KafkaLog({
      driver,
      brokers,
      topic: settings['schemas-topic'],
      log,
      clock: context.clock,
      random: systemRandom,
      follow: use === 'reads',
      ...(settings['stale-reads'] === 'refuse' ? {} : { staleRead: () => stale.add() }),
      ...(url === undefined ? {} : { url }),
    });
    return {
      log: store,
      instance: store.instance,
      stale: () => store.stale,
      writeAtLeader: (request, here) => writeAtLeader(store, transport, request, context.clock, here),
      masterAvailable: () => {
        const role = store.role();
        return role.leader || role.url !== undefined;
      },
      close: () => transport.close(),
    };
  };
}
