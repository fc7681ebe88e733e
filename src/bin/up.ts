/** `millrace up`: starts Apache Kafka and PostgreSQL on this machine, without Docker. */
import { join, resolve } from 'node:path';
import { coreError } from '../core/errors.ts';
import { BROKER_SECURITIES } from '../devstack/kafka/security.ts';
import { POSTGRES_SECURITIES } from '../devstack/postgres/security.ts';
import { START_TIMEOUT_MS, startStack } from '../devstack/stack.ts';
import { defineCommand } from '../shell/command.ts';
import { lockDriver } from '../shell/drivers.ts';

const DEFAULT_FOLDER = join('.millrace', 'stack');

export const command = defineCommand({
  name: 'up',
  summary: 'Start Kafka and PostgreSQL on this machine and print their addresses',
  description: `
Returns when both are ready; they run until \`millrace down\`. A second \`up\` of the same folder prints the same
addresses, and restarts killed servers. Data is kept across down and up.

  millrace up
  millrace up -ephemeral -kafka-port=9092 -postgres-port=5432
  millrace up -dir=.millrace/cluster -broker-count=3
  millrace up -dir=.millrace/secured -broker-security=sasl_ssl -postgres-security=ssl`,
  listens: false,
  settings: {
    dir: {
      type: 'string',
      help: `folder of the stack; another folder is another stack (default ${DEFAULT_FOLDER})`,
    },
    ephemeral: {
      type: 'bool',
      default: 'false',
      help: 'stay in the foreground with a temporary folder that is removed at the end; the servers end with this process',
    },
    'broker-count': {
      type: 'string',
      choices: ['1', '3'],
      help: 'brokers of the cluster; three replicate every topic and tolerate the loss of one (default: as in the existing folder, 1 for a new folder)',
    },
    'broker-security': {
      type: 'string',
      choices: BROKER_SECURITIES,
      help: 'protocol of the broker for its clients; any but plaintext makes certificates, the users admin and client (SCRAM-SHA-512, also SCRAM-SHA-256 and PLAIN; with ssl by certificate) and a file with the client settings of each, and only admin has rights without an access control list (default: that of the folder, plaintext for a new one)',
    },
    'postgres-security': {
      type: 'string',
      choices: POSTGRES_SECURITIES,
      help: 'connections that PostgreSQL accepts; ssl makes certificates and accepts TLS alone, with SCRAM-SHA-256, and the printed address verifies the server (default: that of the folder, plaintext for a new one)',
    },
    'kafka-port': {
      type: 'int',
      min: 1,
      max: 65_535,
      help: 'port of the first broker, the others use the next ports (default: free ports)',
    },
    'postgres-port': { type: 'int', min: 1, max: 65_535, help: 'port of PostgreSQL (default: a free port)' },
    'kafka-heap': {
      type: 'size',
      min: 128 * 2 ** 20,
      help: 'heap of each broker (default 512MiB, 384MiB each of three)',
    },
    'start-timeout': {
      type: 'duration',
      default: `${START_TIMEOUT_MS}ms`,
      min: 1000,
      help: 'how long the servers may take to be ready',
    },
  },
  async run(context) {
    const { settings, log, drain } = context;
    if (settings.ephemeral && settings.dir !== undefined) {
      throw coreError('usage', '-ephemeral excludes -dir: its folder is temporary', {
        next: 'leave one out',
      });
    }
    const stack = await startStack({
      folder: settings.ephemeral ? undefined : resolve(settings.dir ?? DEFAULT_FOLDER),
      owned: settings.ephemeral,
      brokerCount: settings['broker-count'] === undefined ? undefined : Number(settings['broker-count']),
      brokerSecurity: BROKER_SECURITIES.find((one) => one === settings['broker-security']),
      postgresSecurity: POSTGRES_SECURITIES.find((one) => one === settings['postgres-security']),
      kafkaPort: settings['kafka-port'],
      postgresPort: settings['postgres-port'],
      kafkaHeapBytes: settings['kafka-heap'],
      locks: await lockDriver(context),
      environment: process.env,
      startTimeoutMs: settings['start-timeout'],
      onStep: (step) => log.info({}, step),
      signal: drain,
    });
    context.onClose(() => stack.close());
    const { brokers, postgres, clients } = stack;
    const configs = Object.entries(clients ?? {}).map(
      ([user, path]) => `${user.padEnd(9)} -broker-config=${path}`,
    );
    const seconds = (stack.readyMs / 1000).toFixed(1);
    const first = stack.alreadyRunning ? `already running in ${stack.folder}` : `ready in ${seconds} s`;
    const lines = [first, `brokers   ${brokers}`, `postgres  ${postgres}`, ...configs];
    context.print(lines.join('\n'), { brokers, postgres, ...(clients === undefined ? {} : { clients }) });
    log.info({ folder: stack.folder, readyMs: Math.round(stack.readyMs) }, first);
    if (!settings.ephemeral) return undefined;
    const failed = await stack.broken(drain);
    if (failed !== undefined) throw failed;
    return undefined;
  },
});
