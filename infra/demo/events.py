"""Prints the committed events of a topic from its beginning, one per line with its key.

python events.py 127.0.0.1:9092 lake.customers [--follow]
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

PATIENCE_SECONDS = 20


class Topic:
    def __init__(self, brokers: str, name: str) -> None:
        settings = {"bootstrap.servers": brokers, "group.id": "demo", "enable.auto.commit": False, "log_level": 0}
        settings |= {"auto.offset.reset": "earliest"}  # the first ones may have expired
        self.name = name
        self.consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        self.asking = Consumer({**settings, "isolation.level": "read_uncommitted"})
        known = self.asking.list_topics(timeout=PATIENCE_SECONDS).topics
        self.next = dict.fromkeys(known[name].partitions if name in known else (), 0)
        self.consumer.assign([TopicPartition(name, number, 0) for number in self.next])

    def read(self) -> Iterator[Message]:
        """The events since the last call. Events of one key are in one partition and therefore in order."""
        # A commit returns before every partition has its marker: the end offsets include open transactions.
        ends = {number: self.end(number) for number in self.next}
        while any(self.next[number] < end for number, end in ends.items()):
            message = self.consumer.poll(PATIENCE_SECONDS)
            if message is None:
                raise TimeoutError(f"{self.name} was not read to its end within {PATIENCE_SECONDS} seconds")
            number, offset, error = message.partition(), message.offset(), message.error()
            assert number is not None
            assert offset is not None
            if error is None:
                self.next[number] = offset + 1
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # the marker of a commit has an offset as well
                self.next[number] = offset
            else:
                raise KafkaException(error)

    def end(self, number: int) -> int:
        _, end = self.asking.get_watermark_offsets(TopicPartition(self.name, number), PATIENCE_SECONDS, cached=False)
        return int(end)

    def close(self) -> None:
        self.consumer.close()
        self.asking.close()


def main(brokers: str, name: str, follow: bool) -> None:
    topic = Topic(brokers, name)
    while True:
        for message in topic.read():
            key, value = message.key() or b"", message.value()
            print(key.decode(), "tombstone" if value is None else value.decode(), sep="\t", flush=follow)
        if not follow:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # Ctrl-C and `| head` end the program silently
    try:
        main(sys.argv[1], sys.argv[2], "--follow" in sys.argv[3:])
    except KafkaException as error:
        sys.exit(f"{sys.argv[1]}: {error.args[0].str()}")
    except TimeoutError as error:
        sys.exit(str(error))
