/** CPU time of local processes from /proc, the measure that noise disturbs least. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** USER_HZ: the unit of /proc/PID/stat on every Linux that Node.js runs on. */
const TICKS_A_SECOND = 100;

interface Stat {
  readonly parent: number;
  readonly own: number;
  /** Ticks of children that ended and were waited for. */
  readonly children: number;
}

function statOf(pid: number | string): Stat | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return undefined;
  }
  // The command is in parentheses and may hold blanks; the fields after it are counted from
  // `state`.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const ticks = (at: number): number => Number(fields[at]);
  return { parent: ticks(1), own: ticks(11) + ticks(12), children: ticks(13) + ticks(14) };
}

const pids = (): string[] => readdirSync('/proc').filter((name) => /^\d+$/.test(name));

/** User and system seconds of a process; with `family` also of its children, including ended ones.
 *  0 if the process does not exist. */
export function cpuSeconds(pid: number, family = false): number {
  const stat = statOf(pid);
  if (stat === undefined) return 0;
  if (!family) return stat.own / TICKS_A_SECOND;
  let ticks = stat.own + stat.children;
  for (const one of pids()) {
    const child = statOf(one);
    if (child?.parent === pid) ticks += child.own + child.children;
  }
  return ticks / TICKS_A_SECOND;
}

/** Inodes of the sockets that listen on a port. */
function listeners(port: number): Set<string> {
  const found = new Set<string>();
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6']) {
    let text = '';
    try {
      text = readFileSync(table, 'utf8');
    } catch {
      continue;
    }
    for (const line of text.split('\n').slice(1)) {
      const fields = line.trim().split(/\s+/);
      // State 0A is LISTEN.
      if (fields[3] === '0A' && fields[1]?.endsWith(suffix)) found.add(`socket:[${fields[9]}]`);
    }
  }
  return found;
}

/** Local process that listens on a port. A server's children inherit its socket, so the holder
 *  whose parent does not hold the socket is returned. Undefined if it runs elsewhere or is not
 *  visible. */
export function processAt(port: number): number | undefined {
  const inodes = listeners(port);
  if (inodes.size === 0) return undefined;
  const holders: number[] = [];
  for (const pid of pids()) {
    let files: string[];
    try {
      files = readdirSync(`/proc/${pid}/fd`);
    } catch {
      continue;
    }
    for (const file of files) {
      try {
        if (!inodes.has(readlinkSync(`/proc/${pid}/fd/${file}`))) continue;
      } catch {
        continue;
      }
      holders.push(Number(pid));
      break;
    }
  }
  return holders.find((pid) => !holders.includes(statOf(pid)?.parent ?? 0));
}

/** CPU seconds of each name since `start`. */
export class CpuMeter {
  private readonly watched: ReadonlyMap<string, () => number>;
  private first = new Map<string, number>();

  /** @param watched functions that read the CPU seconds so far, by name */
  constructor(watched: ReadonlyMap<string, () => number>) {
    this.watched = watched;
    this.start();
  }

  start(): void {
    this.first = new Map([...this.watched].map(([name, read]) => [name, read()]));
  }

  /** Seconds since the start; NaN for an unknown name. */
  seconds(name: string): number {
    const read = this.watched.get(name);
    const first = this.first.get(name);
    return read === undefined || first === undefined ? Number.NaN : read() - first;
  }
}
