import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.api.java.tuple.Tuple8;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.util.Collector;

/**
 * Flink's interval join of a stream of taxis with itself, on the cells of a grid, as a process that
 * answers requests, one JSON a line; each is one job over one file.
 *
 * The left side goes to its cell, the right one to all cells that a box around it meets; distance is
 * looked at when time and cell agree. Both sides read one file in the order of time, so that nothing
 * is late. State is on the heap, Flink's fastest.
 */
public final class FlinkInterval {
    private static final int RECORD = 32;
    private static final double RADIUS = 6_371_008.7714;
    private static final LongAdder PAIRS = new LongAdder();

    /** The cell, the taxi, its time in milliseconds, longitude and latitude. */
    private static final TypeInformation<Tuple5<Long, Long, Long, Double, Double>> TAXI =
            Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.DOUBLE, Types.DOUBLE);

    private static final TypeInformation<Tuple8<Long, Long, Double, Double, Long, Long, Double, Double>>
            PAIR =
                    Types.TUPLE(
                            Types.LONG, Types.LONG, Types.DOUBLE, Types.DOUBLE,
                            Types.LONG, Types.LONG, Types.DOUBLE, Types.DOUBLE);

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
        long pairs = PAIRS.sum(), start = System.nanoTime();
        String file = request.get("file").asText();
        double meters = request.get("meters").asDouble();
        double cells = request.get("cells").asDouble();
        Duration reach = Duration.ofSeconds(request.get("seconds").asLong());
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(request.get("cores").asInt());
        env.getConfig().enableObjectReuse();
        DataStream<Tuple5<Long, Long, Long, Double, Double>> left =
                env.addSource(new Taxis(file, meters, cells, false), "left", TAXI);
        DataStream<Tuple5<Long, Long, Long, Double, Double>> right =
                env.addSource(new Taxis(file, meters, cells, true), "right", TAXI);
        left.keyBy(taxi -> taxi.f0, Types.LONG)
                .intervalJoin(right.keyBy(taxi -> taxi.f0, Types.LONG))
                .between(reach.negated(), reach)
                .process(new Near(meters), PAIR)
                .addSink(new Counted());
        env.execute("interval");
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("wall_s", (System.nanoTime() - start) / 1e9);
        found.put("rows_in", 2 * Files.size(Path.of(file)) / RECORD); // as Spark counts: both sides
        found.put("rows_out", PAIRS.sum() - pairs);
        return found;
    }

    /** The records of a file in their order; on the right side once for each cell they reach. */
    private static final class Taxis
            implements SourceFunction<Tuple5<Long, Long, Long, Double, Double>> {
        private final String file;
        private final double meters;
        private final double cells;
        private final boolean reaching;
        private volatile boolean running = true;

        Taxis(String file, double meters, double cells, boolean reaching) {
            this.file = file;
            this.meters = meters;
            this.cells = cells;
            this.reaching = reaching;
        }

        @Override
        public void run(SourceContext<Tuple5<Long, Long, Long, Double, Double>> out)
                throws Exception {
            double high = Math.toDegrees(meters / RADIUS) * (1 + 1e-9);
            double side = Math.toDegrees(meters / RADIUS) * cells;
            ByteBuffer records =
                    ByteBuffer.wrap(Files.readAllBytes(Path.of(file)))
                            .order(ByteOrder.LITTLE_ENDIAN);
            long newest = Long.MIN_VALUE;
            while (running && records.hasRemaining()) {
                long taxi = records.getLong(), time = records.getLong();
                double lon = records.getDouble(), lat = records.getDouble();
                double wide = high / Math.cos(Math.toRadians(Math.abs(lat) + high));
                if (time > newest) {
                    newest = time;
                    out.emitWatermark(new Watermark(time - 1));
                }
                double up = reaching ? high : 0, along = reaching ? wide : 0;
                for (long row = cell(lat - up, side); row <= cell(lat + up, side); row++) {
                    for (long column = cell(lon - along, side);
                            column <= cell(lon + along, side);
                            column++) {
                        long key = (row << 32) ^ (column & 0xffffffffL);
                        out.collectWithTimestamp(Tuple5.of(key, taxi, time, lon, lat), time);
                    }
                }
            }
        }

        private static long cell(double degrees, double side) {
            return (long) Math.floor(degrees / side);
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    /** Pairs whose places are near enough. */
    private static final class Near
            extends ProcessJoinFunction<
                    Tuple5<Long, Long, Long, Double, Double>,
                    Tuple5<Long, Long, Long, Double, Double>,
                    Tuple8<Long, Long, Double, Double, Long, Long, Double, Double>> {
        private final double meters;

        Near(double meters) {
            this.meters = meters;
        }

        @Override
        public void processElement(
                Tuple5<Long, Long, Long, Double, Double> one,
                Tuple5<Long, Long, Long, Double, Double> other,
                Context context,
                Collector<Tuple8<Long, Long, Double, Double, Long, Long, Double, Double>> out) {
            double up = Math.sin(Math.toRadians(other.f4 - one.f4) / 2);
            double along = Math.sin(Math.toRadians(other.f3 - one.f3) / 2);
            double shrink = Math.cos(Math.toRadians(one.f4)) * Math.cos(Math.toRadians(other.f4));
            double half = up * up + shrink * along * along;
            if (2 * RADIUS * Math.asin(Math.sqrt(half)) <= meters) {
                out.collect(
                        Tuple8.of(
                                one.f1, one.f2, one.f3, one.f4,
                                other.f1, other.f2, other.f3, other.f4));
            }
        }
    }

    private static final class Counted
            implements SinkFunction<
                    Tuple8<Long, Long, Double, Double, Long, Long, Double, Double>> {
        @Override
        public void invoke(
                Tuple8<Long, Long, Double, Double, Long, Long, Double, Double> pair,
                Context context) {
            PAIRS.increment();
        }
    }
}
