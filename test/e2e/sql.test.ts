import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import { pgNativeDriver } from '../../src/io/postgres/sql/pg-native.ts';
import { pgTextDriver } from '../../src/io/postgres/sql/pg-text.ts';
import { sqlContract } from '../contract/sql.ts';
import { silenceContract } from '../contract/sql-silence.ts';
import { textContract } from '../contract/sql-text.ts';
import { sharedStack } from '../fixtures/stack.ts';

const stack = await sharedStack();
sqlContract(pgDriver, () => stack.postgres);
textContract(pgNativeDriver, () => stack.postgres);
textContract(pgTextDriver, () => stack.postgres);
silenceContract([pgNativeDriver, pgTextDriver], () => stack.postgres);
