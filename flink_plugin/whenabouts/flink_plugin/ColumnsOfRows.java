import java.io.ByteArrayOutputStream;
import org.apache.flink.core.memory.ByteArrayInputStreamWithPos;
import org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.arrow.serializers.ArrowSerializer;
import org.apache.flink.table.types.logical.RowType;

/**
 * Gathers rows into streams of Arrow, until there are so many, or the first has waited for so long. Nothing waits at a
 * checkpoint or at the end of the input. A watermark waits with the rows that came before it.
 *
 * Flink compiles this text where the job runs, with Janino: no lambdas. row_streams.py says what it is for.
 */
public final class ColumnsOfRows extends AbstractStreamOperator<byte[]>
        implements OneInputStreamOperator<RowData, byte[]>, BoundedOneInput, ProcessingTimeCallback {

    private final RowType type;
    private final int most;
    private final long waitMs;
    private final RowData.FieldGetter[] getters;
    private final boolean[] finer;
    private final GenericRowData cut;
    private ByteArrayOutputStream bytes;
    private ArrowSerializer rows;
    private int gathered = 0;
    private long firstMs = 0;
    private boolean clocked = false;
    private boolean stamped = false;
    private long stamp = 0;
    private Watermark waiting = null;

    /**
     * Flink's order of arguments; references: the type of the rows, their greatest number, their longest wait; and if
     * times are finer than that type has them, for each column what reads it, and whether it is such a time.
     */
    public ColumnsOfRows(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.type = (RowType) references[0];
        this.most = ((Number) references[1]).intValue();
        this.waitMs = ((Number) references[2]).longValue();
        int columns = (references.length - 3) / 2;
        this.getters = new RowData.FieldGetter[columns];
        this.finer = new boolean[columns];
        for (int i = 0; i < columns; i++) {
            getters[i] = (RowData.FieldGetter) references[3 + 2 * i];
            finer[i] = ((Boolean) references[4 + 2 * i]).booleanValue();
        }
        this.cut = new GenericRowData(type.getFieldCount());
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void open() throws Exception {
        super.open();
        bytes = new ByteArrayOutputStream();
        rows = new ArrowSerializer(type, type);
        rows.open(new ByteArrayInputStreamWithPos(), bytes);
    }

    @Override
    public void processElement(StreamRecord<RowData> element) throws Exception {
        if (gathered == 0) {
            stamped = element.hasTimestamp();
            stamp = stamped ? element.getTimestamp() : 0;
            firstMs = getProcessingTimeService().getCurrentProcessingTime();
            if (!clocked) {
                clocked = true;
                getProcessingTimeService().registerTimer(firstMs + waitMs, this);
            }
        }
        rows.write(finer.length == 0 ? (RowData) element.getValue() : withCuts((RowData) element.getValue()));
        gathered++;
        if (gathered >= most) {
            give();
        }
    }

    @Override
    public void onProcessingTime(long time) throws Exception {
        clocked = false;
        if (gathered > 0 && firstMs + waitMs > time) {
            clocked = true;
            getProcessingTimeService().registerTimer(firstMs + waitMs, this);
        } else {
            give();
        }
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        if (gathered == 0) {
            super.processWatermark(mark);
            return;
        }
        waiting = mark;
        if (mark.getTimestamp() == Long.MAX_VALUE) {
            give();
        }
    }

    @Override
    public void processWatermarkStatus(WatermarkStatus status) throws Exception {
        give();
        super.processWatermarkStatus(status);
    }

    @Override
    public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
        give();
    }

    @Override
    public void endInput() throws Exception {
        give();
    }

    @Override
    public void close() throws Exception {
        if (rows != null) {
            rows.close();
        }
        super.close();
    }

    /** The row, and after it for each of the finer times, whether it has digits beyond microseconds. */
    private RowData withCuts(RowData row) {
        int place = finer.length;
        for (int i = 0; i < finer.length; i++) {
            Object value = getters[i].getFieldOrNull(row);
            cut.setField(i, value);
            if (finer[i]) {
                boolean lost = value != null && ((TimestampData) value).getNanoOfMillisecond() % 1000 != 0;
                cut.setField(place++, Boolean.valueOf(lost));
            }
        }
        return cut;
    }

    private void give() throws Exception {
        if (gathered > 0) {
            rows.finishCurrentBatch();
            byte[] stream = bytes.toByteArray();
            bytes.reset();
            rows.resetWriter();
            gathered = 0;
            output.collect(stamped ? new StreamRecord(stream, stamp) : new StreamRecord(stream));
        }
        if (waiting != null) {
            Watermark mark = waiting;
            waiting = null;
            super.processWatermark(mark);
        }
    }
}
