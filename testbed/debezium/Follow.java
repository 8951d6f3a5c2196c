import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;

/**
 * Debezium's embedded engine that stops in order: `Follow PROPERTIES OUT EVENTS` appends each event to OUT as a line (key, tab, value), until so
 * many were written, in the middle of a transaction if it falls there, and keeps its offset. It prints `ready` when it streams.
 */
public class Follow {
    static int written;

    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(words[1], true), true, StandardCharsets.UTF_8);
        int wanted = Integer.parseInt(words[2]);
        CountDownLatch enough = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(Engine.properties(words[0]))
            .using(Engine.OR_HALT)
            .notifying((records, committer) -> {
                for (ChangeEvent<String, String> event : records) {
                    if (written >= wanted) {
                        break;
                    }
                    if (event.value() != null) {
                        out.println(event.key() + "\t" + event.value());
                        written++;
                    }
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
                if (written >= wanted) {
                    enough.countDown();
                }
            }).build();
        Thread running = new Thread(engine);
        running.start();
        enough.await();
        engine.close();
        running.join();
        out.close();
    }
}
