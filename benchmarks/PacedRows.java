import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;

/**
 * Lets elements pass by the clock, in phases with a rate each. When a phase begins, the time is added to a property of
 * the JVM, and once more at the end of the input.
 *
 * Flink compiles this text with Janino: no lambdas. paced_rows.py says what it is for.
 */
public final class PacedRows extends AbstractStreamOperator<Object>
        implements OneInputStreamOperator<Object, Object>, BoundedOneInput {

    private final String property;
    private final long[] sizes;
    private final long[] rates;
    private final long tickMs;
    private int phase = -1;
    private long begun = 0;
    private long passed = 0;
    private long allowed = 0;
    private long left = 0;

    /** Flink's order of arguments; references: the property, the wait, then each phase's elements and rate (0: none). */
    public PacedRows(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.property = (String) references[0];
        this.tickMs = ((Number) references[1]).longValue();
        int phases = (references.length - 2) / 2;
        this.sizes = new long[phases];
        this.rates = new long[phases];
        for (int place = 0; place < phases; place++) {
            this.sizes[place] = ((Number) references[2 + 2 * place]).longValue();
            this.rates[place] = ((Number) references[3 + 2 * place]).longValue();
        }
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void processElement(StreamRecord<Object> element) throws Exception {
        while (left == 0) {
            phase++;
            tell();
            begun = System.nanoTime();
            passed = 0;
            left = sizes[phase];
            allowed = rates[phase] == 0 ? left : 0;
        }
        while (passed >= allowed) {
            Thread.sleep(tickMs);
            allowed = (System.nanoTime() - begun) / 1000 * rates[phase] / 1000000;
        }
        passed++;
        left--;
        output.collect(element);
    }

    @Override
    public void endInput() throws Exception {
        tell();
    }

    private void tell() {
        System.setProperty(property, System.getProperty(property, "") + System.currentTimeMillis() + " ");
    }
}
