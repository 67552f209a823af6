import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Collections;
import java.util.Iterator;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;

/**
 * Passes splits on, and keeps in checkpoints which list they are of: how many there are, and a hash of them. A job that
 * continues with another list ends; further splits at its end are no other list.
 */
public final class SplitList extends AbstractStreamOperator<Object> implements OneInputStreamOperator<Object, Object> {

    private final Object[] references;
    private ListState list;
    private String known;

    /** Flink's order of arguments; references: the message of the error, then what tells each split from others. */
    public SplitList(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock)
            throws Exception {
        this.references = references;
        setup(task, config, output);
        setProcessingTimeService(clock);
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        list = context.getOperatorStateStore()
                .getListState(new ListStateDescriptor("splits", StringSerializer.INSTANCE));
        known = described(references.length - 1);
        Iterator stored = ((Iterable) list.get()).iterator();
        if (stored.hasNext()) {
            String before = (String) stored.next();
            int count = Integer.parseInt(before.substring(0, before.indexOf(' ')));
            if (count >= references.length || !before.equals(described(count))) {
                throw new RuntimeException((String) references[0]);
            }
            known = before; // the source reads up to the end of the list that it began with
        }
    }

    @Override
    public void snapshotState(StateSnapshotContext context) throws Exception {
        super.snapshotState(context);
        list.update(Collections.singletonList(known));
    }

    @Override
    public void processElement(StreamRecord<Object> element) throws Exception {
        output.collect(element);
    }

    private String described(int count) throws Exception {
        MessageDigest hash = MessageDigest.getInstance("SHA-256");
        for (int place = 1; place <= count; place++) {
            hash.update(((String) references[place]).getBytes(StandardCharsets.UTF_8));
            hash.update((byte) 0);
        }
        StringBuilder text = new StringBuilder(count + " ");
        byte[] bytes = hash.digest();
        for (int at = 0; at < bytes.length; at++) {
            text.append(String.format("%02x", new Object[] {Byte.valueOf(bytes[at])}));
        }
        return text.toString();
    }
}
