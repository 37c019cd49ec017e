import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.BrokerRole;
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
            case "fill" -> fill(directory, Integer.parseInt(args[2]), Long.parseLong(args[3]),
                args.length > 4 ? Integer.parseInt(args[4]) : 1 << 30);
            case "append" -> append(directory, Integer.parseInt(args[2]), Integer.parseInt(args[3]),
                Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            case "serve" -> serve(directory, Integer.parseInt(args[2]), Integer.parseInt(args[3]));
            case "follow" -> follow(directory, Integer.parseInt(args[2]), args[3], Long.parseLong(args[4]));
            case "puts" -> puts(directory, Integer.parseInt(args[2]), Integer.parseInt(args[3]),
                Integer.parseInt(args[4]), Integer.parseInt(args[5]), Integer.parseInt(args[6]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static DefaultMessageStore makeStore(String directory) throws Exception {
        return makeStore(config(directory));
    }

    private static MessageStoreConfig config(String directory) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + "/commitlog");
        config.setHaListenPort(0);
        return config;
    }

    private static DefaultMessageStore makeStore(MessageStoreConfig config) throws Exception {
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

    private static void fill(String directory, int bodyBytes, long endOffset, int fileBytes) throws Exception {
        MessageStoreConfig config = config(directory);
        config.setMappedFileSizeCommitLog(fileBytes);
        DefaultMessageStore store = makeStore(config);
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

    private static void serve(String directory, int fileBytes, int haPort) throws Exception {
        MessageStoreConfig config = config(directory);
        config.setMappedFileSizeCommitLog(fileBytes);
        config.setHaListenPort(haPort);
        DefaultMessageStore store = makeStore(config);
        load(store);
        store.start();
        print("end_offset", store.getMaxPhyOffset());
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void follow(String directory, int fileBytes, String master, long endOffset) throws Exception {
        MessageStoreConfig config = config(directory);
        config.setMappedFileSizeCommitLog(fileBytes);
        config.setBrokerRole(BrokerRole.SLAVE);
        DefaultMessageStore store = makeStore(config);
        load(store);
        store.start();
        store.updateHaMasterAddress(master);
        while (store.getMaxPhyOffset() <= 0) {
            Thread.sleep(1);
        }
        long began = System.nanoTime();
        double cpuBeganS = processCpuS();
        while (store.getMaxPhyOffset() < endOffset) {
            Thread.sleep(1);
        }
        double logS = (System.nanoTime() - began) / 1e9;
        waitUntilDispatched(store);
        print("log_s", logS, "derived_s", (System.nanoTime() - began) / 1e9, "cpu_s", processCpuS() - cpuBeganS);
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void puts(String directory, int haPort, int bodyBytes, int inFlight, int messages, int warmUp)
        throws Exception {
        MessageStoreConfig config = config(directory);
        config.setBrokerRole(haPort == 0 ? BrokerRole.ASYNC_MASTER : BrokerRole.SYNC_MASTER);
        config.setHaListenPort(haPort);
        DefaultMessageStore store = makeStore(config);
        load(store);
        store.start();
        byte[] body = new byte[bodyBytes];
        long patienceEnds = System.nanoTime() + 60_000_000_000L;
        while (haPort != 0 && store.putMessage(message(body)).getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            if (System.nanoTime() > patienceEnds) {
                throw new IllegalStateException("no slave came");
            }
            Thread.sleep(100);
        }
        latencies(store, body, inFlight, warmUp);
        print("end_offset", store.getMaxPhyOffset());
        double cpuBeganS = processCpuS();
        long began = System.nanoTime();
        long[] latencies = latencies(store, body, inFlight, messages);
        double wallS = (System.nanoTime() - began) / 1e9;
        Arrays.sort(latencies);
        print("p50_us", latencies[messages / 2] / 1e3, "p99_us", latencies[messages * 99 / 100] / 1e3,
            "wall_s", wallS, "cpu_s", processCpuS() - cpuBeganS);
    }

    /** Keeps so many asynchronous puts under way; nanoseconds each took. */
    private static long[] latencies(DefaultMessageStore store, byte[] body, int inFlight, int messages)
        throws Exception {
        long[] latencies = new long[messages];
        Semaphore room = new Semaphore(inFlight);
        for (int i = 0; i < messages; i++) {
            room.acquire();
            int number = i;
            long began = System.nanoTime();
            store.asyncPutMessage(message(body)).thenAccept(result -> {
                check(result);
                latencies[number] = System.nanoTime() - began;
                room.release();
            });
        }
        room.acquire(inFlight);
        return latencies;
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
        // Not isOk(), which is true of what was stored and not confirmed.
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
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
