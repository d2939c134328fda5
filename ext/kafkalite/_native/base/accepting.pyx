"""Accept connections from a listening socket with one system call each, and without a Python socket object.

Python's `socket.accept` makes four system calls and creates three enums per connection. A network worker needs only the
file descriptor.
"""

cimport cython
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, EPROTO, errno
from libc.string cimport memcmp

import os

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct sockaddr:
        unsigned short sa_family
    struct sockaddr_storage:
        pass
    int c_accept "accept4"(int fd, sockaddr* address, socklen_t* size, int flags)
    enum: AF_INET
    enum: AF_INET6
    enum: SOCK_NONBLOCK
    enum: SOCK_CLOEXEC

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        pass
    struct in6_addr:
        pass
    struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        unsigned short sin6_port
        in6_addr sin6_addr
        unsigned int sin6_scope_id

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* source, char* target, socklen_t size)
    unsigned short ntohs(unsigned short number)

cdef extern from "<net/if.h>" nogil:
    char* if_indextoname(unsigned int number, char* name)
    enum: IF_NAMESIZE

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef enum:
    ADDRESS_TEXT_MAX = 64

cdef unsigned char[12] MAPPED = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]      # IPv4 inside IPv6


@cython.final
cdef class AcceptedSocket:
    """An accepted, non-blocking connection. The descriptor is closed by `close` or with this object."""
    cdef int fd

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def fileno(self):
        """Return the file descriptor, or -1 after `close`."""
        return self.fd

    def close(self):
        """Close the descriptor. A second call does nothing."""
        cdef int fd = self.fd
        self.fd = -1
        if fd >= 0:
            with nogil:
                c_close(fd)


def accept(int listening):
    """Return (socket, address, port) of the next waiting connection, or None if no connection waits.

    `listening` is a non-blocking descriptor. An IPv4 client of an IPv6 listener gets its IPv4 address. Raises OSError
    if the system is out of descriptors or memory.
    """
    cdef sockaddr_storage address
    cdef socklen_t size = sizeof(sockaddr_storage)
    cdef AcceptedSocket accepted
    cdef int fd
    while True:
        fd = c_accept(listening, <sockaddr*>&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd >= 0:
            break
        if errno == EAGAIN:
            return None
        if errno not in (EINTR, ECONNABORTED, EPROTO):      # it was gone again: the next one
            raise OSError(errno, os.strerror(errno))
        size = sizeof(sockaddr_storage)
    accepted = AcceptedSocket.__new__(AcceptedSocket)
    accepted.fd = fd
    if (<sockaddr*>&address).sa_family == AF_INET:
        return accepted, text_of(AF_INET, &(<sockaddr_in*>&address).sin_addr), ntohs((<sockaddr_in*>&address).sin_port)
    return accepted, text_of_ipv6(<sockaddr_in6*>&address), ntohs((<sockaddr_in6*>&address).sin6_port)


cdef str text_of(int family, const void* address):
    cdef char[ADDRESS_TEXT_MAX] text
    if inet_ntop(family, address, text, ADDRESS_TEXT_MAX) == NULL:
        raise OSError(errno, os.strerror(errno))
    return text.decode("ascii")


cdef str text_of_ipv6(sockaddr_in6* address):
    cdef const unsigned char* data = <const unsigned char*>&address.sin6_addr
    cdef char[IF_NAMESIZE] name
    if memcmp(data, MAPPED, 12) == 0:
        return text_of(AF_INET, data + 12)
    if address.sin6_scope_id == 0:
        return text_of(AF_INET6, data)
    if if_indextoname(address.sin6_scope_id, name) == NULL:
        return f"{text_of(AF_INET6, data)}%{address.sin6_scope_id}"
    return f"{text_of(AF_INET6, data)}%{name.decode()}"
