import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's ExtractNewRecordState on messages of anybody: `Unwrap TOPIC [PROPERTY=VALUE]…` reads lines of key, tab and value (JSON with
 * schemas, `null` for none) and writes a line for each: `null` where it drops the message, else key, tab, value, tab and headers, without
 * schemas.
 */
public class Unwrap {
    public static void main(String[] words) throws Exception {
        JsonConverter keys = converter(true, true), values = converter(true, false);
        JsonConverter plainKeys = converter(false, true), plain = converter(false, false);
        Map<String, String> properties = new java.util.HashMap<>();
        for (int i = 1; i < words.length; i++) {
            properties.put(words[i].split("=", 2)[0], words[i].split("=", 2)[1]);
        }
        ExtractNewRecordState<SourceRecord> unwrap = new ExtractNewRecordState<>();
        unwrap.configure(properties);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String topic = words[0];
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", 2);
            SchemaAndValue key = keys.toConnectData(topic, bytes(parts[0])), value = values.toConnectData(topic, bytes(parts[1]));
            SourceRecord record = new SourceRecord(Map.of(), Map.of(), topic, key.schema(), key.value(), value.schema(), value.value());
            SourceRecord told = unwrap.apply(record);
            if (told == null) {
                out.println("null");
                continue;
            }
            StringBuilder headers = new StringBuilder("{");
            for (Header h : told.headers()) {
                headers.append(headers.length() > 1 ? "," : "").append('"').append(h.key()).append("\":")
                    .append(text(plain.fromConnectData(topic, h.schema(), h.value())));
            }
            out.println(text(plainKeys.fromConnectData(topic, told.keySchema(), told.key())) + "\t"
                + text(plain.fromConnectData(topic, told.valueSchema(), told.value())) + "\t" + headers + "}");
        }
        out.flush();
        Runtime.getRuntime().halt(0);
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
