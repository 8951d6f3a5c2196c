import com.fasterxml.jackson.databind.ObjectMapper;
import io.confluent.connect.avro.AvroConverter;
import io.confluent.connect.protobuf.ProtobufConverter;
import io.confluent.kafka.schemaregistry.avro.AvroSchemaProvider;
import io.confluent.kafka.schemaregistry.client.MockSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchemaProvider;
import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

/**
 * Debezium's ExtractNewRecordState on messages of anybody: `Unwrap [schemas | avro | protobuf] [PROPERTY=VALUE]…` reads lines of topic, key and value with tabs
 * between (JSON with schemas, `null` for none) and writes a line for each: `null` where it drops the message, else topic, key, value and headers
 * as Connect writes them: key and value by its JsonConverter, with schemas if they are asked for (a value without bytes is empty), headers by its
 * SimpleHeaderConverter. By Confluent's AvroConverter or ProtobufConverter a value is written in hex, and behind the headers stands its schema.
 */
public class Unwrap {
    public static void main(String[] words) throws Exception {
        JsonConverter keys = converter(true, true), values = converter(true, false);
        List<String> given = new ArrayList<>(List.of(words));
        boolean hasSchemas = given.remove("schemas");
        JsonConverter toldKeys = converter(hasSchemas, true);
        Converter registered = given.remove("avro") ? new AvroConverter(REGISTRY) : given.remove("protobuf") ? new ProtobufConverter(REGISTRY) : null;
        Converter told = registered == null ? converter(hasSchemas, false) : registered;
        if (registered != null) {
            registered.configure(Map.of("schema.registry.url", "http://none", "optional.for.nullables", "true"), false);
        }
        Map<String, String> properties = new HashMap<>();
        for (String word : given) {
            properties.put(word.split("=", 2)[0], word.split("=", 2)[1]);
        }
        ExtractNewRecordState<SourceRecord> unwrap = new ExtractNewRecordState<>();
        unwrap.configure(properties);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", 3);
            String topic = parts[0];
            SchemaAndValue key = keys.toConnectData(topic, bytes(parts[1])), value = values.toConnectData(topic, bytes(parts[2]));
            SourceRecord record = new SourceRecord(Map.of(), Map.of(), topic, key.schema(), key.value(), value.schema(), value.value());
            SourceRecord alone = unwrap.apply(record);
            if (alone == null) {
                out.println("null");
                continue;
            }
            byte[] bytes;
            try {
                bytes = told.fromConnectData(alone.topic(), alone.valueSchema(), alone.value());
            } catch (RuntimeException e) {
                // A converter that can't.
                out.println("error\t" + e.toString().replace('\n', ' '));
                continue;
            }
            out.println(alone.topic() + "\t" + text(toldKeys.fromConnectData(topic, alone.keySchema(), alone.key())) + "\t"
                + (bytes == null ? "" : registered == null ? text(bytes) : HexFormat.of().formatHex(bytes)) + "\t" + headers(alone)
                + (registered == null || bytes == null ? "" : "\t" + schema(bytes)));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    static final MockSchemaRegistryClient REGISTRY = new MockSchemaRegistryClient(List.of(new AvroSchemaProvider(), new ProtobufSchemaProvider()));

    /** By its number, which a value begins with. */
    static String schema(byte[] bytes) throws Exception {
        int id = ByteBuffer.wrap(bytes, 1, 4).getInt();
        return new ObjectMapper().writeValueAsString(REGISTRY.getSchemaById(id).canonicalString());
    }

    static String headers(SourceRecord record) throws Exception {
        SimpleHeaderConverter converter = new SimpleHeaderConverter();
        Map<String, String> headers = new LinkedHashMap<>();
        for (Header h : record.headers()) {
            byte[] bytes = converter.fromConnectHeader(record.topic(), h.key(), h.schema(), h.value());
            headers.put(h.key(), bytes == null ? null : text(bytes));
        }
        return new ObjectMapper().writeValueAsString(headers);
    }

    static JsonConverter converter(boolean hasSchemas, boolean isKey) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", Boolean.toString(hasSchemas)), isKey);
        return converter;
    }

    static byte[] bytes(String text) {
        return text.equals("null") ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, StandardCharsets.UTF_8);
    }
}
