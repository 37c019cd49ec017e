import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own clients, under load. Reads one command a line and prints one JSON object for each; the commands and
 * their numbers are described in tests/bench/java_clients.py.
 */
public final class ClientBench {
    /** More than any phase can have. */
    private static final int LATENCIES_MAX = 4_000_000;
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, DefaultMQPullConsumer> CONSUMERS = new HashMap<>();

    private ClientBench() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        print("ready", 1);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            run(line.split(" "));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "first" -> first(words[1], words[2], Integer.parseInt(words[3]));
            case "send" -> send(words[1], words[2], words[3], Integer.parseInt(words[4]), Integer.parseInt(words[5]),
                Long.parseLong(words[6]), Long.parseLong(words[7]));
            case "pull" -> pull(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
                Long.parseLong(words[5]), Long.parseLong(words[6]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** Sends until a message is answered SEND_OK. */
    private static void first(String nameServer, String topic, int bodyBytes) throws Exception {
        DefaultMQProducer producer = producer(nameServer);
        long failed = 0;
        while (true) {
            try {
                if (producer.send(message(topic, bodyBytes)).getSendStatus() == SendStatus.SEND_OK) {
                    print("failed", failed);
                    return;
                }
            } catch (Exception error) {
                // There is no broker yet.
                Thread.sleep(1);
            }
            failed++;
        }
    }

    /** Keeps so many messages under way: a thread for each if they are synchronous, callbacks of one if not. */
    private static void send(String nameServer, String topic, String mode, int inFlight, int bodyBytes, long warmUpMs,
        long measureMs) throws Exception {
        DefaultMQProducer producer = producer(nameServer);
        Phase phase = new Phase(warmUpMs, measureMs);
        if (mode.equals("sync")) {
            inThreads(inFlight, number -> {
                while (!phase.isOver()) {
                    long began = System.nanoTime();
                    try {
                        SendResult result = producer.send(message(topic, bodyBytes));
                        phase.done(began, 1, result.getSendStatus() == SendStatus.SEND_OK);
                    } catch (Exception error) {
                        phase.done(began, 1, false);
                    }
                }
            });
        } else {
            Semaphore room = new Semaphore(inFlight);
            while (!phase.isOver()) {
                room.acquire();
                long began = System.nanoTime();
                producer.send(message(topic, bodyBytes), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        phase.done(began, 1, result.getSendStatus() == SendStatus.SEND_OK);
                        room.release();
                    }

                    @Override
                    public void onException(Throwable error) {
                        phase.done(began, 1, false);
                        room.release();
                    }
                });
            }
            room.acquire(inFlight);
        }
        phase.print();
    }

    /** Pulls from as many queues at a time, in order from the first message, and from there again after the last. */
    private static void pull(String nameServer, String topic, int inFlight, int messagesMax, long warmUpMs,
        long measureMs) throws Exception {
        DefaultMQPullConsumer consumer = consumer(nameServer);
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        Phase phase = new Phase(warmUpMs, measureMs);
        inThreads(inFlight, number -> {
            MessageQueue queue = queues.get(number % queues.size());
            long first = consumer.minOffset(queue);
            long at = first;
            while (!phase.isOver()) {
                long began = System.nanoTime();
                PullResult result = consumer.pull(queue, "*", at, messagesMax);
                if (result.getPullStatus() != PullStatus.FOUND) {
                    at = first;
                    continue;
                }
                phase.done(began, result.getMsgFoundList().size(), true);
                at = result.getNextBeginOffset();
            }
        });
        phase.print();
    }

    private static DefaultMQProducer producer(String nameServer) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(nameServer);
        if (producer == null) {
            producer = new DefaultMQProducer("PG_bench");
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("producer-" + nameServer);
            producer.setSendMsgTimeout(10_000);
            producer.start();
            PRODUCERS.put(nameServer, producer);
        }
        return producer;
    }

    private static DefaultMQPullConsumer consumer(String nameServer) throws Exception {
        DefaultMQPullConsumer consumer = CONSUMERS.get(nameServer);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer("CG_bench");
            consumer.setNamesrvAddr(nameServer);
            consumer.setInstanceName("consumer-" + nameServer);
            consumer.start();
            CONSUMERS.put(nameServer, consumer);
        }
        return consumer;
    }

    private static Message message(String topic, int bodyBytes) {
        return new Message(topic, "TagA", "OrderID188", new byte[bodyBytes]);
    }

    private interface Work {
        void run(int number) throws Exception;
    }

    private static void inThreads(int count, Work work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    work.run(number);
                } catch (Exception error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
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

    /** A time to warm up, which prints "warm" at its end, then the time that is measured. What begins in it counts. */
    private static final class Phase {
        private final long beginNs;
        private final long endNs;
        private final double cpuBeganS;
        private final long[] latencies = new long[LATENCIES_MAX];
        private final AtomicLong calls = new AtomicLong();
        private final AtomicLong messages = new AtomicLong();
        private final AtomicLong failed = new AtomicLong();
        private final AtomicLong cpuAtBegin = new AtomicLong();

        Phase(long warmUpMs, long measureMs) {
            this.beginNs = System.nanoTime() + warmUpMs * 1_000_000;
            this.endNs = this.beginNs + measureMs * 1_000_000;
            this.cpuBeganS = 0;
            Thread timer = new Thread(() -> {
                try {
                    Thread.sleep(warmUpMs);
                } catch (InterruptedException error) {
                    return;
                }
                this.cpuAtBegin.set((long) (processCpuS() * 1e9));
                ClientBench.print("warm", 1);
            });
            timer.start();
        }

        boolean isOver() {
            return System.nanoTime() >= this.endNs;
        }

        void done(long began, int count, boolean ok) {
            long now = System.nanoTime();
            if (began < this.beginNs || now > this.endNs) {
                return;
            }
            if (!ok) {
                this.failed.incrementAndGet();
                return;
            }
            this.messages.addAndGet(count);
            this.latencies[(int) this.calls.getAndIncrement()] = now - began;
        }

        void print() {
            double cpuS = processCpuS() - this.cpuAtBegin.get() / 1e9;
            int count = (int) this.calls.get();
            Arrays.sort(this.latencies, 0, count);
            ClientBench.print("messages", this.messages.get(), "failed", this.failed.get(),
                "measured_s", (this.endNs - this.beginNs) / 1e9, "client_cpu_s", cpuS,
                "p50_us", count == 0 ? 0 : this.latencies[count / 2] / 1e3,
                "p99_us", count == 0 ? 0 : this.latencies[(int) (count * 99L / 100)] / 1e3);
        }
    }
}
