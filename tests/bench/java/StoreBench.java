import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own store, without a broker around it, doing what tests/bench/store_process.py does with this project's.
 * Prints one JSON object a command; the commands and their numbers are described there.
 */
public final class StoreBench {
    private static final String TOPIC = "TopicBench";
    private static final SocketAddress BORN_HOST = new InetSocketAddress("127.0.0.1", 0);
    private static final SocketAddress STORE_HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static long nextKey;

    private StoreBench() {
    }

    public static void main(String[] args) {
        int status = 1;
        try {
            run(args);
            status = 0;
        } catch (Exception error) {
            error.printStackTrace();
        }
        // No shutdown: it sleeps, and every directory is thrown away. The store's threads would keep the process alive.
        Runtime.getRuntime().halt(status);
    }

    private static void run(String[] args) throws Exception {
        String directory = args[1];
        switch (args[0]) {
            case "open" -> open(directory);
            case "fill" -> fill(directory, Integer.parseInt(args[2]), Long.parseLong(args[3]));
            case "append" -> append(directory, Integer.parseInt(args[2]), Integer.parseInt(args[3]),
                Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static DefaultMessageStore makeStore(String directory) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + "/commitlog");
        config.setHaListenPort(0);
        return new DefaultMessageStore(config, new BrokerStatsManager("bench", false),
            (topic, queueId, logicOffset, tagsCode, storeTime, bitMap, properties) -> { }, new BrokerConfig());
    }

    private static void open(String directory) throws Exception {
        long startedMs = ManagementFactory.getRuntimeMXBean().getStartTime();
        double interpreterS = (System.currentTimeMillis() - startedMs) / 1e3;
        long began = System.nanoTime();
        double cpuBeganS = processCpuS();
        DefaultMessageStore store = makeStore(directory);
        load(store);
        store.start();
        print("interpreter_s", interpreterS, "started_s", (System.nanoTime() - began) / 1e9, "cpu_s", processCpuS() - cpuBeganS, "end_offset", store.getMaxPhyOffset());
    }

    private static void fill(String directory, int bodyBytes, long endOffset) throws Exception {
        DefaultMessageStore store = makeStore(directory);
        load(store);
        store.start();
        byte[] body = new byte[bodyBytes];
        long messages = 0;
        while (store.getMaxPhyOffset() < endOffset) {
            check(store.putMessage(message(body)));
            messages++;
        }
        waitUntilDispatched(store);
        print("messages", messages, "end_offset", store.getMaxPhyOffset());
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void append(String directory, int bodyBytes, int batch, int messages, int warmUp) throws Exception {
        DefaultMessageStore store = makeStore(directory);
        load(store);
        store.start();
        byte[] body = new byte[bodyBytes];
        put(store, body, batch, warmUp);
        waitUntilDispatched(store);
        long reput = threadNamed("ReputMessageService");
        double processS = processCpuS();
        double putS = threadCpuS(Thread.currentThread().getId());
        double reputS = threadCpuS(reput);
        put(store, body, batch, messages);
        putS = threadCpuS(Thread.currentThread().getId()) - putS;
        waitUntilDispatched(store);
        print("put_cpu_s", putS, "dispatch_cpu_s", threadCpuS(reput) - reputS, "cpu_s", processCpuS() - processS);
    }

    private static void put(DefaultMessageStore store, byte[] body, int batch, int messages) throws Exception {
        if (batch == 1) {
            for (int i = 0; i < messages; i++) {
                check(store.putMessage(message(body)));
            }
            return;
        }
        for (int i = 0; i < messages; i += batch) {
            check(store.putMessages(messageBatch(body, batch)));
        }
    }

    private static MessageExtBrokerInner message(byte[] body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId((int) (nextKey % 4));
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN_HOST);
        message.setStoreHost(STORE_HOST);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, key());
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    /** Made from a client's encoded items, as a broker does. */
    private static MessageExtBatch messageBatch(byte[] body, int size) throws Exception {
        List<Message> items = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            Message item = new Message(TOPIC, body);
            MessageAccessor.putProperty(item, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, key());
            items.add(item);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(TOPIC);
        batch.setQueueId((int) (nextKey / size % 4));
        batch.setBody(MessageDecoder.encodeMessages(items));
        batch.setBornTimestamp(System.currentTimeMillis());
        batch.setBornHost(BORN_HOST);
        batch.setStoreHost(STORE_HOST);
        return batch;
    }

    private static String key() {
        return "7F00000100002A9F" + HexFormat.of().withUpperCase().toHexDigits(nextKey++);
    }

    private static void load(DefaultMessageStore store) {
        if (!store.load()) {
            throw new IllegalStateException("the store could not be loaded");
        }
    }

    private static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("a put was answered " + result.getPutMessageStatus());
        }
    }

    private static void waitUntilDispatched(DefaultMessageStore store) throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
    }

    private static long threadNamed(String name) {
        for (ThreadInfo thread : THREADS.getThreadInfo(THREADS.getAllThreadIds())) {
            if (thread != null && thread.getThreadName().equals(name)) {
                return thread.getThreadId();
            }
        }
        throw new IllegalStateException("no thread is named " + name);
    }

    private static double threadCpuS(long thread) {
        return THREADS.getThreadCpuTime(thread) / 1e9;
    }

    private static double processCpuS() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime() / 1e9;
    }

    private static void print(Object... namesAndNumbers) {
        StringBuilder text = new StringBuilder("{");
        for (int i = 0; i < namesAndNumbers.length; i += 2) {
            text.append(i == 0 ? "" : ", ").append('"').append(namesAndNumbers[i]).append("\": ")
                .append(namesAndNumbers[i + 1]);
        }
        System.out.println(text.append('}'));
        System.out.flush();
    }
}
