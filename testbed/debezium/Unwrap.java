import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

/**
 * Debezium's ExtractNewRecordState on messages of anybody: `Unwrap [schemas] [PROPERTY=VALUE]…` reads lines of topic, key and value with tabs
 * between (JSON with schemas, `null` for none) and writes a line for each: `null` where it drops the message, else topic, key, value and headers
 * as Connect writes them: key and value by its JsonConverter, with schemas if they are asked for (a value without bytes is empty), headers by its
 * SimpleHeaderConverter.
 */
public class Unwrap {
    public static void main(String[] words) throws Exception {
        JsonConverter keys = converter(true, true), values = converter(true, false);
        List<String> given = new ArrayList<>(List.of(words));
        boolean hasSchemas = given.remove("schemas");
        JsonConverter toldKeys = converter(hasSchemas, true), told = converter(hasSchemas, false);
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
            byte[] bytes = told.fromConnectData(alone.topic(), alone.valueSchema(), alone.value());
            out.println(alone.topic() + "\t" + text(toldKeys.fromConnectData(topic, alone.keySchema(), alone.key())) + "\t"
                + (bytes == null ? "" : text(bytes)) + "\t" + headers(alone));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
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
