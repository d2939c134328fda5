"""Encrypt and decrypt one connection's bytes: libssl works directly on the worker's buffers, and never blocks.

    recv ─▶ sealed ─▶ [link.received ─▶ libssl] ─▶ the buffer of frames             open()
    responses, file ranges ─▶ plain ─▶ [libssl ─▶ link.out] ─▶ socket               send(), push()

The buffer `unsent` keeps the bytes that the socket does not accept.

libssl does not use the socket. It reads and writes through a BIO whose two ends are buffers of the connection's worker.

Limits protect against hostile peers: see the constants `..._MAX`.

Thread rule: a session belongs to its connection's worker. Long calls to libssl run without the GIL.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from kafkalite._native.base.mapped_faults cimport fault_raised
from kafkalite._native.tls.libssl cimport (
    BIO, BIO_METHOD, KL_BIO_CTRL_FLUSH, KL_BIO_FLAGS_READ, KL_BIO_FLAGS_SHOULD_RETRY,
    KL_BIO_TYPE_SOURCE_SINK, KL_CTRL_CLEAR_MODE, KL_CTRL_MODE, KL_ERROR_WANT_READ, KL_ERROR_ZERO_RETURN,
    KL_KEY_UPDATE_NOT_REQUESTED, KL_MODE_RELEASE_BUFFERS, KL_TLS1_3, X509, kl_libssl,
)
from kafkalite._native.tls.tls_context cimport (
    HANDSHAKE_MESSAGE_SIZE_MAX, TlsContext, subject_of, tls_error, tls_library,
)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* buf, size_t size, int flags)
    enum: MSG_NOSIGNAL
    enum: MSG_DONTWAIT

cdef enum:
    OUT_CAPACITY_AT_FIRST = 32768
    PIECE_SIZE_MIN = 16384              # sealed at once for a peer that does not keep up
    PIECE_SIZE_MAX = 262144             # and for one that does
    UNSENT_MAX = 524288                 # kept for a peer that does not read what the protocol itself must tell it
    STALLED_BYTES_MAX = 268435456       # kept for all peers: above it, pieces are small
    HANDSHAKE_BYTES_MAX = 262144        # received before a handshake is done
    CHANGE_CIPHER_SPEC = 20             # types of records
    HANDSHAKE = 22
    RECORD_HEADER_SIZE = 5
    MESSAGE_HEADER_SIZE = 4
    QUICK_SIZE_MAX = 4096               # received: so little is decrypted sooner than the GIL is handed over
    BARREN_BYTES_MAX = 65536            # received in a row without data (key updates, empty records)
    DATA_WORTH = 32                     # bytes without data that one with data makes up for
    RECORDS_PER_KEY_MAX = 8388608       # RFC 8446 5.5, with room to spare for AES-GCM

cdef kl_libssl* ssl_library = NULL
cdef BIO_METHOD* method = NULL
cdef int64_t stalled_bytes = 0


cdef int link_read(BIO* bio, char* target, size_t size, size_t* taken) noexcept nogil:
    """Give libssl received bytes. If there are none, it may retry later; the BIO's flags say so permanently."""
    cdef TlsLink* link = <TlsLink*>ssl_library.BIO_get_data(bio)
    taken[0] = min(size, link.received_size)
    if taken[0] == 0:
        return 0
    if not follow(link, link.received, taken[0]):
        taken[0] = 0
        return 0
    memcpy(target, link.received, taken[0])
    link.received += taken[0]
    link.received_size -= taken[0]
    return 1


cdef inline bint follow(TlsLink* link, const unsigned char* data, size_t size) noexcept nogil:
    """Follow the record headers in bytes for libssl. Return False if a handshake message in them is too large.

    libssl reads a header and its body separately, so the loop usually runs once.
    """
    cdef TlsCut* cut = link.cut
    cdef unsigned int part
    while size > 0:
        if cut.body_left > 0:
            part = <unsigned int>min(size, <size_t>cut.body_left)
            if not cut.sealed and cut.header[0] == HANDSHAKE and not follow_messages(cut, data, part):
                return False
            cut.body_left -= part
        else:
            part = <unsigned int>min(size, <size_t>(RECORD_HEADER_SIZE - cut.header_size))
            memcpy(cut.header + cut.header_size, data, part)
            cut.header_size += part
            if cut.header_size == RECORD_HEADER_SIZE:
                cut.header_size = 0
                cut.body_left = <unsigned int>cut.header[3] << 8 | cut.header[4]
                if cut.header[0] == CHANGE_CIPHER_SPEC and ssl_library.SSL_version(link.ssl) != KL_TLS1_3:
                    cut.sealed = True   # in TLS 1.3 it says nothing, and what is sealed does not look like a handshake
        data += part
        size -= part
    return True


