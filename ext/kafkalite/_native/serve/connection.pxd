"""One client connection: receive, frame, serve, answer in order."""

from libc.stdint cimport int16_t, int32_t, int64_t
from kafkalite._native.serve.access cimport AccessView
from kafkalite._native.serve.answer_queue cimport AnswerQueue
from kafkalite._native.serve.frame_buffer cimport FrameBuffer
from kafkalite._native.serve.receive_threshold cimport LowWater
from kafkalite._native.serve.produce cimport ProduceRun
from kafkalite._native.serve.throttle cimport Throttle
from kafkalite._native.serve.transfer cimport Answer
from kafkalite._native.serve.worker_parts cimport WorkerParts
from kafkalite._native.tls.tls_session cimport TlsSession


cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    EVENT_READ = 1                      # select.EPOLLIN and EPOLLOUT
    EVENT_WRITE = 4
    TLS_HELLO_SIZE = 0x16030000         # what the first bytes of TLS are, read as the length of a request
    LINGER_NS = 50000                   # how long a brisk client's next request is waited for without sleeping
    LINGER_TURNS_MAX = 16               # requests served in a row before the other connections are looked at
    LINGER_SIZE_MAX = 2048              # only clients that send little at a time: throughput needs no help
    CLIENT_ID_SHOWN_MAX = 100           # bytes of a client id in a log line
    REFUSED_REQUEST = 1                 # serving a request: it is malformed or over a limit
    REFUSED_SILENTLY = 2                # it failed, and its client asked for no answer
    FRONT_SIZE_MAX = 32768              # the start of a frame that is copied so as to be read on in the worker's buffer
    WATCHED_SIZE = 40960                # received at once near the ceiling: a larger frame is asked for before it comes
    RECEIVED_MAX = 1048576              # bytes that are received of one connection in a loop turn
    TURN_BYTES_MAX = 4194304            # bytes that are sent to one in a loop turn
    SHARE_US_MAX = 2000                 # what a holder may have saved up of its share, in CPU time
    FETCHED_FACTOR = 10                 # what a Fetch request takes at most while it is served, by its size
    REQUEST_NS = 4000                   # what Produce and Fetch cost at least, and their bytes one ns each
    CROWD_MIN = 64                      # handshakes under way: the selector is not asked for more that cannot go on yet
    OVERDUE_MAX = 32                    # closed in a loop turn, since their time is over; the same of the rest


cdef class InlineShare:
    cdef object __weakref__
    cdef double left_us
    cdef double at                          # monotonic seconds of the last look


cdef class LargeBody:
    cdef void* owner
    cdef const unsigned char* data
    cdef Py_ssize_t size


cdef class WorkerResources(WorkerParts):
    cdef Py_ssize_t muted_purge_at
    cdef list muted                         # heap of (deadline, number, Connection); some speak again meanwhile
    cdef bint overdue                       # there may be more whose time is over than a turn has closed

    cdef int add_mute(self, Connection connection, double deadline) except -1
    cdef int expire_mutes(self) except -1
    cdef int begin_handshake(self, Connection connection, bint again=*) except -1
    cdef bint is_full_for(self, object network) except -1
    cdef int end_handshake(self, Connection connection) except -1
    cdef int close_oldest(self, str reason, tuple values) except -1
    cdef int expire_handshakes(self) except -1
    cdef int give_up(self, object item) except -1


cdef class Connection:
    cdef WorkerResources io
    cdef readonly object socket             # keeps the descriptor alive
    cdef readonly int fd
    cdef readonly str client_host
    cdef readonly int client_port
    cdef readonly object listener           # the Listener that accepted it
    cdef public object principal            # who the client is; the authoriser's seam
    cdef AccessView view                    # what that may do; of the principal at the last look
    cdef public str software_name           # from ApiVersions 3+, "" before
    cdef public str software_version
    cdef FrameBuffer received               # and not served yet
    cdef readonly AnswerQueue answers       # that are owed
    cdef readonly Throttle throttle         # None: no quota has counted, and it was never muted
    cdef list plans                         # FetchPlan objects that may still be parked; None: there were none
    cdef int interest                       # events of epoll asked for; 0: it is not asked
    cdef int32_t in_flight_max              # above it the connection is not read
    cdef int32_t frame_size_min
    cdef int32_t frame_size_max
    cdef bint paused                        # not reading: too much is owed, it is muted, or the next request is early
    cdef bint waits_turn                    # paused until nothing is owed
    cdef readonly bint closed
    cdef public bint answer_lost            # there was no memory for an answer: its worker closes it soon
    cdef readonly double last_active        # monotonic seconds of the last byte received or sent
    cdef int64_t answered_ns                # when the last turn ended, 0 unknown
    cdef bint brisk                         # the client asks again within LINGER_NS of its answer
    cdef TlsSession tls                     # None on a listener without TLS
    cdef readonly tuple tls_suite           # (protocol, cipher suite) agreed on, where requests are counted
    cdef bint failed                        # it waits for its close, and is neither read nor served
    cdef bint awaited                       # it is one of `handshake_count`
    cdef LowWater low_water                 # of the socket, with TLS
    cdef double turn_of                     # `io.now` of the loop turn that the next two are of
    cdef int64_t turn_left_ns               # of this connection's share of it
    cdef bint first                         # the request being served is the first of what was received together
    cdef public InlineShare share           # of its holder; None: it has asked for nothing that is charged
    cdef bint gives_way                     # paused until the other connections had their turn
    cdef ProduceRun run                     # the request that is served in turns; None: none is
    cdef bint starved                       # paused until its holder holds less
    cdef bint filled                        # the last recv took as much as it could: there may be more

    cdef int on_readable(self) except -1
    cdef int serve_received(self, Py_ssize_t size) except -1
    cdef int note_pace(self, Py_ssize_t received) except -1
    cdef int set_brisk(self, bint brisk) except -1
    cdef Py_ssize_t receive_some(self, unsigned char* target, Py_ssize_t size) except -2
    cdef Py_ssize_t open_sealed(self, Py_ssize_t size, unsigned char* target, Py_ssize_t room) except -2
    cdef int admit(self) except -1
    cdef int fail(self, str problem) except -1
    cdef int pause(self) except -1
    cdef int note_frame(self) except -1
    cdef int starve(self) except -1
    cdef int give_way(self, object queue) except -1
    cdef int refuse_size(self, int32_t size) except -1
    cdef int end(self) except -1
    cdef Py_ssize_t serve_frames(self, unsigned char* data, Py_ssize_t size) except -1
    cdef int serve(self, unsigned char* frame, Py_ssize_t size) except -1
    cdef int throttle_for(self, int16_t key, int32_t ms, int32_t before) except -1
    cdef int serve_other(self, int16_t key, int16_t version, int32_t correlation_id, bytes client_id,
                         unsigned char* body, Py_ssize_t size) except -1
    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1
    cdef int grow_pending(self, Py_ssize_t capacity) except -1
    cdef Answer enqueue(self)
    cdef int requeue_out(self, Py_ssize_t start) except -1
    cdef int serve_pending(self) except -1
    cdef int write_out(self) except -1
    cdef Py_ssize_t write_sealed(self) except -1
    cdef int settle(self) except -1
    cdef int refuse(self, str reason, tuple values=*, bytes client_id=*) except -1
    cdef int drain_queue(self) except -1
    cdef bint told(self, int result) except -1
    cdef int set_interest(self, int events) except -1


# The view of what the client may do; None: there is no authoriser.
cdef AccessView access_of(Connection connection)
# What the client calls itself, for a log line.
cdef str name_for_log(Connection connection, bytes client_id)
