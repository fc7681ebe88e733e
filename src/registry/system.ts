/** Clock and randomness of a client that is opened without any. The only file of the product that
 *  binds them; everything else takes them from its caller.
 */
export { systemClock, systemRandom } from '../io/clock/system.ts';
