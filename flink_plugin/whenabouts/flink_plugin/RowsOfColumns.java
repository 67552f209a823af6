import java.io.ByteArrayOutputStream;
import org.apache.flink.core.memory.ByteArrayInputStreamWithPos;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.arrow.serializers.ArrowSerializer;
import org.apache.flink.table.types.logical.RowType;

/**
 * The rows of streams of Arrow. Times are microseconds since 1970 in Arrow: Flink's own reader takes a remainder of
 * them, which is negative before 1970.
 *
 * Flink compiles this text where the job runs, with Janino: no lambdas. table_rows.py says what it is for.
 */
public final class RowsOfColumns extends AbstractStreamOperator<RowData>
        implements OneInputStreamOperator<byte[], RowData> {

    private final RowType type;
    private final RowData.FieldGetter[] getters;
    private final boolean[] times;
    private ByteArrayInputStreamWithPos bytes;
    private ArrowSerializer rows;

    /** Flink's order of arguments; references: the type of the rows as Arrow has them, then, for each of their fields,
        what gets it (Janino cannot call a static method of an interface), and whether it is a time. */
    public RowsOfColumns(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.type = (RowType) references[0];
        this.getters = new RowData.FieldGetter[references.length / 2];
        this.times = new boolean[references.length / 2];
        for (int place = 0; place < times.length; place++) {
            getters[place] = (RowData.FieldGetter) references[2 * place + 1];
            times[place] = ((Boolean) references[2 * place + 2]).booleanValue();
        }
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void open() throws Exception {
        super.open();
        bytes = new ByteArrayInputStreamWithPos();
        rows = new ArrowSerializer(type, type);
        rows.open(bytes, new ByteArrayOutputStream());
    }

    @Override
    public void processElement(StreamRecord<byte[]> element) throws Exception {
        byte[] stream = (byte[]) element.getValue();
        bytes.setBuffer(stream, 0, stream.length);
        int found = rows.load();
        for (int number = 0; number < found; number++) {
            output.collect(element.replace(copied(rows.read(number))));
        }
        rows.resetReader();
    }

    private GenericRowData copied(RowData row) {
        GenericRowData made = new GenericRowData(times.length);
        for (int place = 0; place < times.length; place++) {
            Object value = getters[place].getFieldOrNull(row);
            made.setField(place, times[place] && value != null ? time(((Long) value).longValue()) : value);
        }
        return made;
    }

    private static Object time(long us) {
        return TimestampData.fromEpochMillis(Math.floorDiv(us, 1000L), (int) Math.floorMod(us, 1000L) * 1000);
    }

    @Override
    public void close() throws Exception {
        if (rows != null) {
            rows.close();
        }
        super.close();
    }
}
