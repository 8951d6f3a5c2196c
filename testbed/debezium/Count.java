import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

/**
 * Debezium's embedded engine with a consumer that only counts: `Count PORT DATABASE SLOT PUBLICATION EVENTS`. Prints the seconds and the
 * CPU seconds from the first event to the last.
 */
public class Count {
    static long seen, began, cpu;

    public static void main(String[] words) throws Exception {
        long wanted = Long.parseLong(words[4]);
        Properties p = Engine.connector("bench", words[0], words[1], words[2], words[3]);
        p.put("tombstones.on.delete", "false");
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(p)
            .using((ok, message, error) -> {
                if (!ok) System.err.println(message);
                done.countDown();
            })
            .notifying((records, committer) -> {
                if (seen == 0) {
                    began = System.nanoTime();
                    cpu = Engine.cpuNanos();
                }
                for (ChangeEvent<String, String> record : records) {
                    seen += record.value() == null ? 0 : 1;
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
                if (seen >= wanted) {
                    System.out.printf("%f %f%n", (System.nanoTime() - began) / 1e9, (Engine.cpuNanos() - cpu) / 1e9);
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
            }).build();
        new Thread(engine).start();
        done.await();
        System.exit(1);
    }
}
