/* A load generator for benchmarks: one thread, epoll, keep-alive, HTTP/1.1.
 *
 *   load --mode json|open|streams|idle --port N --request FILE [--variants V] [--connections K] [--rate R] [--chunks N]
 *        [--warmup S] [--seconds S]
 *
 * FILE holds one whole HTTP request, sent again and again; or V of them, all of one length, sent in turn.
 *   json     K connections, each sends its next request when it has its answer: a saturated server's throughput.
 *   open     R requests a second by the clock, over up to K connections. Latency counts from the moment a request was
 *            *due*, so a server that stalls is charged for every request that had to wait (no coordinated omission).
 *   streams  K streams at a time, each followed by the next; an answer is whole with N chunks and [DONE].
 *   idle     opens K streams, holds them after their first chunk.
 *
 * Lines on stdout, one JSON document each: {"event":"begin"} and {"event":"end"} around the measured time, so that the
 * caller can read other processes' CPU at these moments, then {"event":"result",…}. Times are in milliseconds.
 * Answers other than a whole 200 are counted apart and never as work done. Connections end by RST: no TIME_WAIT is left
 * for the next run. The process ends with its parent, and by alarm when it overstays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
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

enum { EVENTS = 1024, READ_ROOM = 256 * 1024, MOST_PARTIAL = 1024 * 1024, RAMP_PENDING = 64, ERROR_ROOM = 240 };
#define SECOND 1000000000LL
#define RETRY_AFTER (20 * 1000000LL) /* a refused connection is not tried again at once: that would be a busy loop */
#define DRAIN (3 * SECOND)           /* what is under way at the end of an open loop may still arrive */
#define RAMP_WITHIN (120 * SECOND)

typedef enum { JSON, OPEN, STREAMS, IDLE } Mode;
typedef enum { UNUSED, WAITING, CONNECTING, FREE, BUSY } State; /* WAITING: to be connected at `wake` */
typedef enum { HEAD, SIZED, CHUNK_SIZE, CHUNK_BYTES, CHUNK_END, TRAILERS, UNTIL_CLOSE } Part;

typedef struct {
    int fd;
    State state;
    Part part;
    bool close_after, done, wants_write, good;
    int status, chunks, matched;
    int64_t wake, started, last_chunk, remaining;
    const char *request;
    size_t sent; /* of it */
    char *partial; /* an incomplete head or line */
    size_t partial_length, partial_capacity;
} Connection;

typedef struct {
    int64_t *values;
    size_t length, capacity;
} Samples;

static Mode mode;
static int port, wanted = 64, expected_chunks;
static double rate = 100, warmup = 1, seconds = 5;
static char *requests;
static size_t request_length, variants = 1, next_variant;

static int epoll_fd, timer_fd;
static Connection *connections;
static int used, *free_stack, free_length, waiting, pending, held;
static int64_t start, begin, end, next_due, now;
static bool ramped, begun, ended;

static Samples latencies, first_chunks, added, gaps, lateness;
static uint64_t completed, chunks, streams, refused, cut, bad, statuses[600];
static char first_error[ERROR_ROOM];

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static bool measured(int64_t when) { return when >= begin && when < end; }

/* Figures -------------------------------------------------------------------------------------------------------- */

static void sample(Samples *s, int64_t value) {
    if (s->length == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 1 << 16;
        s->values = realloc(s->values, s->capacity * sizeof *s->values);
        if (!s->values) die("realloc");
    }
    s->values[s->length++] = value;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, Samples *s) {
    if (s->length == 0) return;
    qsort(s->values, s->length, sizeof *s->values, ascending);
    size_t top = s->length - 1;
    printf(",\"%s\":{\"count\":%zu,\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"p999\":%.4f,\"max\":%.4f}", name, s->length,
           (double)s->values[top / 2] / 1e6, (double)s->values[top * 9 / 10] / 1e6,
           (double)s->values[top * 99 / 100] / 1e6, (double)s->values[top * 999 / 1000] / 1e6,
           (double)s->values[top] / 1e6);
}

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 32 || c > 126) putchar(' ');
        else putchar(c);
    }
    putchar('"');
}

static void event(const char *name) {
    printf("{\"event\":\"%s\"}\n", name);
    fflush(stdout);
}

