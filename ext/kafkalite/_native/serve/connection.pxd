"""Serve a client connection: receive frames, serve their requests, and send responses in order."""

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
    TLS_HELLO_SIZE = 0x16030000         # the first bytes of a TLS handshake, read as a request length
    LINGER_NS = 50000                   # how long to poll for a brisk client's next request before sleeping
    LINGER_TURNS_MAX = 16               # requests served in a row before the other connections are checked
    LINGER_SIZE_MAX = 2048              # larger receives make no client brisk: throughput does not profit
    CLIENT_ID_SHOWN_MAX = 100           # bytes of a client id in a log line
    REFUSED_REQUEST = 1                 # the request is malformed or over a limit
    REFUSED_SILENTLY = 2                # the request failed, and its client expects no response
    FRONT_SIZE_MAX = 32768              # a longer start of a frame is not copied to the worker's buffer
    WATCHED_SIZE = 40960  # most bytes received at once near the memory ceiling, where larger frames are charged first
    RECEIVED_MAX = 1048576              # most bytes received from one connection in a loop turn
    TURN_BYTES_MAX = 4194304            # most bytes sent to one connection in a loop turn
    SHARE_US_MAX = 2000                 # most CPU time that a holder's share can accumulate
    FETCHED_FACTOR = 10                 # most memory that serving a Fetch request takes, by its size
    REQUEST_NS = 4000                   # least cost of Produce and Fetch; each byte adds 1 ns
    CROWD_MIN = 64                      # with more handshakes, those that must wait leave the selector
    OVERDUE_MAX = 32                    # most connections closed for a timeout in a loop turn


cdef class InlineShare:
    cdef object __weakref__
    cdef double left_us
    cdef double at                          # monotonic seconds of the last update


cdef class LargeBody:
    cdef void* owner
    cdef const unsigned char* data
    cdef Py_ssize_t size


cdef class WorkerResources(WorkerParts):
    cdef Py_ssize_t muted_purge_at
    cdef list muted                         # heap of (deadline, number, Connection); some entries are outdated
    cdef bint overdue                       # a turn's limit of timeouts was reached: there may be more

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
    cdef public object principal            # the authenticated client; the authorizer uses it
    cdef AccessView view                    # the permissions of the principal at the last look
    cdef public str software_name           # from ApiVersions 3+, "" before
    cdef public str software_version
    cdef FrameBuffer received               # bytes that are not served yet
    cdef readonly AnswerQueue answers       # the responses that are owed
    cdef readonly Throttle throttle         # None: no quota applied yet, and it was never muted
    cdef list plans                         # FetchPlan objects that may be parked; None: none yet
    cdef int interest                       # registered epoll events; 0: not registered
    cdef int32_t in_flight_max              # with more responses in flight, it is not read
    cdef int32_t frame_size_min
    cdef int32_t frame_size_max
    cdef bint paused                        # not read: too much is owed, it is muted, or its next request must wait
    cdef bint waits_turn                    # paused until nothing is owed
    cdef readonly bint closed
    cdef public bint answer_lost            # there was no memory for a response: its worker closes it soon
    cdef readonly double last_active        # monotonic seconds of the last byte received or sent
    cdef int64_t answered_ns                # when the last turn ended, 0: unknown
    cdef bint brisk                         # the client sends its next request within LINGER_NS of the response
    cdef TlsSession tls                     # None on a listener without TLS
    cdef readonly tuple tls_suite           # the agreed (protocol, cipher suite), where requests are counted
    cdef bint failed                        # it is about to be closed, and neither read nor served
    cdef bint awaited                       # counted in `handshake_count`
    cdef LowWater low_water                 # of the socket, with TLS
    cdef double turn_of                     # `io.now` of the loop turn to which the next two belong
    cdef int64_t turn_left_ns               # the rest of this connection's share of the turn
    cdef bint first                         # the current request is the first of those received together
    cdef public InlineShare share           # of its holder; None: nothing was charged yet
    cdef bint gives_way                     # paused until the other connections have had a turn
    cdef ProduceRun run                     # the request that is served in turns, or None
    cdef bint starved                       # paused until its holder holds less memory
    cdef bint filled                        # the last recv filled its buffer: there may be more

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


# The view of the client's permissions; None: there is no authorizer.
cdef AccessView access_of(Connection connection)
# The client's names for itself, for a log line.
cdef str name_for_log(Connection connection, bytes client_id)
