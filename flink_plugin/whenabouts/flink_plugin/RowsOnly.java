import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** Passes rows on, and ends the job at the first one that updates or deletes another. changelogs.py says why. */
public final class RowsOnly extends AbstractStreamOperator<Object> implements OneInputStreamOperator<Object, Object> {

    private final Object[] references;

    /** Flink's order of arguments; references: the message of the error. */
    public RowsOnly(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.references = references;
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void processElement(StreamRecord<Object> element) throws Exception {
        Object value = element.getValue();
        if (value instanceof Row && ((Row) value).getKind() != RowKind.INSERT) {
            throw new RuntimeException((String) references[0]);
        }
        output.collect(element);
    }
}
