import { pgDriver } from '../../src/io/sql/pg.ts';
import { sqlContract } from '../contract/sql.ts';
import { sharedStack } from './stack.ts';

const stack = await sharedStack();
sqlContract(pgDriver, () => stack.postgres);
