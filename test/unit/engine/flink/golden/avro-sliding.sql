SET 'pipeline.name' = 'millrace orders';

SET 'execution.runtime-mode' = 'streaming';

SET 'table.local-time-zone' = 'UTC';

SET 'execution.checkpointing.interval' = '30000 ms';

SET 'parallelism.default' = '4';

CREATE TEMPORARY TABLE `millrace_events` (
  `customer` ROW<`country` STRING NOT NULL, `no` INT NOT NULL> NOT NULL,
  `amount` BIGINT,
  `created` BIGINT NOT NULL,
  `millrace_time` AS COALESCE(TO_TIMESTAMP_LTZ(CASE WHEN `created` >= 0 THEN `created` / 1000 ELSE (`created` - 999) / 1000 END, 3), TO_TIMESTAMP_LTZ(-62135596800000, 3)),
  WATERMARK FOR `millrace_time` AS `millrace_time` - INTERVAL '0 00:00:15.001' DAY(3) TO SECOND(3)
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'kafka-1:9092,kafka-2:9092',
  'scan.startup.mode' = 'earliest-offset',
  'scan.watermark.emit.strategy' = 'on-event',
  'scan.watermark.idle-timeout' = '10000 ms',
  'value.format' = 'avro-confluent',
  'value.avro-confluent.url' = 'http://registry:8081',
  'value.avro-confluent.schema' = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"customer","type":{"type":"record","name":"Customer","namespace":"shop","fields":[{"name":"country","type":"string"},{"name":"no","type":"int"}]}},{"name":"amount","type":["null","long"],"default":null},{"name":"created","type":"long"}]}'
);

CREATE TEMPORARY VIEW `millrace_on_time` AS SELECT
  `customer`.`country` AS `country`,
  CAST(`customer`.`no` AS BIGINT) AS `no`,
  `amount` AS `value_0`,
  `millrace_time`,
  CAST(`millrace_time` AS TIMESTAMP(3)) AS `millrace_event_time`
FROM `millrace_events`
WHERE (CURRENT_WATERMARK(`millrace_time`) IS NULL OR `millrace_time` > CURRENT_WATERMARK(`millrace_time`))
  AND `millrace_time` > TO_TIMESTAMP_LTZ(-62135596800000, 3)
  AND `customer`.`country` IS NOT NULL
  AND `customer`.`no` IS NOT NULL
  AND `amount` IS NOT NULL;

CREATE TEMPORARY TABLE `millrace_results` (
  `country` STRING,
  `no` BIGINT,
  `window_start` STRING,
  `window_end` STRING,
  `count` BIGINT,
  `sum` BIGINT,
  `min` BIGINT,
  `max` BIGINT,
  `last_update_ts` STRING,
  `overflow` BOOLEAN,
  PRIMARY KEY (`country`, `no`, `window_start`, `window_end`) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://db:5432/shop?stringtype=unspecified&reWriteBatchedInserts=true',
  'table-name' = 'results',
  'driver' = 'org.postgresql.Driver',
  'sink.buffer-flush.max-rows' = '5000',
  'sink.buffer-flush.interval' = '1s',
  'username' = 'me',
  'password' = 'secret'
);

INSERT INTO `millrace_results` SELECT
  `country`,
  `no`,
  CAST(window_start AS STRING) || '+00',
  CAST(window_end AS STRING) || '+00',
  COUNT(*),
  SUM(value_0),
  MIN(value_0),
  MAX(value_0),
  CAST(MAX(`millrace_event_time`) AS STRING) || '+00',
  COALESCE(SUM(CAST(value_0 AS DECIMAL(19, 0))) NOT BETWEEN -9223372036854775808 AND 9223372036854775807, FALSE)
FROM TABLE(HOP(TABLE `millrace_on_time`, DESCRIPTOR(`millrace_time`), INTERVAL '0 00:01:00.000' DAY(3) TO SECOND(3), INTERVAL '0 00:05:00.000' DAY(3) TO SECOND(3)))
GROUP BY `country`, `no`, window_start, window_end;
