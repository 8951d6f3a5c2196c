import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * How long after its commit a change reaches a consumer: `Latency BROKERS TOPIC WARM COUNT`. Says `ready`, reads the changes of the topic from
 * its present end on, what is committed only; of those behind the first WARM ones, COUNT of them, it prints median, 99th percentile and
 * maximum in milliseconds.
 */
public class Latency {
    public static void main(String[] words) {
        Properties p = new Properties();
        p.put("bootstrap.servers", words[0]);
        p.put("isolation.level", "read_committed");
        p.put("fetch.min.bytes", "1");
        int warm = Integer.parseInt(words[2]);
        int wanted = Integer.parseInt(words[3]);
        long[] micros = new long[wanted];
        int seen = -warm;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = new ArrayList<>();
            consumer.partitionsFor(words[1]).forEach(part -> places.add(new TopicPartition(part.topic(), part.partition())));
            consumer.assign(places);
            consumer.seekToEnd(places);
            places.forEach(consumer::position);
            System.out.println("ready");
            System.out.flush();
            while (seen < wanted) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (record.value() == null || seen == wanted || seen++ < 0) continue;
                    long now = System.currentTimeMillis() * 1000;
                    // The commit's time at the source stands first of all times in microseconds that the envelope has.
                    int at = record.value().indexOf("\"ts_us\":", record.value().indexOf("\"source\":")) + 8;
                    micros[seen - 1] = now - Long.parseLong(record.value().substring(at, record.value().indexOf(',', at)).trim());
                }
            }
        }
        java.util.Arrays.sort(micros);
        System.out.printf("%.1f %.1f %.1f%n", micros[wanted / 2] / 1e3, micros[wanted * 99 / 100] / 1e3, micros[wanted - 1] / 1e3);
    }
}
