import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink's SQL with its own format debezium-json: `FlinkTable BROKERS TOPIC SCHEMA_INCLUDE IGNORE_PARSE_ERRORS COLUMNS` reads a topic to its end as a table
 * in a cluster inside of this process, and prints the rows that are left, fields with tabs between; the last line is what Flink itself counts.
 */
public class FlinkTable {
    public static void main(String[] words) throws Exception {
        TableEnvironment env = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().build());
        env.getConfig().set("parallelism.default", "1");
        // A row that is read may have been told before: the last word of a key counts.
        env.getConfig().set("table.exec.source.cdc-events-duplicate", "true");
        env.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        env.executeSql("CREATE TABLE t (" + words[4] + ") WITH ('connector' = 'kafka', 'topic' = '" + words[1] + "',"
            + "'properties.bootstrap.servers' = '" + words[0] + "', 'properties.isolation.level' = 'read_committed',"
            + "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'debezium-json',"
            + "'debezium-json.schema-include' = '" + words[2] + "', 'debezium-json.ignore-parse-errors' = '" + words[3] + "', 'debezium-json.timestamp-format.standard' = 'ISO-8601')");
        Map<String, Integer> rows = new LinkedHashMap<>();
        try (CloseableIterator<Row> changes = env.executeSql("SELECT * FROM t").collect()) {
            while (changes.hasNext()) {
                Row row = changes.next();
                boolean goes = row.getKind() == RowKind.DELETE || row.getKind() == RowKind.UPDATE_BEFORE;
                String text = told(row);
                int count = rows.merge(text, goes ? -1 : 1, Integer::sum);
                if (count == 0) {
                    rows.remove(text);
                }
            }
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        rows.forEach((row, count) -> {
            if (count != 1) {
                throw new IllegalStateException("a row is there " + count + " times: " + row);
            }
            out.println(row);
        });
        String last = null;
        try (CloseableIterator<Row> counts = env.executeSql("SELECT COUNT(*), SUM(id) FROM t").collect()) {
            while (counts.hasNext()) {
                Row row = counts.next();
                last = row.getField(0) + "\t" + row.getField(1);
            }
        }
        out.println("counted\t" + last);
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    static String told(Row row) {
        return java.util.stream.IntStream.range(0, row.getArity()).mapToObj(i -> told(row.getField(i))).collect(Collectors.joining("\t"));
    }

    static String told(Object value) {
        if (value == null) {
            return "\\N";
        } else if (value instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        } else if (value instanceof Object[] many) {
            return Arrays.stream(many).map(FlinkTable::told).collect(Collectors.joining(",", "{", "}"));
        } else if (value instanceof java.math.BigDecimal number) {
            return number.toPlainString();
        }
        return value.toString().replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n");
    }
}
