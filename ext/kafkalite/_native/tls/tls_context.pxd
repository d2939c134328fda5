"""Declare a TLS listener's certificates, keys and settings, which are in OpenSSL's memory."""

from kafkalite._native.tls.libssl cimport BIO, EVP_PKEY, SSL_CTX, X509, X509_CRL, kl_libssl

cdef enum:
    HANDSHAKE_MESSAGE_SIZE_MAX = 32768      # a hello, a client's chain: as Java's jdk.tls.maxHandshakeMessageSize

cdef kl_libssl* tls_library() except NULL
cdef str tls_error(const char* otherwise)
cdef bytes subject_of(X509* certificate)


cdef class TlsContext:
    cdef SSL_CTX* context


cdef class CertificateStore:
    cdef X509** certificates        # of a KeyStore: the leaf first
    cdef Py_ssize_t count
    cdef int add(self, X509* certificate) except -1
    cdef int write(self, kl_libssl* ssl, BIO* bio) noexcept


cdef class KeyStore(CertificateStore):
    cdef EVP_PKEY* key
    cdef int take_pkcs12(self, bytes data, bytes password) except -1
    cdef void order_chain(self, kl_libssl* ssl) noexcept
    cdef bint is_rsa(self) noexcept


cdef class TrustStore(CertificateStore):
    cdef X509_CRL** revocations
    cdef Py_ssize_t revocation_count
