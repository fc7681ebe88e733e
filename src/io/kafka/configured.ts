/** Driver whose clients all share the properties of one configuration. */
import type { BrokerDriver, BrokerOptions, BrokerProperties } from './port.ts';

/** Adds the properties to those of every client; they win over the client's own.
 *  @example
 *  const secured = configured(driver, { 'security.protocol': 'ssl' });
 */
export function configured(driver: BrokerDriver, properties: BrokerProperties): BrokerDriver {
  if (Object.keys(properties).length === 0) return driver;
  const shared = <O extends BrokerOptions>(options: O): O => ({
    ...options,
    properties: { ...options.properties, ...properties },
  });
  return {
    name: driver.name,
    consumer: (options) => driver.consumer(shared(options)),
    producer: (options) => driver.producer(shared(options)),
    transactional: (options) => driver.transactional(shared(options)),
    admin: (options) => driver.admin(shared(options)),
  };
}
