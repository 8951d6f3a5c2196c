import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

/**
 * Debezium's embedded engine with a consumer that only counts: `Count PORT DATABASE SLOT PUBLICATION EVENTS`. Prints the seconds and the
 * CPU seconds from the first event to the last.
 */
public class Count {
    static long seen, began, cpu;

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    public static void main(String[] words) throws Exception {
        long wanted = Long.parseLong(words[4]);
        Properties p = new Properties();
        p.put("name", "bench");
        p.put("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.put("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        p.put("offset.flush.interval.ms", "1000");
        p.put("topic.prefix", "bench");
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
        p.put("tombstones.on.delete", "false");
        // What was found to be fastest.
        p.put("max.batch.size", "20480");
        p.put("max.queue.size", "81920");
        p.put("poll.interval.ms", "10");
        p.put("converter.schemas.enable", "false");
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(p)
            .using((ok, message, error) -> {
                if (!ok) System.err.println(message);
                done.countDown();
            })
            .notifying((records, committer) -> {
                if (seen == 0) {
                    began = System.nanoTime();
                    cpu = cpuNanos();
                }
                for (ChangeEvent<String, String> record : records) {
                    seen += record.value() == null ? 0 : 1;
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
                if (seen >= wanted) {
                    System.out.printf("%f %f%n", (System.nanoTime() - began) / 1e9, (cpuNanos() - cpu) / 1e9);
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
            }).build();
        new Thread(engine).start();
        done.await();
        System.exit(1);
    }
}
