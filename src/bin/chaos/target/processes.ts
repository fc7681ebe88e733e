/** Processes of a target: command lines in process groups, behind the proxies of their links. */
import { connect } from 'node:net';
import { resolve } from 'node:path';
import type { ChaosTarget, TargetProcess } from '../../../chaos/target/document.ts';
import { fillLast } from '../../../chaos/target/template.ts';
import { sleep, type Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import type { FaultShim } from '../../../devstack/fault-shim.ts';
import { freePort, LOOPBACK } from '../../../devstack/ports.ts';
import type { StartedCommand } from '../../../shell/children/started-command.ts';
import type { GroupProcess, ProcessGroups } from '../../user-processes/groups.ts';
import { requireProgram, splitWords } from '../../user-processes/words.ts';
import type { Proxies } from '../links.ts';
import type { Servers } from '../servers.ts';
import { ManagedService, type ManagedServiceOptions } from '../service.ts';

const READY_POLL_MS = 50;
const READY_ANSWER_MS_MAX = 2000;
/** Time limit of the commands of `setup` together, in ms. */
const SETUP_MS_MAX = 600_000;

export interface TargetParts {
  readonly target: ChaosTarget;
  /** Folder of the file. */
  readonly folder: string;
  readonly groups: ProcessGroups;
  readonly servers: Servers;
  readonly proxies: Proxies;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Steps the clocks of the processes; undefined: no fault does. */
  readonly shim: FaultShim | undefined;
  readonly clock: Timers;
  readonly onUnplannedEnd: ManagedServiceOptions['onUnplannedEnd'];
}

const wordsOf = (where: string, command: readonly string[] | string): readonly string[] =>
  typeof command === 'string' ? splitWords(where, command) : command;

/** Checks the programs before anything is started. @throws bad_value */
export function requirePrograms({ processes, setup }: ChaosTarget, folder: string): void {
  for (const { name, command, cwd } of processes) {
    const where = `processes.${name}.command`;
    requireProgram(where, wordsOf(where, command)[0] ?? '', resolve(folder, cwd ?? '.'));
  }
  for (const [index, line] of setup.entries()) {
    const where = `setup[${index}]`;
    requireProgram(where, splitWords(where, line)[0] ?? '', folder);
  }
}

/** Runs the commands of `setup`, beside the proxies. @throws unreachable */
export async function runSetup(parts: TargetParts, signal: AbortSignal): Promise<void> {
  const { target, folder, groups, servers, env, clock } = parts;
  const values = { postgres: servers.postgres, brokers: servers.brokers ?? '' };
  const endMs = clock.monotonicMs() + SETUP_MS_MAX;
  for (const [index, line] of target.setup.entries()) {
    const words = splitWords(`setup[${index}]`, line).map((word) => fillLast(word, values));
    const child = groups.start(`setup-${index}`, words, { ...env }, folder);
    while (child.ending() === undefined && !signal.aborted && clock.monotonicMs() < endMs)
      await sleep(clock, READY_POLL_MS, signal);
    const ending = child.ending() ?? 'did not end';
    await child.gone();
    if (signal.aborted) return;
    if (child.exit().code === 0) continue;
    throw coreError('unreachable', `setup[${index}] ${ending}: ${child.tail()}`, {
      next: `see ${child.logPath}`,
    });
  }
}

/** Opens the links, and prepares the services; starts none. */
export async function targetServices(
  parts: TargetParts,
): Promise<{ readonly services: Readonly<Record<string, ManagedService>>; readonly loadUrl: string }> {
  const { target, proxies } = parts;
  const ports = new Map<string, number>();
  for (const { name } of target.processes) ports.set(name, await freePort(new Set(ports.values())));
  /** Address of a process for one of its clients. */
  const linked = async (client: string, name: string): Promise<string> => {
    const [proxy] = await proxies.open(`${client}-${name}`, 1);
    proxy?.setTarget({ host: LOOPBACK, port: ports.get(name) as number });
    return `${LOOPBACK}:${proxy?.port}`;
  };
  const services: Record<string, ManagedService> = {};
  for (const one of target.processes) {
    const peers: Record<string, string> = {};
    for (const peer of one.peers) peers[peer] = await linked(one.name, peer);
    services[one.name] = serviceOf(parts, one, { ...peers, port: String(ports.get(one.name)) });
  }
  const { url, process } = target.load;
  const loadUrl = process === undefined ? url : url.replace(`{${process}}`, await linked('load', process));
  return { services, loadUrl };
}

function serviceOf(
  parts: TargetParts,
  one: TargetProcess,
  addresses: Readonly<Record<string, string>>,
): ManagedService {
  const { folder, groups, servers, env, shim, clock, onUnplannedEnd } = parts;
  const { name } = one;
  const values = {
    ...addresses,
    postgres: servers.postgresOf(name),
    brokers: servers.brokersOf(name),
  };
  const words = wordsOf(`processes.${name}.command`, one.command).map((word) => fillLast(word, values));
  const variables = Object.entries(one.env).map(([key, text]) => [key, fillLast(text, values)] as const);
  const cwd = resolve(folder, one.cwd ?? '.');
  const address = fillLast(one.ready, values);
  return new ManagedService({
    name,
    args: [],
    env: Object.fromEntries(variables),
    processes: {
      spawn: (_, __, more) => startedGroup(groups.start(name, words, { ...env, ...more }, cwd)),
    },
    readiness: (child) => untilReady(child, address, clock),
    shim: shim?.control(name),
    clock,
    onUnplannedEnd,
  });
}

/** A process group as a started command, which has ended when the whole group has. */
function startedGroup(group: GroupProcess): StartedCommand {
  const { pid, logPath } = group;
  return {
    ...{ pid, logPath },
    ended: group.ended.then(async () => {
      await group.gone();
      return group.exit();
    }),
    kill: (signal) => void group.signal(signal),
    stdout: () => '',
    address: async () => {
      throw coreError('internal', 'the address of a user process is not read from its log');
    },
  };
}

/** Resolves when the address answers with success, or accepts a connection.
 *  @throws unreachable if the process ended before */
async function untilReady(child: StartedCommand, address: string, clock: Timers): Promise<void> {
  let isOver = false;
  void child.ended.then(() => {
    isOver = true;
  });
  while (!isOver) {
    if (await (address.startsWith('tcp:') ? accepts(address) : answers(address))) return;
    await sleep(clock, READY_POLL_MS);
  }
  throw coreError('unreachable', 'the process ended before it was ready', { next: `see ${child.logPath}` });
}

async function answers(url: string): Promise<boolean> {
  try {
    const answer = await fetch(url, {
      redirect: 'manual',
      signal: AbortSignal.timeout(READY_ANSWER_MS_MAX),
    });
    await answer.body?.cancel();
    return answer.ok;
  } catch {
    return false;
  }
}

function accepts(address: string): Promise<boolean> {
  const { hostname, port } = new URL(address);
  return new Promise((settle) => {
    const socket = connect({ host: hostname, port: Number(port), timeout: READY_ANSWER_MS_MAX });
    const end = (isOpen: boolean): void => {
      socket.destroy();
      settle(isOpen);
    };
    socket.once('connect', () => end(true));
    socket.once('timeout', () => end(false));
    socket.once('error', () => end(false));
  });
}