static void report(void) {
    int64_t unanswered = 0;
    if (mode == OPEN) {
        for (int i = 0; i < used; i++) unanswered += connections[i].state == BUSY || connections[i].state == CONNECTING;
        for (; next_due < end; next_due += (int64_t)(SECOND / rate)) unanswered++;
    }
    printf("{\"event\":\"result\",\"seconds\":%.6f,\"completed\":%llu,\"chunks\":%llu,\"streams\":%llu,\"held\":%d,"
           "\"refused\":%llu,\"cut\":%llu,\"bad\":%llu,\"unanswered\":%lld,\"statuses\":{",
           (double)(end - begin) / 1e9, (unsigned long long)completed, (unsigned long long)chunks,
           (unsigned long long)streams, held, (unsigned long long)refused, (unsigned long long)cut,
           (unsigned long long)bad, (long long)unanswered);
    const char *comma = "";
    for (int i = 0; i < 600; i++) {
        if (statuses[i] == 0) continue;
        printf("%s\"%d\":%llu", comma, i, (unsigned long long)statuses[i]);
        comma = ",";
    }
    printf("},\"first_error\":");
    print_text(first_error);
    print_samples("latency", &latencies);
    print_samples("first_chunk", &first_chunks);
    print_samples("added", &added);
    print_samples("gap", &gaps);
    print_samples("upstream_late", &lateness);
    printf("}\n");
    fflush(stdout);
}

static void note_error(const char *text, size_t length) {
    if (first_error[0]) return;
    if (length >= ERROR_ROOM) length = ERROR_ROOM - 1;
    memcpy(first_error, text, length);
    first_error[length] = 0;
}

/* Connections ---------------------------------------------------------------------------------------------------- */

static void watch(Connection *c, bool writable) {
    if (c->wants_write == writable) return;
    struct epoll_event e = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_write = writable;
}

static void wait_until(Connection *c, int64_t wake) {
    c->state = WAITING;
    c->wake = wake;
    waiting++;
}

static void hang_up(Connection *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->partial_length = 0;
}

/* The connection or what it carried is lost: count it, and be back in a moment where the mode wants that. */
static void fail(Connection *c, uint64_t *counter, const char *what) {
    if (c->state == FREE) { /* closed while idle: nothing was asked of it */
        for (int i = 0; i < free_length; i++)
            if (&connections[free_stack[i]] == c) { free_stack[i] = free_stack[--free_length]; break; }
        hang_up(c);
        c->state = UNUSED;
        return;
    }
    if (measured(now) || mode == IDLE) ++*counter;
    note_error(what, strlen(what));
    if (mode == IDLE) {
        if (c->chunks > 0) held--;
        else pending--;
    }
    hang_up(c);
    if (mode == OPEN || mode == IDLE) c->state = UNUSED;
    else wait_until(c, now + RETRY_AFTER);
}

static bool transmit(Connection *c) {
    ssize_t n = send(c->fd, c->request + c->sent, request_length - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return false;
    c->sent += n < 0 ? 0 : (size_t)n;
    watch(c, c->sent < request_length);
    return true;
}

static void ask(Connection *c) {
    c->state = BUSY;
    c->part = HEAD;
    c->request = requests + next_variant++ % variants * request_length;
    c->sent = 0;
    c->status = c->chunks = c->matched = 0;
    c->done = c->good = false;
    c->last_chunk = 0;
    if (!transmit(c)) fail(c, &cut, "connection lost while sending");
}

static void dial(Connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    c->state = CONNECTING;
    c->wants_write = true;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e) < 0) die("epoll_ctl");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        fail(c, &refused, "connection refused");
}

static void connected(Connection *c) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) fail(c, &refused, strerror(error));
    else ask(c);
}

/* Answers -------------------------------------------------------------------------------------------------------- */

static void start_work(Connection *c, int64_t due) {
    c->started = due;
    if (c->fd < 0) dial(c);
    else ask(c);
}

static void count_answer(Connection *c) {
    bool streaming = mode == STREAMS || mode == IDLE;
    bool whole = c->status == 200 && (streaming ? c->done && c->chunks == expected_chunks : c->good);
    bool counts = mode == IDLE || (mode == OPEN ? measured(c->started) : measured(now));
    if (counts && c->status > 0 && c->status < 600) statuses[c->status]++;
    if (counts && c->status == 200 && !whole) bad++;
    if (c->status == 200 && !whole) note_error("a 200 that is not whole", 23);
    if (!counts || !whole) return;
    completed++;
    if (streaming) streams++;
    else sample(&latencies, now - c->started);
}

static void finish(Connection *c) {
    count_answer(c);
    if (mode == IDLE) { /* a stream that was to be held has ended */
        fail(c, &cut, "a held stream ended");
        return;
    }
    if (c->close_after) hang_up(c);
    c->partial_length = 0;
    if (mode == OPEN) {
        if (c->fd < 0) { c->state = UNUSED; return; }
        c->state = FREE;
        free_stack[free_length++] = (int)(c - connections);
    } else if (c->status != 200) {
        c->state = FREE;
        hang_up(c);
        wait_until(c, now + RETRY_AFTER); /* refusals are cheap: asking at once would flood, not measure */
    } else {
        start_work(c, now);
    }
}

