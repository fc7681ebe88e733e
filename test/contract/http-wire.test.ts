import { describe } from 'vitest';
import { wireDriver } from '../../src/io/http/http1/server.ts';
import { httpContract } from './http.contract.ts';

describe(wireDriver.name, () => httpContract(wireDriver));
