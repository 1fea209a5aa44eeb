/* A mock OpenAI-compatible upstream for benchmarks: one thread, epoll, keep-alive, HTTP/1.1.
 *
 *   mock [PORT]          listens on 127.0.0.1 (port 0 or none: a free one) and prints "listening PORT"
 *
 * POST …/chat/completions answers at once with JSON and usage. With "stream":true it sends an SSE stream whose shape the
 * model's name chooses: "mock-100x20" is 100 chunks 20 ms apart, the first at once. One interval after the last come a
 * finish chunk, a usage chunk (always) and [DONE]: so streams that follow each other offer a chunk per interval, always.
 * Every content chunk carries "@SENT/LATE": when it was sent (CLOCK_MONOTONIC, ns) and how far behind its schedule that
 * was, so that the load generator on the same machine can tell the delay a gateway adds from the delay of a mock that is
 * itself short of CPU. GET answers an empty model list.
 *
 * Request bodies come with a Content-Length or chunked. The process ends with its parent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_ROOM = 16 * 1024,
    MOST_REQUEST = 64 * 1024 * 1024,
    MOST_UNSENT = 16 * 1024 * 1024, /* a reader that stopped for good is cut off here */
    ENOUGH_UNSENT = 1024 * 1024,    /* of a stream, which waits for its reader here */
    LOOK_AGAIN_NS = 1000 * 1000,
    EVENTS = 1024,
    MODEL_ROOM = 80,
    FRAME_ROOM = 1024,
};

typedef struct {
    char *data;
    size_t length, capacity;
} Buffer;

typedef struct {
    int fd;
    bool streaming, close_after, wants_write;
    Buffer in, out;
    size_t sent; /* of out */
    char model[MODEL_ROOM];
    int64_t id, created, due, interval;
    int chunk, chunks;
    size_t heap_slot;
} Connection;

static int epoll_fd, timer_fd;
static int64_t next_id, armed_for;
static Connection **heap; /* streams by the time of their next chunk, soonest first */
static size_t heap_length, heap_capacity;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void reserve(Buffer *b, size_t more) {
    if (b->capacity - b->length >= more) return;
    size_t capacity = b->capacity ? b->capacity : READ_ROOM;
    while (capacity - b->length < more) capacity *= 2;
    b->data = realloc(b->data, capacity);
    if (!b->data) die("realloc");
    b->capacity = capacity;
}

static void discard(Buffer *b) {
    free(b->data);
    *b = (Buffer){0};
}

/* The heap of due streams ---------------------------------------------------------------------------------------- */

static void heap_place(size_t slot, Connection *c) {
    heap[slot] = c;
    c->heap_slot = slot;
}

static void heap_up(size_t slot) {
    Connection *c = heap[slot];
    for (; slot > 0 && heap[(slot - 1) / 2]->due > c->due; slot = (slot - 1) / 2) heap_place(slot, heap[(slot - 1) / 2]);
    heap_place(slot, c);
}

static void heap_down(size_t slot) {
    Connection *c = heap[slot];
    for (size_t child; (child = 2 * slot + 1) < heap_length; slot = child) {
        if (child + 1 < heap_length && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= c->due) break;
        heap_place(slot, heap[child]);
    }
    heap_place(slot, c);
}

static void heap_push(Connection *c) {
    if (heap_length == heap_capacity) {
        heap_capacity = heap_capacity ? heap_capacity * 2 : 1024;
        heap = realloc(heap, heap_capacity * sizeof *heap);
        if (!heap) die("realloc");
    }
    heap[heap_length++] = c;
    heap_up(heap_length - 1);
}

static void heap_remove(Connection *c) {
    size_t slot = c->heap_slot;
    Connection *last = heap[--heap_length];
    if (last == c) return;
    heap_place(slot, last);
    heap_up(slot);
    heap_down(last->heap_slot);
}

/* Connections ---------------------------------------------------------------------------------------------------- */

static void drop(Connection *c) {
    if (c->streaming) heap_remove(c);
    close(c->fd);
    discard(&c->in);
    discard(&c->out);
    free(c);
}