static void take_chunk(Connection *c, const char *stamp, size_t length) {
    long long sent = 0, late = 0;
    char digits[48] = "";
    memcpy(digits, stamp, length < sizeof digits ? length : sizeof digits - 1);
    if (sscanf(digits, "%lld/%lld", &sent, &late) != 2) return;
    if (c->chunks++ == 0) {
        if (measured(c->started) || mode == IDLE) sample(&first_chunks, now - c->started);
        if (mode == IDLE) { pending--; held++; }
    }
    if (!measured(now)) return;
    chunks++;
    sample(&added, now - sent);
    sample(&lateness, late);
    if (c->last_chunk) sample(&gaps, now - c->last_chunk);
    c->last_chunk = now;
}

static void take_line(Connection *c, const char *line, size_t length) {
    if (length < 6 || memcmp(line, "data:", 5) != 0) return;
    if (memmem(line, length, "[DONE]", 6)) c->done = true;
    const char *stamp = memmem(line, length, "\"@", 2);
    if (stamp) take_chunk(c, stamp + 2, (size_t)(line + length - stamp - 2));
    else if (memmem(line, length < 16 ? length : 16, "{\"error\"", 8)) note_error(line, length);
}

/* Keeps bytes until the rest of their line or head has come. */
static void keep(Connection *c, const char *bytes, size_t length) {
    if (c->partial_length + length > MOST_PARTIAL) length = 0;
    if (c->partial_length + length > c->partial_capacity) {
        c->partial_capacity = (c->partial_length + length) * 2;
        c->partial = realloc(c->partial, c->partial_capacity);
        if (!c->partial) die("realloc");
    }
    if (length) memcpy(c->partial + c->partial_length, bytes, length);
    c->partial_length += length;
}

static void take_lines(Connection *c, const char *bytes, size_t length) {
    for (const char *newline; length > 0 && (newline = memchr(bytes, '\n', length));) {
        size_t line = (size_t)(newline - bytes);
        if (c->partial_length > 0) {
            keep(c, bytes, line);
            take_line(c, c->partial, c->partial_length);
            c->partial_length = 0;
        } else {
            take_line(c, bytes, line);
        }
        bytes += line + 1;
        length -= line + 1;
    }
    if (length > 0) keep(c, bytes, length);
}

/* A JSON answer is good when it holds "choices"; the word may be cut by a packet's end. */
static void take_json(Connection *c, const char *bytes, size_t length) {
    static const char word[] = "\"choices\"";
    for (size_t i = 0; i < length && !c->good; i++) {
        if (bytes[i] == word[c->matched]) c->good = ++c->matched == (int)sizeof word - 1;
        else c->matched = bytes[i] == '"';
    }
}

static void take_body(Connection *c, const char *bytes, size_t length) {
    if (c->status != 200) note_error(bytes, length);
    else if (mode == STREAMS || mode == IDLE) take_lines(c, bytes, length);
    else take_json(c, bytes, length);
}

/* HTTP ----------------------------------------------------------------------------------------------------------- */

static void take_head(Connection *c, char *head, size_t length) {
    head[length - 2] = 0; /* over the last CR LF: string functions work on the head from here */
    bool chunked = false, sized = false;
    c->status = atoi(head + 9);
    c->close_after = strncmp(head, "HTTP/1.0", 8) == 0;
    for (char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        char *value = strchr(line, ':');
        if (!value) break;
        value += 1 + strspn(value + 1, " ");
        if (strncasecmp(line, "transfer-encoding:", 18) == 0) chunked = strncasecmp(value, "chunked", 7) == 0;
        else if (strncasecmp(line, "connection:", 11) == 0) c->close_after = strncasecmp(value, "close", 5) == 0;
        else if (strncasecmp(line, "content-length:", 15) == 0) { sized = true; c->remaining = atoll(value); }
    }
    c->part = chunked ? CHUNK_SIZE : sized ? SIZED : UNTIL_CLOSE;
}

