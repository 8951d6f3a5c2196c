import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Puts records into topics as another program would: `java -cp "$(testbed/kafka.sh)/*" Send.java BROKERS`. Lines of standard input:
 * `topic NAME PARTITIONS [setting=value …]`, `partitions NAME COUNT`, `delete NAME`, `purge NAME PARTITION BEFORE`,
 * `send TOPIC PARTITION KEY VALUE [header=…]` (key, value and headers in base64, `-`: none), and `done`, which is answered by `ok` when all
 * before it has happened.
 */
public class Send {
    static byte[] bytes(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word);
    }

    public static void main(String[] words) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", words[0]);
        p.put("acks", "all");
        p.put("max.request.size", "134217728");
        p.put("buffer.memory", "268435456");
        List<Future<?>> sent = new ArrayList<>();
        try (Admin admin = Admin.create(p);
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
             BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line; (line = in.readLine()) != null; ) {
                String[] w = line.split(" ");
                switch (w[0]) {
                    case "topic" -> {
                        Map<String, String> settings = new java.util.HashMap<>();
                        for (int i = 3; i < w.length; i++) {
                            String[] pair = w[i].split("=", 2);
                            settings.put(pair[0], pair[1]);
                        }
                        NewTopic topic = new NewTopic(w[1], Optional.of(Integer.parseInt(w[2])), Optional.of((short) 1)).configs(settings);
                        admin.createTopics(List.of(topic)).all().get();
                    }
                    case "partitions" -> admin.createPartitions(Map.of(w[1], NewPartitions.increaseTo(Integer.parseInt(w[2])))).all().get();
                    case "delete" -> admin.deleteTopics(List.of(w[1])).all().get();
                    case "purge" -> admin.deleteRecords(Map.of(new TopicPartition(w[1], Integer.parseInt(w[2])),
                            RecordsToDelete.beforeOffset(Long.parseLong(w[3])))).all().get();
                    case "send" -> {
                        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(w[1], Integer.parseInt(w[2]), bytes(w[3]), bytes(w[4]));
                        for (int i = 5; i < w.length; i++) {
                            String[] pair = w[i].split("=", 2);
                            record.headers().add(pair[0], bytes(pair[1]));
                        }
                        sent.add(producer.send(record));
                    }
                    case "done" -> {
                        producer.flush();
                        for (Future<?> one : sent) {
                            one.get();
                        }
                        sent.clear();
                        System.out.println("ok");
                        System.out.flush();
                    }
                    default -> throw new IllegalArgumentException(line);
                }
            }
        }
    }
}
