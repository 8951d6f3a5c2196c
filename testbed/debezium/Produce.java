import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine, JSON without schemas, into Kafka: `Produce PORT DATABASE SLOT PUBLICATION PREFIX EVENTS BROKERS`. Prints the
 * seconds and the CPU seconds from the first event until the last is acknowledged.
 */
public class Produce {
    static final AtomicLong acknowledged = new AtomicLong();
    static long began, cpu;

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static Properties connector(String[] words) {
        Properties p = new Properties();
        p.put("name", "bench");
        p.put("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.put("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        p.put("offset.flush.interval.ms", "1000");
        p.put("topic.prefix", words[4]);
        p.put("database.hostname", "127.0.0.1");
        p.put("database.port", words[0]);
        p.put("database.user", "postgres");
        p.put("database.password", "unused");
        p.put("database.dbname", words[1]);
        p.put("plugin.name", "pgoutput");
        p.put("slot.name", words[2]);
        p.put("publication.name", words[3]);
        p.put("publication.autocreate.mode", "disabled");
        p.put("snapshot.mode", "no_data");
        // What was found to be fastest.
        p.put("max.batch.size", "20480");
        p.put("max.queue.size", "81920");
        p.put("poll.interval.ms", System.getProperty("poll", "10"));
        // What Tidewire itself says in the log: no topic is there for it.
        p.put("message.prefix.exclude.list", "tidewire");
        p.put("converter.schemas.enable", "false");
        return p;
    }

    public static void main(String[] words) throws Exception {
        long wanted = Long.parseLong(words[5]);
        Properties p = new Properties();
        p.put("bootstrap.servers", words[6]);
        p.put("acks", "all");
        p.put("enable.idempotence", "true");
        p.put("compression.type", "lz4");
        p.put("linger.ms", System.getProperty("linger", "5"));
        p.put("batch.size", "262144");
        p.put("buffer.memory", "67108864");
        KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(connector(words))
            .using((ok, message, error) -> {
                if (!ok) System.err.println(message);
                done.countDown();
            })
            .notifying((records, committer) -> {
                if (began == 0) {
                    began = System.nanoTime();
                    cpu = cpuNanos();
                }
                for (ChangeEvent<String, String> record : records) {
                    boolean counts = record.value() != null;
                    producer.send(new ProducerRecord<>(record.destination(), record.key(), record.value()), (place, error) -> {
                        if (error != null) {
                            System.err.println(error);
                            Runtime.getRuntime().halt(2);
                        }
                        if (counts && acknowledged.incrementAndGet() >= wanted) {
                            System.out.printf("%f %f%n", (System.nanoTime() - began) / 1e9, (cpuNanos() - cpu) / 1e9);
                            System.out.flush();
                            Runtime.getRuntime().halt(0);
                        }
                    });
                    committer.markProcessed(record);
                }
                // What isn't sent yet must not be confirmed.
                producer.flush();
                committer.markBatchFinished();
            }).build();
        new Thread(engine).start();
        done.await();
        System.exit(1);
    }
}
