import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * A worker's converters and transform on topics that are there: `Again BROKERS FORMS TOPIC…` reads topics to their ends by the first of the forms (see
 * `Topics`) and writes each message once for each of the others.
 */
public class Again {
    public static void main(String[] words) throws Exception {
        Topics.HEADERS.configure(Map.of("schemas.enable", "false"), false);
        List<Topics.Form> forms = new ArrayList<>();
        for (JsonNode form : new ObjectMapper().readTree(new File(words[1]))) {
            forms.add(Topics.form(form));
        }
        Topics.Form reading = forms.remove(0);
        Properties p = new Properties();
        p.putAll(Map.of("bootstrap.servers", words[0], "isolation.level", "read_committed", "auto.offset.reset", "none"));
        Properties k = new Properties();
        k.putAll(Map.of("bootstrap.servers", words[0], "acks", "all", "linger.ms", "5"));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(k, new ByteArraySerializer(), new ByteArraySerializer());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = Arrays.stream(words).skip(2).flatMap(topic -> consumer.partitionsFor(topic).stream())
                .map(of -> new TopicPartition(of.topic(), of.partition())).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    SchemaAndValue key = reading.keys().toConnectData(r.topic(), r.key());
                    SchemaAndValue value = reading.values().toConnectData(r.topic(), r.value());
                    SourceRecord told = new SourceRecord(Map.of(), Map.of(), r.topic(), key.schema(), key.value(), value.schema(), value.value());
                    for (Header h : r.headers()) {
                        told.headers().add(h.key(), new String(h.value(), StandardCharsets.UTF_8), Schema.STRING_SCHEMA);
                    }
                    Topics.write(told, forms, producer);
                }
            }
        }
        producer.flush();
        Runtime.getRuntime().halt(0);
    }
}