static void watch(Connection *c, bool writable) {
    if (c->wants_write == writable) return;
    struct epoll_event e = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_write = writable;
}

/* Sends what the socket takes and keeps the rest; false when the connection is beyond use. */
static bool transmit(Connection *c, const char *data, size_t length) {
    if (c->out.length == 0) {
        ssize_t n = send(c->fd, data, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return false;
        size_t taken = n < 0 ? 0 : (size_t)n;
        data += taken;
        length -= taken;
    }
    if (length == 0) return true;
    if (c->out.length + length > MOST_UNSENT) return false;
    reserve(&c->out, length);
    memcpy(c->out.data + c->out.length, data, length);
    c->out.length += length;
    watch(c, true);
    return true;
}

static bool transmit_rest(Connection *c) {
    ssize_t n = send(c->fd, c->out.data + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN;
    c->sent += (size_t)n;
    if (c->sent == c->out.length) {
        c->sent = 0;
        discard(&c->out);
        watch(c, false);
        if (c->close_after && !c->streaming) return false;
    }
    return true;
}

/* Answers -------------------------------------------------------------------------------------------------------- */

static bool answer(Connection *c, const char *status, const char *body) {
    char text[2048];
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                     status, strlen(body), c->close_after ? "Connection: close\r\n" : "", body);
    return transmit(c, text, (size_t)n);
}

static bool answer_json(Connection *c) {
    char body[1024];
    snprintf(body, sizeof body,
             "{\"id\":\"chatcmpl-mock%012lld\",\"object\":\"chat.completion\",\"created\":%lld,\"model\":\"%s\","
             "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown fox jumps over "
             "the lazy dog.\",\"refusal\":null,\"annotations\":[]},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
             "\"usage\":{\"prompt_tokens\":24,\"completion_tokens\":10,\"total_tokens\":34,"
             "\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0}},\"service_tier\":\"default\","
             "\"system_fingerprint\":\"fp_mock\"}",
             (long long)c->id, (long long)c->created, c->model);
    return answer(c, "200 OK", body);
}

/* Appends one SSE frame as one HTTP chunk and returns the new length. */
static size_t put_frame(Connection *c, char *out, size_t length, const char *choices, const char *usage) {
    char frame[FRAME_ROOM];
    int n = snprintf(frame, sizeof frame,
                     "data: {\"id\":\"chatcmpl-mock%012lld\",\"object\":\"chat.completion.chunk\",\"created\":%lld,"
                     "\"model\":\"%s\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_mock\",\"choices\":[%s],"
                     "\"usage\":%s}\n\n",
                     (long long)c->id, (long long)c->created, c->model, choices, usage);
    return length + (size_t)sprintf(out + length, "%x\r\n%s\r\n", n, frame);
}

static size_t put_content(Connection *c, char *out, int64_t now) {
    char choices[256];
    snprintf(choices, sizeof choices,
             "{\"index\":0,\"delta\":{%s\"content\":\"@%lld/%lld\"},\"logprobs\":null,\"finish_reason\":null}",
             c->chunk == 0 ? "\"role\":\"assistant\"," : "", (long long)now, (long long)(now - c->due));
    return put_frame(c, out, 0, choices, "null");
}

static size_t put_ending(Connection *c, char *out, size_t length) {
    char usage[160];
    length = put_frame(c, out, length, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}", "null");
    snprintf(usage, sizeof usage, "{\"prompt_tokens\":24,\"completion_tokens\":%d,\"total_tokens\":%d}", c->chunks * 6,
             c->chunks * 6 + 24);
    length = put_frame(c, out, length, "", usage);
    return length + (size_t)sprintf(out + length, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

static bool serve(Connection *c);

/* Sends the chunk that is due, or the ending after the last; false when the connection is beyond use. */
static bool advance(Connection *c, int64_t now) {
    if (c->out.length > ENOUGH_UNSENT) { /* the reader is slower than the stream */
        c->due = now + LOOK_AGAIN_NS;
        heap_down(c->heap_slot);
        return true;
    }
    char out[4 * FRAME_ROOM];
    bool last = c->chunk == c->chunks;
    size_t length = last ? put_ending(c, out, 0) : put_content(c, out, now);
    c->chunk++;
    if (!transmit(c, out, length)) return false;
    if (!last) {
        c->due += c->interval;
        heap_down(c->heap_slot);
        return true;
    }
    heap_remove(c);
    c->streaming = false;
    return serve(c); /* a pipelined request may have waited */
}

static bool answer_stream(Connection *c) {
    c->chunks = 20;
    int every = 0;
    sscanf(c->model, "%*[^-]-%dx%d", &c->chunks, &every);
    if (c->chunks < 1) c->chunks = 1;
    c->interval = every * 1000000LL;
    c->chunk = 0;
    c->due = now_ns();
    c->streaming = true;
    heap_push(c); /* the first chunk goes out with the next tick, at once */
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    return transmit(c, head, sizeof head - 1);
}

/* Requests ------------------------------------------------------------------------------------------------------- */

/* The value of a header in a NUL-terminated head, or NULL. */
static const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') return line + length + 1 + strspn(line + length + 1, " ");
    }
    return NULL;
}

/* Joins a chunked body in place. Returns the bytes consumed, 0 when incomplete, -1 when malformed. */
static ssize_t join_chunks(char *body, size_t length, size_t *joined) {
    /* Looked through once without writing: the body is joined only when all of it is there. */
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0, total = 0;
        for (;;) {
            char *line_end = memmem(body + at, length - at, "\r\n", 2);
            if (!line_end) return 0;
            char *digits_end;
            unsigned long size = strtoul(body + at, &digits_end, 16);
            if (digits_end == body + at || size > MOST_REQUEST) return -1;
            size_t start = (size_t)(line_end - body) + 2;
            if (start + size + 2 > length) return 0;
            if (pass == 1) memmove(body + total, body + start, size);
            total += size;
            at = start + size + 2;
            if (size == 0) break;
        }
        *joined = total;
        if (pass == 1) return (ssize_t)at;
    }
    return -1;
}

