/* The load of tests/bench/send_lane.py: producers that send as many new requests as answers have come.
 *
 * send_load PORT PID CONNECTIONS IN_FLIGHT WARM_UP_MS MEASURE_MS < FRAMES
 *
 * Standard input has some frames; connection i sends frame i modulo their number. Each "########" in one becomes the
 * number of the request in hex, so that no two have the same keys. Prints: answers counted, seconds passed, CPU seconds
 * of all threads of process PID. An answer whose header lacks "code":0 ends the run with status 1: a refusal is cheap.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES_MAX = 64, INPUT_MAX = 1 << 22, ANSWERS_BYTES = 1 << 18, MARK_BYTES = 8, MARKS_MAX = 4 };

struct frame {
    size_t begin, size, marks[MARKS_MAX];
    int mark_count;
};

struct peer {
    int fd;
    struct frame *frame;
    size_t received;
    char answers[ANSWERS_BYTES];
};

static char input[INPUT_MAX];
static struct frame frames[FRAMES_MAX];
static int frame_count;
static uint32_t request_number;
static char *outgoing;

static uint32_t word(const char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return ntohl(value);
}

static double clock_s(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) err(1, "clock_gettime");
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void read_frames(void) {
    size_t size = fread(input, 1, sizeof input, stdin), begin = 0;
    while (begin + 4 <= size && frame_count < FRAMES_MAX) {
        struct frame *frame = &frames[frame_count++];
        frame->begin = begin;
        frame->size = 4 + word(input + begin);
        char *at = input + begin, *end = at + frame->size;
        if (begin + frame->size > size) errx(1, "a frame is not complete");
        while (frame->mark_count < MARKS_MAX && (at = memmem(at, (size_t)(end - at), "########", MARK_BYTES))) {
            frame->marks[frame->mark_count++] = (size_t)(at - input) - begin;
            at += MARK_BYTES;
        }
        begin += frame->size;
    }
    if (frame_count == 0 || begin != size) errx(1, "standard input is no sequence of at most %d frames", FRAMES_MAX);
}

static void send_requests(struct peer *peer, int count) {
    const struct frame *frame = peer->frame;
    char *end = outgoing;
    for (int i = 0; i < count; i++, end += frame->size) {
        char digits[MARK_BYTES + 1];
        memcpy(end, input + frame->begin, frame->size);
        snprintf(digits, sizeof digits, "%08X", (unsigned)request_number++);
        for (int mark = 0; mark < frame->mark_count; mark++) memcpy(end + frame->marks[mark], digits, MARK_BYTES);
    }
    for (char *at = outgoing; at < end;) {
        ssize_t sent = send(peer->fd, at, (size_t)(end - at), MSG_NOSIGNAL);
        if (sent < 0) err(1, "send");
        at += sent;
    }
}

static int receive_answers(struct peer *peer) {
    ssize_t got = recv(peer->fd, peer->answers + peer->received, ANSWERS_BYTES - peer->received, 0);
    if (got <= 0) err(1, "the server closed a connection");
    peer->received += (size_t)got;
    size_t begin = 0;
    int count = 0;
    while (peer->received - begin >= 4) {
        size_t size = 4 + word(peer->answers + begin);
        if (peer->received - begin < size) break;
        if (!memmem(peer->answers + begin, size, "\"code\":0", 8))
            errx(1, "refused: %.*s", (int)size - 8, peer->answers + begin + 8);
        begin += size;
        count++;
    }
    peer->received -= begin;
    memmove(peer->answers, peer->answers + begin, peer->received);
    return count;
}

static uint64_t run_until(int epoll_fd, double end_s) {
    struct epoll_event events[256];
    uint64_t answered = 0;
    while (clock_s(CLOCK_MONOTONIC) < end_s) {
        int ready = epoll_wait(epoll_fd, events, 256, 100);
        if (ready < 0 && errno != EINTR) err(1, "epoll_wait");
        for (int i = 0; i < ready; i++) {
            struct peer *peer = events[i].data.ptr;
            int count = receive_answers(peer);
            answered += (uint64_t)count;
            if (count) send_requests(peer, count);
        }
    }
    return answered;
}

int main(int argc, char **argv) {
    if (argc != 7) errx(2, "usage: send_load PORT PID CONNECTIONS IN_FLIGHT WARM_UP_MS MEASURE_MS < FRAMES");
    int connections = atoi(argv[3]), in_flight = atoi(argv[4]), epoll_fd = epoll_create1(0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    clockid_t cpu;
    if (clock_getcpuclockid(atoi(argv[2]), &cpu) != 0) errx(1, "no process %s", argv[2]);
    read_frames();
    size_t largest = 0;
    for (int i = 0; i < frame_count; i++) largest = frames[i].size > largest ? frames[i].size : largest;
    struct peer *peers = calloc((size_t)connections, sizeof *peers);
    outgoing = malloc(largest * (size_t)in_flight);
    if (!peers || !outgoing) err(1, "memory");
    request_number = (uint32_t)time(NULL) << 20;
    for (int i = 0; i < connections; i++) {
        struct peer *peer = &peers[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
        peer->fd = socket(AF_INET, SOCK_STREAM, 0);
        peer->frame = &frames[i % frame_count];
        setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (connect(peer->fd, (struct sockaddr *)&address, sizeof address) != 0) err(1, "connect");
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, peer->fd, &event) != 0) err(1, "epoll_ctl");
    }
    for (int i = 0; i < connections; i++) send_requests(&peers[i], in_flight);
    run_until(epoll_fd, clock_s(CLOCK_MONOTONIC) + atoi(argv[5]) / 1e3);
    double began_s = clock_s(CLOCK_MONOTONIC), cpu_began_s = clock_s(cpu);
    uint64_t answered = run_until(epoll_fd, began_s + atoi(argv[6]) / 1e3);
    double cpu_s = clock_s(cpu) - cpu_began_s;
    printf("%llu %.6f %.6f\n", (unsigned long long)answered, clock_s(CLOCK_MONOTONIC) - began_s, cpu_s);
    return 0;
}
