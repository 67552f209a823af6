import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
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
import org.apache.flink.table.data.conversion.DataStructureConverter;
import org.apache.flink.table.runtime.arrow.serializers.ArrowSerializer;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * The rows of streams of Arrow, in the form of Flink's own operators or in that of the DataStream API. Times are
 * microseconds since 1970 in Arrow: Flink's own reader takes a remainder of them, which is negative before 1970.
 *
 * Flink compiles this text where the job runs, with Janino: no lambdas. rows_of_columns.py says what it is for.
 */
public final class RowsOfColumns extends AbstractStreamOperator<Object>
        implements OneInputStreamOperator<byte[], Object> {

    private static final int TIME = 1;
    private static final int DECIMAL = 2;
    private static final int KIND = 3;

    private final RowType type;
    private final DataStructureConverter converter;
    private final RowData.FieldGetter[] getters;
    private final int[] meanings;
    private final int width;
    private ByteArrayInputStreamWithPos bytes;
    private ArrowSerializer rows;

    /** Flink's order of arguments; references: the type of the rows as Arrow has them; Flink's converter to the form of
        the DataStream API, or null; then, for each field, what gets it (Janino cannot call a static method of an
        interface), and what it means: a time, the text of a decimal, the kind of the row (the last field, if any has
        it), or 0 for a value that is what it is. */
    public RowsOfColumns(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.type = (RowType) references[0];
        this.converter = (DataStructureConverter) references[1];
        this.getters = new RowData.FieldGetter[references.length / 2 - 1];
        this.meanings = new int[getters.length];
        for (int place = 0; place < meanings.length; place++) {
            getters[place] = (RowData.FieldGetter) references[2 * place + 2];
            meanings[place] = ((Number) references[2 * place + 3]).intValue();
        }
        boolean kinds = meanings.length > 0 && meanings[meanings.length - 1] == KIND;
        this.width = kinds ? meanings.length - 1 : meanings.length;
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void open() throws Exception {
        super.open();
        bytes = new ByteArrayInputStreamWithPos();
        rows = new ArrowSerializer(type, type);
        rows.open(bytes, new ByteArrayOutputStream());
        if (converter != null) {
            converter.open(getUserCodeClassloader());
        }
    }

    @Override
    public void processElement(StreamRecord<byte[]> element) throws Exception {
        byte[] stream = (byte[]) element.getValue();
        StreamRecord record = (StreamRecord) element;
        bytes.setBuffer(stream, 0, stream.length);
        int found = rows.load();
        for (int number = 0; number < found; number++) {
            GenericRowData row = copied(rows.read(number));
            output.collect(record.replace(converter == null ? row : external(row)));
        }
        rows.resetReader();
    }

    private GenericRowData copied(RowData row) {
        GenericRowData made = new GenericRowData(width);
        for (int place = 0; place < meanings.length; place++) {
            Object value = getters[place].getFieldOrNull(row);
            if (meanings[place] == KIND) {
                made.setRowKind(RowKind.fromByteValue(((Byte) value).byteValue()));
            } else {
                made.setField(place, meanings[place] == TIME && value != null ? time(((Long) value).longValue()) : value);
            }
        }
        return made;
    }

    private Object external(GenericRowData made) {
        Row row = (Row) converter.toExternal(made);
        for (int place = 0; place < width; place++) {
            Object value = row.getField(place);
            if (meanings[place] == DECIMAL && value != null) {
                row.setField(place, new BigDecimal((String) value));
            }
        }
        return row;
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
