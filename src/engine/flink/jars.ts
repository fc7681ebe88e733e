/** Jars that a job needs in Flink beside its distribution, with the versions that this translation
 *  is tested with. */

export const FLINK_VERSION = '2.2.1';

export interface FlinkJar {
  readonly group: string;
  readonly artifact: string;
  readonly version: string;
}

export const FLINK_JARS = {
  kafka: { group: 'org.apache.flink', artifact: 'flink-sql-connector-kafka', version: '5.0.0-2.2' },
  avro: { group: 'org.apache.flink', artifact: 'flink-sql-avro-confluent-registry', version: '2.2.0' },
  jdbc: { group: 'org.apache.flink', artifact: 'flink-connector-jdbc-core', version: '4.0.0-2.0' },
  jdbcPostgres: {
    group: 'org.apache.flink',
    artifact: 'flink-connector-jdbc-postgres',
    version: '4.0.0-2.0',
  },
  postgres: { group: 'org.postgresql', artifact: 'postgresql', version: '42.7.4' },
} as const satisfies Readonly<Record<string, FlinkJar>>;

/** `org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2`, as Maven names it. */
export const coordinatesOf = ({ group, artifact, version }: FlinkJar): string =>
  `${group}:${artifact}:${version}`;

export const jarFile = ({ artifact, version }: FlinkJar): string => `${artifact}-${version}.jar`;
