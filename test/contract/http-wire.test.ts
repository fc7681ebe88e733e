import { describe } from 'vitest';
import { wireDriver } from '../../src/io/http/wire.ts';
import { httpContract } from './http.contract.ts';

describe(wireDriver.name, () => httpContract(wireDriver));
