import io.debezium.engine.DebeziumEngine;
import java.io.FileInputStream;
import java.lang.management.ManagementFactory;
import java.util.Properties;

/** What the programs around Debezium's embedded engine have in common. */
class Engine {
    /** A connector to be measured, of a database on this machine. */
    static Properties connector(String prefix, String port, String database, String slot, String publication) {
        Properties p = new Properties();
        p.put("name", "bench");
        p.put("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.put("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        p.put("offset.flush.interval.ms", "1000");
        p.put("topic.prefix", prefix);
        p.put("database.hostname", "127.0.0.1");
        p.put("database.port", port);
        p.put("database.user", "postgres");
        p.put("database.password", "unused");
        p.put("database.dbname", database);
        p.put("plugin.name", "pgoutput");
        p.put("slot.name", slot);
        p.put("publication.name", publication);
        p.put("publication.autocreate.mode", "disabled");
        p.put("snapshot.mode", "no_data");
        // What was found to be fastest.
        p.put("max.batch.size", "20480");
        p.put("max.queue.size", "81920");
        p.put("poll.interval.ms", System.getProperty("poll", "10"));
        p.put("converter.schemas.enable", "false");
        return p;
    }

    static Properties properties(String file) throws Exception {
        Properties p = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            p.load(in);
        }
        return p;
    }

    /** An engine that fails takes the process with it. */
    static final DebeziumEngine.CompletionCallback OR_HALT = (ok, message, error) -> {
        if (!ok) {
            System.err.println(message);
            if (error != null) error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    };

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
