/** A set-up clone needs no network: bin/bootstrap and a demo run where there is nothing but
 *  loopback. */
import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';

const LOOPBACK_UP =
  'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x41))';

/** A namespace without a network; as an ordinary user within a user namespace. Where the system
 *  forbids both, addresses that answer nothing stand in for the missing network. */
function offline(): { readonly words: readonly string[]; readonly env: Readonly<Record<string, string>> } {
  const root = process.getuid?.() === 0;
  const words = ['unshare', ...(root ? [] : ['--map-root-user']), '--net', '--'];
  if (spawnSync(words[0] as string, [...words.slice(1), 'true']).status === 0) return { words, env: {} };
  const nowhere = 'http://127.0.0.1:9';
  return {
    words: [],
    env: { npm_config_offline: 'true', http_proxy: nowhere, https_proxy: nowhere, MAVEN_ARGS: '-o' },
  };
}

describe('host without a network', () => {
  it('bootstrap has nothing to do without a network, and the demo holds', () => {
    const { words, env } = offline();
    const script = [
      words.length > 0 ? `python3 -c '${LOOPBACK_UP}'` : 'true',
      'bin/bootstrap',
      'exec bin/millrace demo -slices=contracts -scale=0.01 -log-level=warn',
    ].join(' && ');
    const [command, ...args] = [...words, 'bash', '-c', script];
    const result = spawnSync(command as string, args, {
      cwd: packageRoot(),
      encoding: 'utf8',
      env: { ...process.env, ...env },
      timeout: 280_000,
    });
    expect({ status: result.status, stdout: result.stdout, stderr: result.stderr }).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('6 of 6 facts hold'),
    });
    // A step that had work to do would have said so.
    expect(result.stderr).not.toMatch(/installing|building|compiling/);
  });
});
