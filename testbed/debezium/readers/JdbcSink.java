import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import java.io.FileInputStream;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/**
 * Debezium's JDBC sink on topics of anybody, as a worker of Connect drives it: `JdbcSink BROKERS PROPERTIES TOPIC…` reads the topics (JSON with
 * schemas) to their ends, gives all messages to the sink's task and stops it in order.
 */
public class JdbcSink {
    public static void main(String[] words) throws Exception {
        Properties file = new Properties();
        try (FileInputStream in = new FileInputStream(words[1])) {
            file.load(in);
        }
        Map<String, String> properties = new HashMap<>();
        file.forEach((name, value) -> properties.put((String) name, (String) value));
        JsonConverter keys = converter(true), values = converter(false);
        Properties p = new Properties();
        p.putAll(Map.of("bootstrap.servers", words[0], "isolation.level", "read_committed", "auto.offset.reset", "none"));
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 2; i < words.length; i++) {
                consumer.partitionsFor(words[i]).forEach(of -> all.add(new TopicPartition(of.topic(), of.partition())));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            task.initialize(context(properties, all));
            task.start(properties);
            task.open(all);
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                List<SinkRecord> records = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    SchemaAndValue key = keys.toConnectData(r.topic(), r.key()), value = values.toConnectData(r.topic(), r.value());
                    records.add(new SinkRecord(r.topic(), r.partition(), key.schema(), key.value(), value.schema(), value.value(), r.offset(),
                        r.timestamp(), TimestampType.LOG_APPEND_TIME));
                    offsets.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                }
                task.put(records);
            }
            // What it refused it keeps for the next call.
            task.put(List.of());
            task.preCommit(offsets);
            task.close(all);
            task.stop();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Nobody takes refused records: the first ends it. */
    static SinkTaskContext context(Map<String, String> properties, List<TopicPartition> all) {
        return (SinkTaskContext) Proxy.newProxyInstance(JdbcSink.class.getClassLoader(), new Class<?>[] {SinkTaskContext.class},
            (self, method, arguments) -> switch (method.getName()) {
                case "configs" -> properties;
                case "assignment" -> java.util.Set.copyOf(all);
                default -> null;
            });
    }

    static JsonConverter converter(boolean isKey) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), isKey);
        return converter;
    }
}
