import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.DynamicMessage;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchemaProvider;
import io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufDeserializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchemaProvider;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's Java client and serializers with somebody's registry.
 * `Serdes back REGISTRY`: what they register and write comes back, and what the level forbids is refused.
 * `Serdes refer REGISTRY`: the same of schemas that refer to others, in Avro and Protobuf.
 * `Serdes write REGISTRY BROKERS TOPIC ROWS`: writes an envelope as Debezium's, for each row, with a key.
 * `Serdes read REGISTRY BROKERS TOPIC`: reads a topic to its end, and prints keys and values as JSON with a tab between.
 */
public class Serdes {
    static final String ONE = "{'type':'record','name':'User','namespace':'x','fields':[{'name':'name','type':'string'}]}";
    static final String TWO = ONE.replace("]}", ",{'name':'age','type':['null','int'],'default':null}]}");
    static final String BAD = ONE.replace("]}", ",{'name':'age','type':'int'}]}");
    static final String ROW = "{'type':'record','name':'Value','fields':[{'name':'id','type':'long'},{'name':'name','type':['null','string'],'default':null},"
        + "{'name':'price','type':['null',{'type':'bytes','scale':2,'precision':10,'connect.name':'org.apache.kafka.connect.data.Decimal',"
        + "'connect.parameters':{'scale':'2','connect.decimal.precision':'10'},'logicalType':'decimal'}],'default':null}]}";
    static final String ENVELOPE = "{'type':'record','name':'Envelope','namespace':'java.public.things','fields':[{'name':'before','type':['null'," + ROW
        + "],'default':null},{'name':'after','type':['null','Value'],'default':null},{'name':'op','type':'string'},{'name':'source','type':{'type':'record',"
        + "'name':'Source','namespace':'io.debezium.connector.postgresql','fields':[{'name':'schema','type':'string'},{'name':'table','type':'string'},"
        + "{'name':'lsn','type':['null','long'],'default':null}]}}]}";
    static final String KEY = "{'type':'record','name':'Key','namespace':'java.public.things','fields':[{'name':'id','type':'long'}]}";

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "back" -> back(words[1]);
            case "refer" -> refer(words[1]);
            case "write" -> write(words[1], words[2], words[3], Integer.parseInt(words[4]));
            default -> read(words[1], words[2], words[3]);
        }
        Runtime.getRuntime().halt(0);
    }

    static Schema schema(String text) {
        return new Schema.Parser().parse(text.replace('\'', '"'));
    }

    static void same(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError(found + " is not " + expected);
        }
    }

    static void back(String url) throws Exception {
        SchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
        Schema one = schema(ONE), two = schema(TWO);
        KafkaAvroSerializer writer = new KafkaAvroSerializer(client, Map.of("schema.registry.url", url));
        KafkaAvroDeserializer reader = new KafkaAvroDeserializer(new CachedSchemaRegistryClient(url, 100), Map.of("schema.registry.url", url));
        GenericRecord ada = new GenericRecordBuilder(one).set("name", "Ada").build();
        byte[] bytes = writer.serialize("users", ada);
        same((int) bytes[0], 0);
        int id = ByteBuffer.wrap(bytes, 1, 4).getInt();
        same(client.getLatestSchemaMetadata("users-value").getId(), id);
        same(reader.deserialize("users", bytes).toString(), ada.toString());
        // A new version that bears the old one, and a reader that knows only the old one.
        GenericRecord eve = new GenericRecordBuilder(two).set("name", "Eve").set("age", 7).build();
        byte[] later = writer.serialize("users", eve);
        same(reader.deserialize("users", later).toString(), eve.toString());
        same(reader.deserialize("users", later, one).toString(), "{\"name\": \"Eve\"}");
        same(client.getAllVersions("users-value"), List.of(1, 2));
        same(client.getSchemaById(id).canonicalString(), one.toString());
        try {
            writer.serialize("users", new GenericRecordBuilder(schema(BAD)).set("name", "x").set("age", 1).build());
            throw new AssertionError("a schema that breaks readers was registered");
        } catch (org.apache.kafka.common.errors.SerializationException | org.apache.kafka.common.errors.InvalidConfigurationException error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            same(((RestClientException) cause).getStatus(), 409);
        }
        same(client.getAllVersions("users-value"), List.of(1, 2));
        System.out.println("they come back");
    }

    static SchemaRegistryClient client(String url) {
        return new CachedSchemaRegistryClient(url, 100, List.of(new AvroSchemaProvider(), new ProtobufSchemaProvider()), Map.of());
    }

    static void refer(String url) throws Exception {
        SchemaRegistryClient client = client(url);
        String level = "{'type':'enum','name':'refer.Level','symbols':['LOW','HIGH']}".replace('\'', '"');
        String row = "{'type':'record','name':'refer.Row','fields':[{'name':'level','type':'Level'}]}".replace('\'', '"');
        client.register("refer.Level", new AvroSchema(level));
        List<SchemaReference> references = List.of(new SchemaReference("refer.Level", "refer.Level", 1));
        AvroSchema schema = new AvroSchema(row, references, Map.of("refer.Level", level), null);
        int id = client.register("refer-value", schema);
        GenericRecord high = new GenericData.Record(schema.rawSchema());
        high.put("level", new GenericData.EnumSymbol(schema.rawSchema().getField("level").schema(), "HIGH"));
        Map<String, Object> by = Map.of("schema.registry.url", url, "auto.register.schemas", false, "use.latest.version", true, "latest.compatibility.strict", false);
        byte[] bytes = new KafkaAvroSerializer(client, by).serialize("refer", high);
        same(ByteBuffer.wrap(bytes, 1, 4).getInt(), id);
        // By one that knows nothing yet.
        same(new KafkaAvroDeserializer(client(url), Map.of("schema.registry.url", url)).deserialize("refer", bytes).toString(), high.toString());

        ProtobufSchema part = new ProtobufSchema("syntax = \"proto3\"; package refer; message Part { string name = 1; }");
        ProtobufSchema whole = new ProtobufSchema("syntax = \"proto3\"; package refer; import \"refer/part.proto\"; message Whole { Part part = 1; }",
            List.of(new SchemaReference("refer/part.proto", "refer/part.proto", 1)), Map.of("refer/part.proto", part.canonicalString()), null, null);
        Descriptor type = whole.toDescriptor();
        FieldDescriptor inner = type.findFieldByName("part");
        DynamicMessage named = DynamicMessage.newBuilder(inner.getMessageType()).setField(inner.getMessageType().findFieldByName("name"), "ü").build();
        DynamicMessage message = DynamicMessage.newBuilder(type).setField(inner, named).build();
        // It registers what the file imports, under the paths of its imports.
        byte[] written = new KafkaProtobufSerializer<DynamicMessage>(client, Map.of("schema.registry.url", url)).serialize("whole", message);
        same(client.getLatestSchemaMetadata("whole-value").getReferences().get(0).getSubject(), "refer/part.proto");
        DynamicMessage read = new KafkaProtobufDeserializer<DynamicMessage>(client(url), Map.of("schema.registry.url", url)).deserialize("whole", written);
        same(read.toString(), message.toString());
        System.out.println("they come back");
    }

    static void write(String url, String brokers, String topic, int rows) {
        Properties p = new Properties();
        p.putAll(Map.of("bootstrap.servers", brokers, "acks", "all", "schema.registry.url", url,
            "key.serializer", KafkaAvroSerializer.class.getName(), "value.serializer", KafkaAvroSerializer.class.getName()));
        Schema envelope = schema(ENVELOPE), key = schema(KEY), row = envelope.getField("after").schema().getTypes().get(1);
        Schema source = envelope.getField("source").schema();
        try (KafkaProducer<Object, Object> producer = new KafkaProducer<>(p)) {
            for (long id = 1; id <= rows; id++) {
                GenericData.Record after = new GenericData.Record(row), told = new GenericData.Record(envelope), from = new GenericData.Record(source);
                after.put("id", id);
                after.put("name", id % 3 == 0 ? null : "ü" + id);
                after.put("price", id % 5 == 0 ? null : ByteBuffer.wrap(java.math.BigInteger.valueOf(-id * 101).toByteArray()));
                from.put("schema", "public");
                from.put("table", "things");
                from.put("lsn", id);
                told.put("after", after);
                told.put("op", "c");
                told.put("source", from);
                GenericData.Record k = new GenericData.Record(key);
                k.put("id", id);
                producer.send(new ProducerRecord<>(topic, k, told));
            }
        }
    }

    static void read(String url, String brokers, String topic) {
        Properties p = new Properties();
        p.putAll(Map.of("bootstrap.servers", brokers, "isolation.level", "read_committed", "auto.offset.reset", "none"));
        KafkaAvroDeserializer keys = new KafkaAvroDeserializer(), values = new KafkaAvroDeserializer();
        keys.configure(Map.of("schema.registry.url", url), true);
        values.configure(Map.of("schema.registry.url", url), false);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(of -> all.add(new TopicPartition(topic, of.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    out.println(keys.deserialize(topic, r.key()) + "\t" + values.deserialize(topic, r.value()));
                }
            }
        }
        out.flush();
    }
}