/* Takes a line that ends in LF out of the input, whole or joined with what was kept; NULL when its end is still to come. */
static char *take_until(Connection *c, char **at, size_t *left, const char *mark, size_t *length) {
    size_t mark_length = strlen(mark);
    if (c->partial_length == 0) {
        char *found = memmem(*at, *left, mark, mark_length);
        if (found) {
            char *from = *at;
            *length = (size_t)(found - from) + mark_length;
            *at += *length;
            *left -= *length;
            return from;
        }
        keep(c, *at, *left);
        *left = 0;
        return NULL;
    }
    size_t before = c->partial_length; /* rare: the mark may lie across the border, so look from a little before it */
    keep(c, *at, *left);
    size_t from = before < mark_length ? 0 : before - mark_length;
    char *found = memmem(c->partial + from, c->partial_length - from, mark, mark_length);
    if (!found) {
        *left = 0;
        return NULL;
    }
    *length = (size_t)(found - c->partial) + mark_length;
    *at += *length - before;
    *left -= *length - before;
    c->partial_length = 0;
    return c->partial;
}

/* Chunk sizes may be cut by a packet's end too; `remaining` carries the digits so far, as partial carries SSE lines. */
static bool take_chunk_size(Connection *c, char **at, size_t *left) {
    while (*left > 0) {
        char ch = *(*at)++;
        --*left;
        if (ch == '\n') return true;
        int digit = ch >= '0' && ch <= '9' ? ch - '0' : (ch | 32) >= 'a' && (ch | 32) <= 'f' ? (ch | 32) - 'a' + 10 : -1;
        if (digit >= 0) c->remaining = c->remaining * 16 + digit;
    }
    return false;
}

/* Takes what came of the current part; true when the answer is complete. */
static bool advance(Connection *c, char **at, size_t *left) {
    size_t length;
    char *head;
    switch (c->part) {
    case HEAD:
        head = take_until(c, at, left, "\r\n\r\n", &length);
        if (!head) return false;
        take_head(c, head, length);
        if (c->part == CHUNK_SIZE) c->remaining = 0;
        return c->part == SIZED && c->remaining == 0;
    case SIZED:
    case CHUNK_BYTES:
        length = *left < (size_t)c->remaining ? *left : (size_t)c->remaining;
        take_body(c, *at, length);
        *at += length;
        *left -= length;
        c->remaining -= (int64_t)length;
        if (c->remaining > 0) return false;
        if (c->part == SIZED) return true;
        c->part = CHUNK_END;
        return false;
    case CHUNK_SIZE:
        if (take_chunk_size(c, at, left)) c->part = c->remaining > 0 ? CHUNK_BYTES : TRAILERS;
        return false;
    case CHUNK_END: /* the CR LF after the bytes, then the next size */
        if (take_chunk_size(c, at, left)) { c->part = CHUNK_SIZE; c->remaining = 0; }
        return false;
    case TRAILERS: /* none are expected: the empty line */
        return take_chunk_size(c, at, left);
    case UNTIL_CLOSE:
        take_body(c, *at, *left);
        *left = 0;
        return false;
    }
    return false;
}

static void receive(Connection *c) {
    static char bytes[READ_ROOM];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        if (c->state == BUSY && c->part == UNTIL_CLOSE && n == 0) {
            c->close_after = true;
            finish(c);
        } else {
            fail(c, &cut, "connection closed before the answer was whole");
        }
        return;
    }
    now = clock_ns();
    char *at = bytes;
    size_t left = (size_t)n;
    while (left > 0 && c->state == BUSY) {
        if (!advance(c, &at, &left)) continue;
        finish(c); /* may send the next request; its answer cannot be in these bytes */
        return;
    }
}

/* The clock ------------------------------------------------------------------------------------------------------ */

static Connection *spare(void) {
    if (free_length > 0) return &connections[free_stack[--free_length]];
    for (int i = 0; i < used; i++)
        if (connections[i].state == UNUSED) return &connections[i];
    return used < wanted ? &connections[used++] : NULL;
}

static void send_due(void) {
    while (next_due <= now && next_due < end) {
        Connection *c = spare();
        if (!c) return; /* stays due: its latency runs on */
        int64_t due = next_due;
        next_due += (int64_t)(SECOND / rate);
        start_work(c, due);
    }
}

static void wake_waiting(void) {
    for (int i = 0; i < used && waiting > 0; i++) {
        Connection *c = &connections[i];
        if (c->state != WAITING || c->wake > now) continue;
        waiting--;
        start_work(c, now);
    }
}

static void ramp_idle(void) {
    while (used < wanted && pending < RAMP_PENDING) {
        pending++;
        start_work(&connections[used++], now);
    }
    if (used == wanted && pending == 0) { /* all that could be had are held: the measured time begins */
        begin = now + (int64_t)(warmup * 1e9);
        end = begin + (int64_t)(seconds * 1e9);
        ramped = true;
    }
}

