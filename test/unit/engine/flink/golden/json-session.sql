SET 'pipeline.name' = 'millrace orders';

SET 'execution.runtime-mode' = 'streaming';

SET 'table.local-time-zone' = 'UTC';

SET 'execution.checkpointing.interval' = '30000 ms';

CREATE TEMPORARY TABLE `millrace_events` (
  `user` ROW<`id` DECIMAL(20, 0), `kind` STRING>,
  `at` BIGINT,
  `score` DOUBLE,
  `millrace_time` AS COALESCE(TO_TIMESTAMP_LTZ(`at`, 3), TO_TIMESTAMP_LTZ(-62135596800000, 3)),
  WATERMARK FOR `millrace_time` AS `millrace_time` - INTERVAL '0 00:00:15.002' DAY(3) TO SECOND(3)
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'kafka-1:9092,kafka-2:9092',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'scan.watermark.emit.strategy' = 'on-event',
  'scan.watermark.idle-timeout' = '10000 ms',
  'value.format' = 'json',
  'value.json.ignore-parse-errors' = 'true'
);

CREATE TEMPORARY VIEW `millrace_on_time` AS SELECT
  `user`.`id` AS `id`,
  CAST(`score` AS DOUBLE) AS `value_0`,
  `millrace_time`,
  CAST(`millrace_time` AS TIMESTAMP(3)) AS `millrace_event_time`
FROM `millrace_events`
WHERE (CURRENT_WATERMARK(`millrace_time`) IS NULL OR `millrace_time` - INTERVAL '0.001' SECOND(1, 3) > CURRENT_WATERMARK(`millrace_time`))
  AND `millrace_time` > TO_TIMESTAMP_LTZ(-62135596800000, 3)
  AND `user`.`id` IS NOT NULL
  AND `user`.`id` BETWEEN 0 AND CAST('18446744073709551615' AS DECIMAL(20, 0))
  AND (COALESCE(`user`.`kind` <> 'bot', FALSE) AND COALESCE(`score` < CAST('0.5' AS DOUBLE), FALSE));

CREATE TEMPORARY TABLE `millrace_results` (
  `id` DECIMAL(20, 0),
  `window_start` STRING,
  `window_end` STRING,
  `count` BIGINT,
  `least` DOUBLE,
  `last_update_ts` STRING,
  `overflow` BOOLEAN,
  PRIMARY KEY (`id`, `window_start`, `window_end`) NOT ENFORCED
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
  `id`,
  CAST(window_start AS STRING) || '+00',
  CAST((window_end + INTERVAL '0.001' SECOND(1, 3)) AS STRING) || '+00',
  COUNT(*),
  MIN(value_0),
  CAST(MAX(`millrace_event_time`) AS STRING) || '+00',
  FALSE
FROM TABLE(SESSION(TABLE `millrace_on_time` PARTITION BY (`id`), DESCRIPTOR(`millrace_time`), INTERVAL '0 00:00:29.999' DAY(3) TO SECOND(3)))
GROUP BY `id`, window_start, window_end;
