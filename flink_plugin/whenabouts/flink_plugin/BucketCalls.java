import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.runtime.jobgraph.JobType;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;

/**
 * Calls every bucket of a subtask when it starts, before anything else reaches it: rows, watermarks, the end of the
 * input. Where nothing comes, the clock does it. Everything else passes as it is.
 *
 * Flink compiles this text where the job runs, with Janino: no lambdas. bucket_calls.py says what it is for.
 */
public final class BucketCalls extends AbstractStreamOperator<Row>
        implements OneInputStreamOperator<Row, Row>, ProcessingTimeCallback {

    private final Object[] references;
    private boolean called = false;

    /** Flink's order of arguments; references: the kind of a call, the error of a job that is a batch, then the key of
        each bucket. */
    public BucketCalls(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.references = references;
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void open() throws Exception {
        super.open();
        if (getContainingTask().getEnvironment().getJobType() == JobType.BATCH) {
            throw new RuntimeException((String) references[1]);
        }
        getProcessingTimeService().registerTimer(getProcessingTimeService().getCurrentProcessingTime(), this);
    }

    @Override
    public void onProcessingTime(long time) throws Exception {
        callOnce();
    }

    @Override
    public void processElement(StreamRecord<Row> element) throws Exception {
        callOnce();
        output.collect(element);
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        callOnce();
        super.processWatermark(mark);
    }

    private void callOnce() throws Exception {
        if (called) {
            return;
        }
        called = true;
        TaskInfo task = getRuntimeContext().getTaskInfo();
        int groups = task.getMaxNumberOfParallelSubtasks();
        int subtasks = task.getNumberOfParallelSubtasks();
        for (int place = 2; place < references.length; place++) {
            Row key = Row.of(new Object[] {references[place]});
            if (KeyGroupRangeAssignment.assignKeyToParallelOperator(key, groups, subtasks)
                    == task.getIndexOfThisSubtask()) {
                Object call = Tuple3.of(references[0], Long.valueOf(0L), new byte[0]);
                output.collect(new StreamRecord(Row.of(new Object[] {references[place], call})));
            }
        }
    }
}
