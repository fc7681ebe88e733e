import { describe } from 'vitest';
import { uwsDriver } from '../../src/io/http/uws.ts';
import { httpContract } from './http.contract.ts';

describe(uwsDriver.name, () => httpContract(uwsDriver));
