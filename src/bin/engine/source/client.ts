/** `-broker-client` of `millrace engine`: the client that reads the records. */
import type { SettingTable } from '../../../core/settings.ts';

export const CLIENT_SETTINGS = {
  'broker-client': {
    type: 'string',
    choices: ['librdkafka', 'direct'],
    default: 'librdkafka',
    help: 'client that reads the records. direct: the addon fetches and reads record batches itself, with less CPU an event; it needs Kafka 2.7, and SASL PLAIN or SCRAM where the listener has SASL. Where it cannot read, a warning says why, and librdkafka reads',
  },
} as const satisfies SettingTable;
