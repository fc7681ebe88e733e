/** Jars of Flink beside a small Maven: what it copies, and each way in which it fails. */
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fetchJars } from '../../../src/bin/engine/flink/jars.ts';
import { FLINK_JARS, jarFile } from '../../../src/engine/flink/jars.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';
import { until } from '../../wait.ts';

const JARS = [FLINK_JARS.kafka, FLINK_JARS.postgres];
const FILES = JARS.map(jarFile);

let dir: string;
let jars: string;
const search = process.env['PATH'];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'millrace-jars-test-'));
  jars = join(dir, 'jars');
  process.env['PATH'] = dir;
});
afterEach(() => {
  process.env['PATH'] = search;
  rmSync(dir, { recursive: true });
});

/** Puts a program `mvn` into the search path. Its variable `out` is the folder of the copies. */
function maven(script: string): void {
  const words = `for word; do case $word in -DoutputDirectory=*) out=\${word#*=};; esac; done\n${script}`;
  writeFileSync(join(dir, 'mvn'), `#!/bin/sh\n${words}\n`);
  chmodSync(join(dir, 'mvn'), 0o755);
}
const COPIES = FILES.map((file) => `echo whole > "$out/${file}"`).join('\n');

/** @param clock moves only when a test moves it */
const fetched = (folder = jars, signal = new AbortController().signal, clock = new VirtualClock()) =>
  fetchJars(folder, JARS, { clock, signal });

/** The process that the script started. */
const pidOf = (): Promise<number> =>
  until('the process of Maven', () => {
    const file = join(dir, 'pid');
    return existsSync(file) && Number(readFileSync(file, 'utf8')) > 0 && Number(readFileSync(file, 'utf8'));
  });
const isGone = (pid: number): boolean => {
  try {
    return !process.kill(pid, 0);
  } catch {
    return true;
  }
};
/** Writes its process id, which `exec` keeps, as a whole file. */
const waits = (): string => `echo $$ > "$0.pid"; /bin/mv "$0.pid" "${dir}/pid"; exec /bin/sleep 1000`;

describe('jars of Flink', () => {
  it('jars that the folder lacks are copied, and those that it has are not asked of Maven', async () => {
    maven(COPIES);
    const paths = FILES.map((file) => join(jars, file));
    expect(await fetched()).toEqual(paths);
    expect(readdirSync(jars).sort()).toEqual([...FILES].sort());
    rmSync(join(dir, 'mvn'));
    expect(await fetched()).toEqual(paths);
  });

  it('a failure of Maven has its first error, and half a jar is not in the folder', async () => {
    maven(
      [
        `echo half > "$out/${FILES[0]}"`,
        "echo '[WARNING] slow'",
        "echo '[ERROR] Could not transfer artifact: Connection refused'",
        "echo '[ERROR] Re-run Maven'",
        'exit 1',
      ].join('\n'),
    );
    await expect(fetched()).rejects.toMatchObject({
      code: 'unreachable',
      row: { exit: 3 },
      message: 'the jars of Flink were not copied: Could not transfer artifact: Connection refused',
      next: 'install Maven and check its mirror settings, or copy the jars that -explain names yourself',
    });
    expect(readdirSync(jars)).toEqual([]);
    maven(COPIES);
    await fetched();
    expect(readFileSync(join(jars, FILES[0] as string), 'utf8')).toBe('whole\n');
  });

  it('a launcher of Maven that fails has its own words', async () => {
    maven('echo "JAVA_HOME is not defined correctly" >&2\nexit 1');
    await expect(fetched()).rejects.toThrow(/^the jars of Flink were not copied: JAVA_HOME is not defined/);
  });

  it('a machine without Maven is an error that says so', async () => {
    await expect(fetched()).rejects.toMatchObject({
      code: 'unreachable',
      row: { exit: 3 },
      message: 'the jars of Flink were not copied: mvn (Apache Maven) is not installed',
    });
  });

  it('a folder that cannot be written is refused before Maven runs', async () => {
    writeFileSync(join(dir, 'file'), '');
    for (const folder of [join(dir, 'file'), join(dir, 'file', 'jars'), '/proc'])
      await expect(fetched(folder)).rejects.toMatchObject({
        code: 'not_writable',
        row: { exit: 2 },
        message: expect.stringContaining(`cannot write to -flink-jars=${folder}: E`),
        next: 'give a folder that can be written',
      });
  });

  it('a Maven that does not end is ended after 1200 s', async () => {
    maven(waits());
    const clock = new VirtualClock();
    const refused = expect(fetched(jars, undefined, clock)).rejects.toMatchObject({
      code: 'unreachable',
      message: 'the jars of Flink were not copied: Maven has not ended within 1200 s',
    });
    const pid = await pidOf();
    await clock.advance(1_200_000);
    await refused;
    await until('the end of Maven', () => isGone(pid));
    expect(readdirSync(jars)).toEqual([]);
  });

  it('a stop ends Maven, and is an error of its own', async () => {
    maven(waits());
    const stop = new AbortController();
    const refused = expect(fetched(jars, stop.signal)).rejects.toMatchObject({
      code: 'interrupted',
      row: { exit: 130 },
      message: 'engine submit was stopped while Maven copied the jars of Flink',
      next: 'submit the job again',
    });
    const pid = await pidOf();
    stop.abort();
    await refused;
    await until('the end of Maven', () => isGone(pid));
    expect(readdirSync(jars)).toEqual([]);
  });
});
