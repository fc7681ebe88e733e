import { describe } from 'vitest';
import { nodeHttpDriver } from '../../src/io/http/node/server.ts';
import { httpContract } from './http.contract.ts';

describe(nodeHttpDriver.name, () => httpContract(nodeHttpDriver));
