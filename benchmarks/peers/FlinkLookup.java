import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;

/**
 * Flink's lookup join with a partial cache as a process that answers requests, one JSON a line.
 *
 * The first says where the table is. One job runs from then on, since the cache lives as long as its
 * job. Each other request names files of records (an int64 key and a float64 each); every source
 * takes its share of each file, and the answer comes when the sink has seen all of them.
 */
public final class FlinkLookup {
    private static final int RECORD = 16;
    private static final LongAdder SEEN = new LongAdder();
    private static final LongAdder MATCHED = new LongAdder();
    private static BlockingQueue<byte[]>[] work;

    public static void main(String[] words) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        answers.println("{\"flink\": \"ready\"}");
        answers.flush();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = requests.readLine()) != null; ) {
            Map<String, Object> answer = answer(new ObjectMapper().readTree(line));
            answers.println(new ObjectMapper().writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(JsonNode request) throws Exception {
        if (request.has("url")) {
            start(request);
            return Map.of();
        }
        long seen = SEEN.sum(), matched = MATCHED.sum(), start = System.nanoTime(), records = 0;
        for (JsonNode file : request.get("files")) {
            byte[] all = Files.readAllBytes(Path.of(file.asText()));
            records += all.length / RECORD;
            for (BlockingQueue<byte[]> queue : work) {
                queue.put(all);
            }
        }
        while (SEEN.sum() - seen < records) {
            Thread.sleep(1);
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("wall_s", (System.nanoTime() - start) / 1e9);
        found.put("rows_in", records);
        found.put("rows_out", MATCHED.sum() - matched);
        return found;
    }

    @SuppressWarnings("unchecked")
    private static void start(JsonNode given) {
        int cores = given.get("cores").asInt();
        work = new BlockingQueue[cores];
        for (int core = 0; core < cores; core++) {
            work[core] = new LinkedBlockingQueue<>();
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(cores);
        env.getConfig().enableObjectReuse();
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        DataType kind =
                DataTypes.ROW(
                                DataTypes.FIELD("key", DataTypes.BIGINT()),
                                DataTypes.FIELD("speed", DataTypes.DOUBLE()))
                        .bridgedTo(RowData.class);
        DataStream<RowData> records =
                env.addSource(new Records(), InternalTypeInfo.of(kind.getLogicalType()));
        Schema schema =
                Schema.newBuilder()
                        .column("key", DataTypes.BIGINT())
                        .column("speed", DataTypes.DOUBLE())
                        .columnByExpression("proc", "PROCTIME()")
                        .build();
        tables.createTemporaryView("records", records, schema);
        tables.executeSql(
                String.format(
                        "CREATE TABLE items (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
                                + " WITH ('connector' = 'jdbc', 'url' = '%s',"
                                + " 'username' = '%s', 'password' = '%s', 'table-name' = 'items',"
                                + " 'lookup.cache' = 'PARTIAL',"
                                + " 'lookup.partial-cache.max-rows' = '%d')",
                        given.get("url").asText(),
                        given.get("user").asText(),
                        given.get("password").asText(),
                        given.get("rows").asLong()));
        Table joined =
                tables.sqlQuery(
                        "SELECT r.key, r.speed, i.name FROM records AS r"
                                + " LEFT JOIN items FOR SYSTEM_TIME AS OF r.proc AS i"
                                + " ON r.key = i.id");
        DataType out =
                joined.getResolvedSchema().toPhysicalRowDataType().bridgedTo(RowData.class);
        DataStream<RowData> found = tables.toDataStream(joined, out);
        found.addSink(new Counted());
        new Thread(() -> run(env)).start();
    }

    private static void run(StreamExecutionEnvironment env) {
        try {
            env.execute("lookup");
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the caller sees the end of the answers
        }
    }

    /** This source's share of the records of each file that is asked for. */
    private static final class Records extends RichParallelSourceFunction<RowData> {
        private volatile boolean running = true;

        @Override
        public void run(SourceContext<RowData> out) throws Exception {
            int me = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            int all = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            while (running) {
                ByteBuffer file = ByteBuffer.wrap(work[me].take()).order(ByteOrder.LITTLE_ENDIAN);
                int records = file.capacity() / RECORD;
                for (int place = me; place < records; place += all) {
                    long key = file.getLong(place * RECORD);
                    out.collect(GenericRowData.of(key, file.getDouble(place * RECORD + 8)));
                }
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    /** Counts what arrives, and what of it brings a name. */
    private static final class Counted implements SinkFunction<RowData> {
        @Override
        public void invoke(RowData row, Context context) {
            if (!row.isNullAt(2)) {
                MATCHED.increment();
            }
            SEEN.increment();
        }
    }
}