cdef bint follow_messages(TlsCut* cut, const unsigned char* data, unsigned int size) noexcept nogil:
    """Follow the handshake messages in a record. Return False if one is too large.

    libssl would allocate memory by the size in a message's header.
    """
    cdef unsigned int part
    while size > 0:
        if cut.message_left > 0:
            part = min(size, cut.message_left)
            cut.message_left -= part
        else:
            part = min(size, <unsigned int>(MESSAGE_HEADER_SIZE - cut.message_size))
            memcpy(cut.message + cut.message_size, data, part)
            cut.message_size += part
            if cut.message_size == MESSAGE_HEADER_SIZE:
                cut.message_size = 0
                cut.message_left = (<unsigned int>cut.message[1] << 16 | <unsigned int>cut.message[2] << 8
                                    | cut.message[3])
                if cut.message_left > HANDSHAKE_MESSAGE_SIZE_MAX:
                    cut.excessive = True
                    return False
        data += part
        size -= part
    return True


cdef int link_write(BIO* bio, const char* source, size_t size, size_t* taken) noexcept nogil:
    cdef TlsLink* link = <TlsLink*>ssl_library.BIO_get_data(bio)
    cdef size_t capacity = link.out_capacity
    cdef unsigned char* larger
    taken[0] = 0
    if link.out_size + size > capacity:
        while capacity < link.out_size + size:
            capacity *= 2
        larger = <unsigned char*>realloc(link.out, capacity)
        if larger == NULL:
            return 0
        link.out = larger
        link.out_capacity = capacity
    memcpy(link.out + link.out_size, source, size)
    link.out_size += size
    taken[0] = size
    return 1


cdef inline int send_all(int fd, const unsigned char** start, size_t* left) noexcept nogil:
    """Send until all is sent, moving `start` and `left`; return 0, or the errno that stopped it."""
    cdef ssize_t n
    while left[0] > 0:
        n = c_send(fd, start[0], left[0], MSG_NOSIGNAL | MSG_DONTWAIT)
        if n >= 0:
            start[0] += n
            left[0] -= <size_t>n
        elif errno != EINTR:
            return errno
    return 0


cdef long link_control(BIO* bio, int command, long number, void* data) noexcept nogil:
    return 1 if command == KL_BIO_CTRL_FLUSH else 0


@cython.final
cdef class TlsBuffers:
    """The buffers that the TLS connections of one worker share. Creating them loads the library."""

    def __cinit__(self):
        global ssl_library, method
        cdef kl_libssl* ssl = tls_library()
        if method == NULL:
            method = ssl.BIO_meth_new(ssl.BIO_get_new_index() | KL_BIO_TYPE_SOURCE_SINK, b"kafkalite")
            if method == NULL:
                raise MemoryError
            ssl.BIO_meth_set_read_ex(method, link_read)
            ssl.BIO_meth_set_write_ex(method, link_write)
            ssl.BIO_meth_set_ctrl(method, link_control)
            ssl_library = ssl
        self.sealed = <unsigned char*>malloc(TLS_CAPACITY)
        self.plain = <unsigned char*>malloc(TLS_CAPACITY)
        self.link.out = <unsigned char*>malloc(OUT_CAPACITY_AT_FIRST)
        self.link.out_capacity = OUT_CAPACITY_AT_FIRST
        if self.sealed == NULL or self.plain == NULL or self.link.out == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.sealed)
        free(self.plain)
        free(self.link.out)


