import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
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

    static Properties connector(String[] words) {
        Properties p = Engine.connector(words[4], words[0], words[1], words[2], words[3]);
        // What Tidewire itself says in the log: no topic is there for it.
        p.put("message.prefix.exclude.list", "tidewire");
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
                    cpu = Engine.cpuNanos();
                }
                for (ChangeEvent<String, String> record : records) {
                    boolean counts = record.value() != null;
                    producer.send(new ProducerRecord<>(record.destination(), record.key(), record.value()), (place, error) -> {
                        if (error != null) {
                            System.err.println(error);
                            Runtime.getRuntime().halt(2);
                        }
                        if (counts && acknowledged.incrementAndGet() >= wanted) {
                            System.out.printf("%f %f%n", (System.nanoTime() - began) / 1e9, (Engine.cpuNanos() - cpu) / 1e9);
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
