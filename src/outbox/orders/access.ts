/** Rights on the orders service for access rules: `read` and `write` of the single resource
 *  `orders`. */
import type { Need } from '../../access/request.ts';

const RESOURCE = 'orders';

/** POST /orders, Create. */
export const CREATE_NEED: Need = { operation: 'write', subject: RESOURCE };
/** GET /orders/{order_id}, Get. */
export const READ_NEED: Need = { operation: 'read', subject: RESOURCE };