static void read_model(Connection *c, const char *body, size_t length) {
    strcpy(c->model, "mock");
    const char *key = memmem(body, length, "\"model\"", 7);
    if (!key) return;
    const char *end = body + length, *from = memchr(key + 7, '"', (size_t)(end - key - 7));
    const char *to = from ? memchr(from + 1, '"', (size_t)(end - from - 1)) : NULL;
    if (!to || to - from - 1 >= MODEL_ROOM) return;
    memcpy(c->model, from + 1, (size_t)(to - from - 1));
    c->model[to - from - 1] = 0;
}

static bool wants_stream(const char *body, size_t length) {
    const char *end = body + length, *key = memmem(body, length, "\"stream\"", 8);
    if (!key) return false;
    for (key += 8; key < end && (*key == ' ' || *key == ':'); key++) {}
    return key + 4 <= end && memcmp(key, "true", 4) == 0;
}

static bool respond(Connection *c, const char *head, const char *body, size_t length) {
    c->id = ++next_id;
    c->created = time(NULL); /* of all chunks of a stream, as OpenAI's are */
    if (strncmp(head, "GET ", 4) == 0) return answer(c, "200 OK", "{\"object\":\"list\",\"data\":[]}");
    static const char tail[] = "/chat/completions";
    const char *path_end = strncmp(head, "POST ", 5) == 0 ? strchr(head + 5, ' ') : NULL;
    if (!path_end || path_end - head < (ptrdiff_t)sizeof tail || memcmp(path_end - (sizeof tail - 1), tail, sizeof tail - 1) != 0)
        return answer(c, "404 Not Found", "{\"error\":{\"message\":\"the mock serves chat completions only\"}}");
    read_model(c, body, length);
    return wants_stream(body, length) ? answer_stream(c) : answer_json(c);
}