static void set_timer(void) {
    int64_t at = begun ? end : begin;
    if (mode == OPEN && next_due < end && next_due > now && next_due < at) at = next_due;
    if (ended) at = end + DRAIN;
    if (waiting > 0 || (mode == IDLE && !ramped)) at = at < now + 5000000 ? at : now + 5000000;
    static int64_t armed;
    if (at == armed && at > now) return;
    struct itimerspec when = {.it_value = {.tv_sec = at / SECOND, .tv_nsec = at % SECOND}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    armed = at;
}

/* True when the run is over. */
static bool tick(void) {
    now = clock_ns();
    if (mode == OPEN) send_due();
    if (mode == IDLE && !ramped && !begun) ramp_idle();
    if (waiting > 0) wake_waiting();
    if (!begun && now >= begin) { begun = true; event("begin"); }
    if (!ended && now >= end) { ended = true; event("end"); }
    if (ended && (mode != OPEN || now >= end + DRAIN || (next_due >= end && free_length == used))) return true;
    set_timer();
    return false;
}

static void run(void) {
    static struct epoll_event events[EVENTS];
    while (!tick()) {
        int n = epoll_wait(epoll_fd, events, EVENTS, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        now = clock_ns();
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (!c) { uint64_t fired; if (read(timer_fd, &fired, sizeof fired) < 0) continue; }
            else if (c->fd < 0) continue;
            else if (c->state == CONNECTING) connected(c);
            else if ((events[i].events & EPOLLOUT) && !transmit(c)) fail(c, &cut, "connection lost while sending");
            else if (events[i].events & ~(uint32_t)EPOLLOUT) receive(c);
        }
    }
}

/* Start ---------------------------------------------------------------------------------------------------------- */

static void read_requests(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) < 0) die(path);
    request_length = (size_t)ftell(f);
    rewind(f);
    requests = malloc(request_length + 1);
    if (!requests || fread(requests, 1, request_length, f) != request_length) die(path);
    fclose(f);
}

static Mode mode_named(const char *name) {
    static const char *const names[] = {"json", "open", "streams", "idle"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) return (Mode)i;
    fprintf(stderr, "unknown mode %s\n", name);
    exit(2);
}

static void read_options(int argc, char **argv) {
    static const struct option options[] = {{"mode", 1, 0, 'm'},    {"port", 1, 0, 'p'},        {"request", 1, 0, 'f'},
                                            {"rate", 1, 0, 'r'},    {"connections", 1, 0, 'c'}, {"chunks", 1, 0, 'n'},
                                            {"warmup", 1, 0, 'w'},  {"seconds", 1, 0, 's'},     {"variants", 1, 0, 'v'},
                                            {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'm': mode = mode_named(optarg); break;
        case 'p': port = atoi(optarg); break;
        case 'f': read_requests(optarg); break;
        case 'v': variants = strtoul(optarg, NULL, 10); break;
        case 'r': rate = atof(optarg); break;
        case 'c': wanted = atoi(optarg); break;
        case 'n': expected_chunks = atoi(optarg); break;
        case 'w': warmup = atof(optarg); break;
        case 's': seconds = atof(optarg); break;
        default: exit(2);
        }
    }
    if (!requests || port <= 0 || wanted < 1 || rate <= 0 || variants < 1 || request_length % variants != 0) {
        fprintf(stderr, "load: --port and --request are needed, --connections and --rate are positive, variants as long\n");
        exit(2);
    }
    request_length /= variants;
}

/* Streams start spread over half of the warm-up, at random: otherwise all of them would be due in the same millisecond. */
static void plan(void) {
    int64_t warm = (int64_t)(warmup * 1e9);
    now = start = clock_ns();
    begin = mode == IDLE ? start + RAMP_WITHIN : start + warm;
    end = begin + (int64_t)(seconds * 1e9);
    next_due = start;
    srandom(20);
    for (int i = 0; i < wanted; i++) connections[i].fd = -1;
    if (mode == JSON || mode == STREAMS) {
        used = wanted;
        for (int i = 0; i < wanted; i++)
            wait_until(&connections[i], mode == STREAMS ? start + random() % (warm / 2 + 1) : start);
    }
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    read_options(argc, argv);
    alarm((unsigned)(warmup + seconds + (mode == IDLE ? RAMP_WITHIN / SECOND : 0) + 15));
    connections = calloc((size_t)wanted, sizeof *connections);
    free_stack = calloc((size_t)wanted, sizeof *free_stack);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event on_timer = {.events = EPOLLIN, .data.ptr = NULL};
    if (!connections || !free_stack || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &on_timer) < 0) die("start");
    plan();
    run();
    report();
    return 0;
}
