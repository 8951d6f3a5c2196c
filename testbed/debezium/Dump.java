import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * What a real Debezium writes: `Dump STOP PROPERTIES OUT [PROPERTIES OUT]…` runs an embedded engine with the properties of each file, all
 * at once, and writes each message to OUT as a line of JSON (topic, key, value and headers, as Connect's JsonConverter serializes them,
 * with schemas), until a message of a topic that ends in STOP comes.
 */
public class Dump {
    static final ObjectMapper MAPPER = new ObjectMapper();
    final JsonConverter keys = new JsonConverter(), values = new JsonConverter();
    final String stop;
    final PrintStream out;
    final CountDownLatch done = new CountDownLatch(1);

    Dump(String stop, String out) throws Exception {
        this.stop = stop;
        this.out = new PrintStream(out, StandardCharsets.UTF_8);
        keys.configure(Map.of("schemas.enable", "true"), true);
        values.configure(Map.of("schemas.enable", "true"), false);
    }

    public static void main(String[] words) throws Exception {
        List<Dump> dumps = new ArrayList<>();
        for (int i = 1; i < words.length; i += 2) {
            Dump dump = new Dump(words[0], words[i + 1]);
            new Thread(dump.engine(Engine.properties(words[i]))).start();
            dumps.add(dump);
        }
        for (Dump dump : dumps) {
            dump.done.await();
            dump.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine(Properties p) {
        return DebeziumEngine.create(Connect.class).using(p)
            .using(Engine.OR_HALT)
            .notifying((records, committer) -> {
                for (ChangeEvent<SourceRecord, SourceRecord> event : records) {
                    write(event.value());
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            }).build();
    }

    void write(SourceRecord r) {
        ObjectNode line = JsonNodeFactory.instance.objectNode();
        line.put("topic", r.topic());
        line.put("key", text(keys.fromConnectData(r.topic(), r.keySchema(), r.key())));
        line.put("value", text(values.fromConnectData(r.topic(), r.valueSchema(), r.value())));
        ArrayNode list = line.putArray("headers");
        for (Header h : r.headers()) {
            list.addArray().add(h.key()).add(text(values.fromConnectHeader(r.topic(), h.key(), h.schema(), h.value())));
        }
        try {
            out.println(MAPPER.writeValueAsString(line));
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
        if (r.topic().endsWith(stop)) done.countDown();
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