/* Answers the first request of the input, if it is complete. Returns the bytes consumed, 0 when more must come, -1 to drop. */
static ssize_t take_request(Connection *c) {
    char *head_end = memmem(c->in.data, c->in.length, "\r\n\r\n", 4);
    if (!head_end) return c->in.length > READ_ROOM * 4 ? -1 : 0;
    size_t head_length = (size_t)(head_end - c->in.data) + 4, available = c->in.length - head_length;
    head_end[2] = 0; /* undone below when the body is not complete */
    char *body = c->in.data + head_length;
    const char *coding = header(c->in.data, "transfer-encoding"), *size = header(c->in.data, "content-length");
    const char *connection = header(c->in.data, "connection"), *expect = header(c->in.data, "expect");
    size_t body_length = 0;
    ssize_t consumed;
    if (coding && strncasecmp(coding, "chunked", 7) == 0) {
        consumed = join_chunks(body, available, &body_length);
    } else {
        body_length = size ? strtoul(size, NULL, 10) : 0;
        consumed = body_length <= available ? (ssize_t)body_length : 0;
        if (body_length > MOST_REQUEST) return -1;
        if (body_length == 0) consumed = 0;
    }
    bool complete = consumed > 0 || (body_length == 0 && !coding);
    if (consumed < 0) return -1;
    if (!complete) {
        bool asks = expect && available == 0;
        head_end[2] = '\r';
        return asks && !transmit(c, "HTTP/1.1 100 Continue\r\n\r\n", 25) ? -1 : 0;
    }
    c->close_after = connection && strncasecmp(connection, "close", 5) == 0;
    return respond(c, c->in.data, body, body_length) ? (ssize_t)head_length + consumed : -1;
}

/* Answers all requests that wait, up to a stream; false when the connection is beyond use. */
static bool serve(Connection *c) {
    while (!c->streaming && c->in.length > 0) {
        ssize_t consumed = take_request(c);
        if (consumed < 0) return false;
        if (consumed == 0) return true;
        c->in.length -= (size_t)consumed;
        if (c->in.length > 0) memmove(c->in.data, c->in.data + consumed, c->in.length);
        if (!c->streaming && c->close_after) return c->out.length > 0;
    }
    if (c->in.length == 0) discard(&c->in); /* 10,000 open streams hold no input buffers */
    return !(c->close_after && !c->streaming && c->out.length == 0);
}

static bool receive(Connection *c) {
    for (;;) {
        reserve(&c->in, READ_ROOM);
        size_t room = c->in.capacity - c->in.length;
        ssize_t n = recv(c->fd, c->in.data + c->in.length, room, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
        if (n < 0) break;
        c->in.length += (size_t)n;
        if (c->in.length > MOST_REQUEST) return false;
        if ((size_t)n < room) break;
    }
    return serve(c);
}

/* The loop ------------------------------------------------------------------------------------------------------- */

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        Connection *c = calloc(1, sizeof *c);
        if (!c) die("calloc");
        c->fd = fd;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
    }
    if (errno != EAGAIN && errno != ECONNABORTED) perror("accept"); /* out of descriptors: the caller sees it stall */
}

static void tick(void) {
    for (int64_t now = now_ns(); heap_length > 0 && heap[0]->due <= now; now = now_ns()) {
        Connection *c = heap[0];
        if (!advance(c, now)) drop(c);
    }
    int64_t due = heap_length > 0 ? heap[0]->due : 0;
    if (due == armed_for) return;
    struct itimerspec when = {.it_value = {.tv_sec = due / 1000000000LL, .tv_nsec = due % 1000000000LL}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    armed_for = due;
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 16384) < 0) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &length);
    printf("listening %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int listener = listen_on(argc > 1 ? atoi(argv[1]) : 0);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event on_accept = {.events = EPOLLIN, .data.ptr = &listener};
    struct epoll_event on_timer = {.events = EPOLLIN, .data.ptr = &timer_fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &on_accept);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &on_timer);
    static struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, EVENTS, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if ((void *)c == &listener) accept_all(listener);
            else if ((void *)c == &timer_fd) { uint64_t fired; armed_for = read(timer_fd, &fired, sizeof fired) > 0 ? 0 : armed_for; }
            else if ((events[i].events & EPOLLOUT) && !transmit_rest(c)) drop(c);
            else if ((events[i].events & ~(uint32_t)EPOLLOUT) && !receive(c)) drop(c);
        }
        tick();
    }
}
