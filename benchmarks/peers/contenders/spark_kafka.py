"""Kafka through Spark's connector, with a broker of this run."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.peers import fetch
from benchmarks.peers.peer import Client, Missing
from benchmarks.peers.servers import Servers
from benchmarks.peers.spark import CONNECTOR, PARTITIONS, SparkPeer, connector, session
from benchmarks.ports import free_port

_BROKER = "4.1.1"
_WHEELS = ("confluent-kafka",)
_LOGGER = "org.slf4j:slf4j-simple:1.7.36"
#: Room for messages of 10 MB.
_LARGEST = str(32 << 20)
_PROPERTIES = f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{controller}}
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}}
controller.listener.names=CONTROLLER
log.dirs={{folder}}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
message.max.bytes={_LARGEST}
replica.fetch.max.bytes={_LARGEST}
"""


class KafkaProducer(Client):
    """Only produces; Spark consumes."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        fetch.wheels(*_WHEELS)
        import confluent_kafka

        self._producer = confluent_kafka.Producer({"bootstrap.servers": address})

    def create(self) -> None:
        """The peer creates its topics."""

    def produce(self, bodies: Sequence[bytes]) -> None:
        """All, then wait until the broker has confirmed them."""
        for body in bodies:
            self._producer.produce(self.queue, body)
        if self._producer.flush(60):
            raise RuntimeError("the broker did not confirm within a minute")

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """Not here."""
        raise NotImplementedError

    def acknowledge(self, failed: Sequence[int]) -> None:
        """Not here."""
        raise NotImplementedError

    def close(self) -> None:
        """All is confirmed."""


class Kafka(SparkPeer):
    """One broker, and topics of as many partitions as the others have."""

    name = "Kafka's connector"
    conditions = (
        f"through Spark {pyspark.__version__}: connector {CONNECTOR} (none for 4.3 on Maven "
        f"Central), broker {_BROKER} with one replica, acks=all without sync, at least once; typed "
        "columns as JSON"
    )

    body = "value"

    def start(self, servers: Servers) -> None:
        """Format a log folder, and start the broker."""
        connector()
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin/java") if home else "java"
        (ivy,) = (Path(pyspark.__path__[0]) / "jars").glob("ivy-*.jar")
        jars = fetch.jars(
            f"kafka-{_BROKER}", java, str(ivy), f"org.apache.kafka:kafka_2.13:{_BROKER}"
        )
        logger = fetch.jar("kafka-logger", _LOGGER)
        folder = servers.data("kafka")
        port, controller = free_port(), free_port()
        properties = folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(port=port, controller=controller, folder=folder / "logs")
        )
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        base = [java, "-Xmx1g", quiet, "-cp", f"{jars}/*:{logger}"]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # An id may begin with a hyphen.
        given = [f"--cluster-id={cluster}", "-c", str(properties)]
        form = [*base, "kafka.tools.StorageTool", "format", *given]
        done = subprocess.run(form, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(
                f"Kafka: its log folder cannot be formatted: {done.stderr.strip()[-160:]}"
            )
        servers.launch("kafka", [*base, "kafka.Kafka", properties], port)
        self.broker = f"127.0.0.1:{port}"

    def producer(self) -> tuple[type[Client], str]:
        """A client of librdkafka, with its defaults."""
        fetch.wheels(*_WHEELS)
        return KafkaProducer, self.broker

    def create(self, place: str) -> None:
        """A topic; one that is created by the first write refuses some of it."""
        jvm = session()._jvm
        # The number of replicas is a short, which Py4J cannot pass; so each is placed.
        places = jvm.java.util.HashMap()
        for partition in range(PARTITIONS):
            on = jvm.java.util.ArrayList()
            on.add(1)
            places.put(partition, on)
        topics = jvm.java.util.ArrayList()
        topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(place, places))
        with self._admin() as admin:
            admin.createTopics(topics).all().get()

    def drop(self, place: str) -> None:
        """Delete the topic; the broker removes its files a minute later."""
        topics = session()._jvm.java.util.ArrayList()
        topics.add(place)
        with self._admin() as admin:
            admin.deleteTopics(topics).all().get()

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        jvm = session()._jvm
        settings = jvm.java.util.Properties()
        settings.put("bootstrap.servers", self.broker)
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        try:
            yield admin
        finally:
            admin.close()

    def again(self, place: str, rows: DataFrame) -> None:
        """Another query begins with the first record anyway."""

    def packed(self, rows: DataFrame) -> DataFrame:
        """A key and a payload are the record; other columns become JSON."""
        if "payload" in rows.columns:
            return rows.withColumnRenamed("payload", "value")
        return rows.select(f.to_json(f.struct("*")).alias("value"))

    def writer(self, writing: Any, place: str) -> Any:
        """A record a row."""
        options = {"kafka.bootstrap.servers": self.broker, "topic": place}
        options |= {"kafka.max.request.size": _LARGEST, "kafka.buffer.memory": str(128 << 20)}
        return writing.format("kafka").options(**options)

    def stream(self, place: str, like: DataFrame) -> DataFrame:
        """All records, with their columns again."""
        options = {"kafka.bootstrap.servers": self.broker, "subscribe": place}
        options |= {"startingOffsets": "earliest", "kafka.max.partition.fetch.bytes": _LARGEST}
        records = session().readStream.format("kafka").options(**options).load()
        if like.columns == [self.body]:
            return records.select(self.body)
        if "payload" in like.columns:
            key = ["cast(key as string) as key"] if "key" in like.columns else []
            return records.selectExpr(*key, "value as payload")
        parsed = f.from_json(f.col("value").cast("string"), like.schema)
        return records.select(parsed.alias("row")).select("row.*")