@cython.final
cdef class TlsSession:
    """The TLS session of one connection. It uses no memory of libssl before the client has sent something."""

    def __cinit__(self, TlsContext context not None, TlsBuffers buffers not None):
        self.context = context
        self.buffers = buffers
        self.piece_size = PIECE_SIZE_MIN

    def __dealloc__(self):
        global stalled_bytes
        stalled_bytes -= self.unsent_size
        free(self.unsent)
        if self.ssl != NULL:
            ssl_library.SSL_free(self.ssl)

    @property
    def version(self):
        """The negotiated protocol version, such as TLSv1.3."""
        return ssl_library.SSL_get_version(self.ssl).decode()

    @property
    def cipher(self):
        """The IANA name of the negotiated cipher suite."""
        return ssl_library.SSL_CIPHER_standard_name(ssl_library.SSL_get_current_cipher(self.ssl)).decode()

    @property
    def resumed(self):
        """Whether the client resumed a session with a ticket."""
        return bool(ssl_library.SSL_session_reused(self.ssl))

    @property
    def peer_subject(self):
        """The subject of the client's certificate, as the DER of an X.501 Name; None without a certificate."""
        cdef X509* certificate = ssl_library.SSL_get1_peer_certificate(self.ssl)
        if certificate == NULL:
            return None
        try:
            return subject_of(certificate)
        finally:
            ssl_library.X509_free(certificate)

    cdef int begin(self) except -1:
        """Create libssl's object at the first bytes. Until then, the connection uses no memory of libssl."""
        cdef BIO* bio
        self.ssl = ssl_library.SSL_new(self.context.context)
        bio = NULL if self.ssl == NULL else ssl_library.BIO_new(method)
        if bio == NULL:
            raise MemoryError
        ssl_library.BIO_set_data(bio, &self.buffers.link)
        ssl_library.BIO_set_init(bio, 1)
        ssl_library.BIO_set_flags(bio, KL_BIO_FLAGS_READ | KL_BIO_FLAGS_SHOULD_RETRY)
        ssl_library.SSL_set_bio(self.ssl, bio, bio)
        ssl_library.SSL_set_accept_state(self.ssl)
        return 0

    cdef Py_ssize_t open(self, Py_ssize_t size, unsigned char* target, Py_ssize_t room) except -1:
        """Decrypt `size` bytes of `buffers.sealed` into `target`; return how many bytes this gave.

        libssl keeps at most one incomplete record (TLS_HELD_MAX bytes), and plaintext is never longer than its
        ciphertext. So a caller with room for n bytes receives at most n - TLS_HELD_MAX bytes. Then libssl keeps no
        complete data, of which the selector would not know.

        Afterwards `link.out` contains libssl's own messages (of a handshake, or an alert), which push() sends. `ended`
        is set if no more data can come.
        """
        cdef TlsLink* link = &self.buffers.link
        cdef size_t done = 0
        cdef int code
        link.received = self.buffers.sealed
        link.received_size = <size_t>size
        link.cut = &self.cut
        link.out_size = 0
        self.barren += size
        if self.ssl == NULL:
            problem = self.mistake()
            if problem is not None:
                return self.end(problem)
            self.begin()
        link.ssl = self.ssl
        if ssl_library.ERR_peek_error() != 0:
            ssl_library.ERR_clear_error()
        if not self.established and not self.handshake():
            return 0
        if size <= QUICK_SIZE_MAX:
            code = self.unseal(target, <size_t>room, &done)
        else:
            with nogil:
                code = self.unseal(target, <size_t>room, &done)
        self.barren = max(<int64_t>0, self.barren - <int64_t>done * DATA_WORTH)
        if code == KL_ERROR_ZERO_RETURN:
            self.ended = True
        elif code != KL_ERROR_WANT_READ:
            self.end(tls_error(b"invalid TLS record"))
        elif self.barren > BARREN_BYTES_MAX:
            self.end("too many empty TLS records in a row")
        return <Py_ssize_t>done

    cdef int unseal(self, unsigned char* target, size_t room, size_t* done) noexcept nogil:
        """Decrypt the bytes in the link. Return libssl's code for why there is no more; WANT_READ is not an error."""
        cdef size_t taken = 0
        cdef int code = KL_ERROR_WANT_READ
        if not self.keeps:
            # What libssl receives into is kept from record to record, and given back when all are read.
            ssl_library.SSL_ctrl(self.ssl, KL_CTRL_CLEAR_MODE, KL_MODE_RELEASE_BUFFERS, NULL)
        while done[0] < room:
            if not ssl_library.SSL_read_ex(self.ssl, target + done[0], room - done[0], &taken):
                code = ssl_library.SSL_get_error(self.ssl, 0)
                break
            done[0] += taken
            if self.buffers.link.received_size == 0:
                break                       # a record was whole, so that libssl has nothing more either
        if not self.keeps:
            ssl_library.SSL_ctrl(self.ssl, KL_CTRL_MODE, KL_MODE_RELEASE_BUFFERS, NULL)
            self.release()
        return code

    cdef void release(self) noexcept nogil:
        """Free libssl's buffers, but only between two records.

        libssl before 3.0.14 would also free the buffer of a partial record, and use it afterwards (CVE-2024-4741).
        """
        if self.ssl != NULL and self.cut.header_size == 0 and self.cut.body_left == 0:
            ssl_library.SSL_free_buffers(self.ssl)

    cdef void keep_buffers(self, bint keeps) noexcept:
        """Set whether libssl keeps its buffers (34 KB) between requests, instead of allocating them for each
        request."""
        if keeps != self.keeps and self.established:
            self.keeps = keeps
            ssl_library.SSL_ctrl(
                self.ssl, KL_CTRL_CLEAR_MODE if keeps else KL_CTRL_MODE, KL_MODE_RELEASE_BUFFERS, NULL)
            if not keeps:
                self.release()

    cdef int handshake(self) except -1:
        """Continue the handshake with the received bytes. Return 1 when it is complete."""
        cdef int result, code
        with nogil:
            result = ssl_library.SSL_do_handshake(self.ssl)
            code = ssl_library.SSL_get_error(self.ssl, result)
        if result == 1:
            self.established = True
            self.cut.sealed = True
            self.barren = 0
            return 1
        if code != KL_ERROR_WANT_READ:
            verified = ssl_library.SSL_get_verify_result(self.ssl)
            problem = tls_error(b"no agreement")
            if verified != 0:
                problem = f"{problem}: {ssl_library.X509_verify_cert_error_string(verified).decode()}"
            self.end(problem)
        elif self.cut.excessive:
            self.end(f"a handshake message is larger than {<int>HANDSHAKE_MESSAGE_SIZE_MAX} bytes")
        elif self.barren > HANDSHAKE_BYTES_MAX:
            self.end(f"the handshake is larger than {<int>HANDSHAKE_BYTES_MAX} bytes")
        return 0

    cdef int end(self, str problem) except -1:
        self.ended = True
        self.problem = problem
        return 0

    cdef str mistake(self):
        """Name the protocol of a client on the wrong port by its first bytes, for the log. Return None if it may be
        TLS."""
        cdef const unsigned char* data = self.buffers.sealed
        if data[0] == 22:
            return None
        if data[0] == 0:
            return "plaintext Kafka request on a TLS listener; check the client's security.protocol"
        if self.buffers.link.received_size >= 4 and (
                memcmp(data, b"GET ", 4) == 0 or memcmp(data, b"POST", 4) == 0 or memcmp(data, b"HEAD", 4) == 0):
            return "HTTP request on a TLS listener for the Kafka protocol"
        if self.buffers.link.received_size >= 4 and memcmp(data, b"SSH-", 4) == 0:
            return "SSH connection on a TLS listener for the Kafka protocol"
        return f"not a TLS record: it begins with byte {data[0]}"

    cdef Py_ssize_t send(self, int fd, const unsigned char* plain, Py_ssize_t size, const int* fault=NULL) except -2:
        """Encrypt and send. Return how many bytes of `plain` are done, or -1 on failure, such as a closed connection.

        If the socket is full, fewer than `size` bytes are done and `unsent_size` is not 0. Nothing more is accepted
        until push() has sent these bytes. `fault` is the flag of the map that contains `plain`, if one does. If it is
        set, nothing is sent and -1 is returned.
        """
        cdef TlsLink* link = &self.buffers.link
        cdef Py_ssize_t done = 0, piece
        cdef const unsigned char* start = NULL
        cdef size_t taken = 0, left = 0
        cdef int sealed, result, error = 0
        result = self.flush(fd)
        if result <= 0:
            return result
        while done < size:
            piece = min(size - done, self.piece_size)
            self.record_count += (piece + TLS_RECORD_SIZE - 1) // TLS_RECORD_SIZE
            link.out_size = 0
            if self.record_count > RECORDS_PER_KEY_MAX:
                self.record_count = 0
                if ssl_library.SSL_version(self.ssl) == KL_TLS1_3:
                    ssl_library.SSL_key_update(self.ssl, KL_KEY_UPDATE_NOT_REQUESTED)
            with nogil:
                sealed = ssl_library.SSL_write_ex(self.ssl, plain + done, <size_t>piece, &taken)
                if sealed and (fault == NULL or not fault_raised(fault)):
                    start, left = link.out, link.out_size
                    error = send_all(fd, &start, &left)
                else:
                    error = -1
            if error == -1:
                link.out_size = 0
                self.end("a file could not be read" if sealed else tls_error(b"sealing failed"))
                return -1
            done += piece
            result = self.pushed(start, left, error)
            if result < 0:
                return -1
            if result == 0:
                self.piece_size = PIECE_SIZE_MIN
                break
            if self.piece_size < PIECE_SIZE_MAX and stalled_bytes < STALLED_BYTES_MAX:
                self.piece_size *= 2
        return done

    cdef int flush(self, int fd) except -2:
        """Send the bytes that the socket did not accept before. Return 1: all sent; 0: the socket is full; -1:
        failed."""
        self.buffers.link.out_size = 0
        return 1 if self.unsent_size == 0 else self.push(fd)

    cdef int push(self, int fd) except -2:
        """Send the kept bytes, then those that libssl has just written. Returns as flush() does."""
        cdef TlsLink* link = &self.buffers.link
        cdef const unsigned char* start
        cdef size_t left
        cdef int error
        if self.unsent_size > 0 and link.out_size > 0:
            self.keep(link.out, <Py_ssize_t>link.out_size)
            link.out_size = 0
        start = self.unsent if self.unsent_size > 0 else link.out
        left = <size_t>self.unsent_size if self.unsent_size > 0 else link.out_size
        with nogil:
            error = send_all(fd, &start, &left)
        return self.pushed(start, left, error)

    cdef int pushed(self, const unsigned char* start, size_t left, int error) except -2:
        """Handle the result of sending: `left` bytes from `start` on are unsent. Returns as flush() does."""
        global stalled_bytes
        self.buffers.link.out_size = 0
        if left > 0 and error != EAGAIN:
            return -1
        if self.unsent_size > 0:
            stalled_bytes -= self.unsent_size - <Py_ssize_t>left
            memmove(self.unsent, start, left)
            self.unsent_size = <Py_ssize_t>left
        elif left > 0:
            self.keep(start, <Py_ssize_t>left)
        if self.unsent_size == 0 and self.unsent != NULL:
            free(self.unsent)
            self.unsent = NULL
            self.unsent_capacity = 0
        if self.unsent_size > UNSENT_MAX:
            self.end("the client sends requests but does not read responses")
            return -1
        return left == 0

    cdef int keep(self, const unsigned char* sealed, Py_ssize_t size) except -1:
        global stalled_bytes
        cdef unsigned char* larger
        if self.unsent_size + size > self.unsent_capacity:
            larger = <unsigned char*>realloc(self.unsent, <size_t>(self.unsent_size + size))
            if larger == NULL:
                raise MemoryError
            self.unsent = larger
            self.unsent_capacity = self.unsent_size + size
        memcpy(self.unsent + self.unsent_size, sealed, <size_t>size)
        self.unsent_size += size
        stalled_bytes += size
        return 0

    cdef void say_goodbye(self, int fd) noexcept:
        """Send the end of the session (close_notify), if the socket accepts it at once."""
        cdef TlsLink* link = &self.buffers.link
        if not self.established or self.unsent_size > 0 or self.problem is not None:
            return
        link.out_size = 0
        ssl_library.ERR_clear_error()
        if ssl_library.SSL_shutdown(self.ssl) >= 0 and link.out_size > 0:
            c_send(fd, link.out, link.out_size, MSG_NOSIGNAL | MSG_DONTWAIT)
        link.out_size = 0


def stalled():
    """Return the encrypted bytes kept in all sessions because sockets did not accept them."""
    return stalled_bytes
