/** `millrace doctor`: checks this machine, and the broker and database if there are any. */
import { join, resolve } from 'node:path';
import { EXIT } from '../core/errors.ts';
import { endedServers, runningStack } from '../devstack/stack.ts';
import type { StackAddresses } from '../devstack/state.ts';
import { askAll, type Check, fail, renderFindings, warn } from '../doctor/check.ts';
import { hostChecks } from '../doctor/host.ts';
import { brokerChecks, postgresChecks } from '../doctor/servers.ts';
import { readClientFile } from '../io/kafka/config/client.ts';
import { configured } from '../io/kafka/configured.ts';
import { BROKER_SETTINGS } from '../shell/broker-settings.ts';
import { defineCommand } from '../shell/command.ts';
import { brokerDriver, sqlDriver } from '../shell/drivers.ts';

const DEFAULT_FOLDER = join('.millrace', 'stack');

export const command = defineCommand({
  name: 'doctor',
  summary: 'Check this machine, and a broker and a database if there are any',
  description: `
One line a check: ok, warn or fail, its id, what was found, what to do. Exit code 1 when a check fails. Without
-brokers and -postgres it looks at the stack that \`millrace up\` started here, if one runs.

  millrace doctor
  millrace doctor -brokers=kafka.internal:9092 -postgres=postgres://app@db.internal/shop -json`,
  listens: false,
  settings: {
    ...BROKER_SETTINGS,
    postgres: { type: 'string', secret: true, help: 'URL of a PostgreSQL to check' },
    dir: { type: 'string', help: `folder of the stack to check (default ${DEFAULT_FOLDER})` },
  },
  async run(context) {
    const { settings } = context;
    let { brokers, postgres } = settings;
    let clients: StackAddresses['clients'];
    const checks: Check[] = [...hostChecks(settings.native)];
    if (brokers === undefined && postgres === undefined) {
      const folder = resolve(settings.dir ?? DEFAULT_FOLDER);
      try {
        ({ brokers, postgres, clients } = (await runningStack(folder)) ?? {});
        if (brokers === undefined) {
          const ended = endedServers(folder);
          const noStack =
            ended.length > 0
              ? fail(`${ended.join(' and ')} of ${folder} ended`, 'millrace up starts what ended again')
              : warn(`none runs in ${folder}`, 'millrace up starts one; or give -brokers and -postgres');
          checks.push({ id: 'stack', ask: () => noStack });
        }
      } catch (thrown) {
        checks.push({ id: 'stack', ask: () => Promise.reject(thrown) });
      }
    }
    if (brokers !== undefined) {
      const properties =
        clients === undefined ? settings['broker-property'] : readClientFile(clients.admin).properties;
      const isSecured = Object.keys(properties).length > 0;
      const driver = isSecured ? configured(await brokerDriver(context), properties) : undefined;
      checks.push(...brokerChecks(brokers, driver));
    }
    if (postgres !== undefined) checks.push(...postgresChecks(await sqlDriver(context), postgres));
    const findings = await askAll(checks);
    const failed = findings.filter((finding) => finding.verdict === 'fail').length;
    context.print(renderFindings(findings), { ok: failed === 0, checks: findings });
    return failed === 0 ? EXIT.done : EXIT.no;
  },
});
