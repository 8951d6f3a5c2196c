import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.transforms.ExtractNewRecordState;
import java.io.File;
import java.io.FileInputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;

/**
 * What a Debezium connector puts into Kafka by a worker's converters and transform: `Topics PROPERTIES BROKERS FORMS` runs an embedded engine and writes
 * each message once for each form, as a worker would. FORMS is a JSON file: `name` (in place of the topics' prefix), `converter` (its class),
 * `properties` (of the converter), `unwrap` (properties of ExtractNewRecordState; left out: it isn't used), `tables` (by name). Prints how many changes are in the topics, whenever
 * there are more, and ends with standard input.
 */
public class Topics {
    record Form(String name, Converter keys, Converter values, ExtractNewRecordState<SourceRecord> unwrap, List<String> tables) {}

    static final JsonConverter HEADERS = new JsonConverter();
    static int changes;

    public static void main(String[] words) throws Exception {
        HEADERS.configure(Map.of("schemas.enable", "false"), false);
        Properties p = new Properties();
        try (FileInputStream file = new FileInputStream(words[0])) {
            p.load(file);
        }
        List<Form> forms = new ArrayList<>();
        for (JsonNode form : new ObjectMapper().readTree(new File(words[2]))) {
            forms.add(form(form));
        }
        Properties k = new Properties();
        k.putAll(Map.of("bootstrap.servers", words[1], "acks", "all", "linger.ms", "5"));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(k, new ByteArraySerializer(), new ByteArraySerializer());
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class).using(p)
            .using((ok, message, error) -> {
                if (!ok) {
                    fail(message, error);
                }
            })
            .notifying((records, committer) -> {
                for (ChangeEvent<SourceRecord, SourceRecord> event : records) {
                    write(event.value(), forms, producer);
                    committer.markProcessed(event);
                }
                producer.flush();
                committer.markBatchFinished();
                System.out.println(changes);
            }).build();
        Thread running = new Thread(engine);
        running.start();
        while (System.in.read() >= 0) {
        }
        engine.close();
        running.join();
        Runtime.getRuntime().halt(0);
    }

    static void fail(String message, Throwable error) {
        System.err.println(message);
        if (error != null) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    static Form form(JsonNode of) throws Exception {
        String kind = of.get("converter").asText();
        Converter keys = (Converter) Class.forName(kind).getDeclaredConstructor().newInstance();
        Converter values = (Converter) Class.forName(kind).getDeclaredConstructor().newInstance();
        keys.configure(texts(of.get("properties")), true);
        values.configure(texts(of.get("properties")), false);
        ExtractNewRecordState<SourceRecord> unwrap = null;
        if (of.has("unwrap")) {
            unwrap = new ExtractNewRecordState<>();
            unwrap.configure(texts(of.get("unwrap")));
        }
        List<String> tables = new ArrayList<>();
        of.get("tables").forEach(table -> tables.add(table.asText()));
        return new Form(of.get("name").asText(), keys, values, unwrap, tables);
    }

    static Map<String, String> texts(JsonNode of) {
        Map<String, String> found = new HashMap<>();
        of.fields().forEachRemaining(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }

    static void rewind(Object value) {
        if (value instanceof ByteBuffer bytes) {
            bytes.rewind();
        } else if (value instanceof List<?> many) {
            many.forEach(Topics::rewind);
        } else if (value instanceof Struct struct) {
            struct.schema().fields().forEach(field -> rewind(struct.getWithoutDefault(field.name())));
        }
    }

    static void write(SourceRecord told, List<Form> forms, KafkaProducer<byte[], byte[]> producer) {
        for (Form form : forms) {
            if (!form.tables.contains(told.topic().substring(told.topic().lastIndexOf('.') + 1))) {
                continue;
            }
            // A converter may have read them to their ends.
            rewind(told.key());
            rewind(told.value());
            SourceRecord r = form.unwrap == null ? told : form.unwrap.apply(told);
            if (r == null) {
                continue;
            }
            String topic = form.name + r.topic().substring(r.topic().indexOf('.'));
            byte[] key, value;
            try {
                key = form.keys.fromConnectData(topic, r.keySchema(), r.key());
                value = form.values.fromConnectData(topic, r.valueSchema(), r.value());
            } catch (RuntimeException error) {
                fail("the form " + form.name + " can't hold " + r, error);
                return;
            }
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, key, value);
            for (Header h : r.headers()) {
                record.headers().add(h.key(), HEADERS.fromConnectHeader(topic, h.key(), h.schema(), h.value()));
            }
            producer.send(record, (place, error) -> {
                if (error != null) {
                    fail("a message was not taken", error);
                }
            });
        }
        if (told.value() instanceof Struct envelope && envelope.schema().field("op") != null) {
            changes++;
        }
    }
}
