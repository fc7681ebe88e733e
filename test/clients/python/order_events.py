"""Publishes records like a foreign outbox relay: confluent-kafka with its own partitioner
(CRC32 of the key).

    python order_events.py BROKERS TOPIC

Reads one record per line: {"key":text|null,"value":text,"headers":[[name,text|null],…]}

Prints one line when all records are acknowledged: {"delivered":n,"partitions":[…]}
"""
import json
import sys

from confluent_kafka import Producer


def main() -> None:
    brokers, topic = sys.argv[1:3]
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "acks": "all",
            "partitioner": "consistent_random",
            "compression.type": "gzip",
            "linger.ms": 5,
        }
    )
    delivered = 0
    partitions = set()

    def report(error, message) -> None:
        nonlocal delivered
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        delivered += 1
        partitions.add(message.partition())

    for line in sys.stdin:
        record = json.loads(line)
        headers = [(name, None if value is None else value.encode()) for name, value in record["headers"]]
        producer.produce(
            topic,
            key=record["key"],
            value=record["value"].encode(),
            headers=headers or None,
            on_delivery=report,
        )
        producer.poll(0)
    producer.flush(30)
    print(json.dumps({"delivered": delivered, "partitions": sorted(partitions)}), flush=True)


main()
