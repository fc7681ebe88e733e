/** Downloads the peers and loads them. */
import { cpSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { BenchContext } from '../harness.ts';
import { npmPeerFolder, peerDigest, peerFolder, peerSource, runForPeer } from '../peer-folder.ts';

/** Loads a package of the peers' folder; the caller states what it uses of it. */
export type LoadPeer = <T>(name: string) => T;

/** Peers by the names that -peers accepts; avsc is a dependency of Millrace. */
const NPM_PEERS = ['protobufjs', 'bufbuild', 'kafkajs', 'confluent'] as const;
type NpmPeer = (typeof NPM_PEERS)[number];

export interface SerdePeers {
  /** Undefined: the npm packages were not requested or cannot be downloaded. */
  readonly load: LoadPeer | undefined;
  /** True: this npm peer takes part. */
  has(name: NpmPeer): boolean;
  /** Path of the program of arrow-avro; undefined if it takes no part. */
  readonly arrowAvro: string | undefined;
}

async function npmPackages(): Promise<LoadPeer> {
  const folder = await npmPeerFolder('serde');
  const load = createRequire(join(folder, 'package.json'));
  return <T>(name: string) => load(name) as T;
}

async function arrowProgram(): Promise<string> {
  const digest = peerDigest('arrow-avro', ['Cargo.toml', 'Cargo.lock', 'src/main.rs', 'src/rows.rs']);
  const folder = await peerFolder('arrow-avro', digest, async (part) => {
    cpSync(peerSource('arrow-avro'), part, { recursive: true });
    await runForPeer('cargo', ['build', '--release', '--locked', '--quiet', '--target-dir', 'target'], part);
  });
  return join(folder, 'target', 'release', 'millrace-bench-arrow-avro');
}

/** Loads the requested peers; without a request all of them, in a short run none. A peer that
 *  cannot be downloaded is left out with a message. */
export async function serdePeers(context: BenchContext): Promise<SerdePeers> {
  const wanted = (name: string): boolean =>
    context.peers === undefined ? !context.smoke : context.peers.includes(name);
  const attempt = async <T>(what: string, make: () => Promise<T>): Promise<T | undefined> => {
    try {
      context.say(`peers: ${what}`);
      return await make();
    } catch (thrown) {
      context.say(`skipped: ${what}: ${(thrown as Error).message.split('\n')[0]}`);
      return undefined;
    }
  };
  const load = NPM_PEERS.some(wanted) ? await attempt('npm packages', npmPackages) : undefined;
  return {
    load,
    has: (name) => load !== undefined && wanted(name),
    arrowAvro: wanted('arrow-avro') ? await attempt('arrow-avro', arrowProgram) : undefined,
  };
}
