"""Build a listener's TLS context from its settings, and from keys and certificates in PEM or PKCS#12.

    bytes ─▶ KeyStore, TrustStore ─▶ TlsContext ─▶ one TlsSession per connection (tls_session.pyx)

The first use loads OpenSSL; ImportError is raised if it is missing. This module opens no file: libcrypto parses the
stores from bytes. Invalid contents raise ValueError with the reason. kafkalite/security/ checks validity periods and
maps certificates to principals.

Thread rule: create and read objects with the GIL. Threads may share a TlsContext, because OpenSSL counts its
references.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memset, strncmp

from kafkalite._native.tls.libssl cimport (
    ASN1_STRING, ASN1_TIME, BIO, KL_BIO_CTRL_INFO, KL_CRL_CHECK_ALL, KL_CTRL_CHAIN_CERT, KL_CTRL_MAX_CERT_LIST,
    KL_CTRL_MAX_PROTO_VERSION, KL_CTRL_MIN_PROTO_VERSION, KL_CTRL_MODE, KL_CTRL_SESS_CACHE_MODE, KL_INIT_NO_ATEXIT,
    KL_LIBSSL_OLDEST, KL_MODE_RELEASE_BUFFERS, KL_NID_KX_DHE, KL_NID_KX_ECDHE, KL_NID_SUBJECT_ALT_NAME,
    KL_OP_CIPHER_SERVER_PREFERENCE, KL_OP_NO_COMPRESSION, KL_OP_NO_RENEGOTIATION, KL_SESS_CACHE_OFF, KL_TLS1_2,
    KL_TLS1_3, KL_VERIFY_FAIL_IF_NO_PEER_CERT, KL_VERIFY_PEER, OPENSSL_STACK, PKCS12, SSL_CIPHER, SSL_CTX, X509,
    X509_CRL, X509_NAME, X509_STORE, kl_libssl, kl_libssl_load, kl_pem_password, stack_st_X509, timegm, tm,
)

cdef enum:
    CHAIN_DEPTH_MAX = 10                    # certificates between a client's and a trusted one

cpdef enum:
    STORE_SIZE_MAX = 16777216               # bytes: a larger file is no store

cdef bytes OF_TLS_1_3 = b"TLS_"           # what OpenSSL's names of its suites begin with, and of no others

PROTOCOLS = {"TLSv1.2": KL_TLS1_2, "TLSv1.3": KL_TLS1_3}
"""The supported TLS versions, by Kafka's names."""

cdef kl_libssl table
cdef bint loaded = False


cdef kl_libssl* tls_library() except NULL:
    """Load OpenSSL once, and return its functions. Raises ImportError without OpenSSL 3.0 or newer."""
    global loaded
    cdef const char* missing
    if loaded:
        return &table
    missing = kl_libssl_load(&table)
    if missing != NULL:
        raise ImportError(
            f"TLS requires OpenSSL 3, but {missing.decode()} is missing; install the package libssl3 or openssl-libs")
    if table.OpenSSL_version_num() < KL_LIBSSL_OLDEST:
        raise ImportError(f"TLS requires OpenSSL 3, but this machine has {table.OpenSSL_version(0).decode()}")
    # Worker threads may be inside the library when the process ends, so it must not clean up behind their backs.
    table.OPENSSL_init_ssl(KL_INIT_NO_ATEXIT, NULL)
    loaded = True
    return &table


cdef str tls_error(const char* otherwise):
    """Return OpenSSL's reason why this thread's last call failed, or `otherwise`; clear OpenSSL's error queue."""
    cdef unsigned long code, first = 0
    cdef const char* reason = NULL
    while True:
        code = table.ERR_get_error()
        if code == 0:
            break
        if first == 0:
            first = code
    if first != 0:
        reason = table.ERR_reason_error_string(first)
    return (otherwise if reason == NULL else reason).decode("utf-8", "replace")


def library_version():
    """Load the library; return its name and version."""
    return tls_library().OpenSSL_version(0).decode()


def cipher_name(str standard_name not None):
    """Return OpenSSL's name of a cipher suite, given the IANA name, which Kafka uses. None if OpenSSL lacks it."""
    cdef kl_libssl* ssl = tls_library()
    cdef bytes encoded = standard_name.encode()
    cdef const char* found = ssl.OPENSSL_cipher_name(encoded)
    name = found.decode()
    return None if name == "(NONE)" else name


cdef BIO* open_bytes(kl_libssl* ssl, bytes data) except NULL:
    cdef BIO* bio
    if PyBytes_GET_SIZE(data) > STORE_SIZE_MAX:
        raise ValueError("it is too large for a key store or trust store")
    bio = ssl.BIO_new_mem_buf(PyBytes_AS_STRING(data), <int>PyBytes_GET_SIZE(data))
    if bio == NULL:
        raise MemoryError
    return bio


cdef bytes written(kl_libssl* ssl, BIO* bio):
    """Return a copy of the bytes in a memory BIO."""
    cdef char* data = NULL
    cdef long size = ssl.BIO_ctrl(bio, KL_BIO_CTRL_INFO, 0, &data)
    return PyBytes_FromStringAndSize(data, size)


cdef list read_certificates(kl_libssl* ssl, bytes data, CertificateStore store):
    """Add each certificate of a PEM text to a store. Raises ValueError if one is damaged or there is none."""
    cdef BIO* bio = open_bytes(ssl, data)
    cdef X509* certificate
    cdef int count = 0
    try:
        while True:
            certificate = ssl.PEM_read_bio_X509(bio, NULL, kl_pem_password, NULL)
            if certificate == NULL:
                break
            count += 1
            store.add(certificate)
    finally:
        ssl.BIO_free(bio)
    if count != data.count(b"-----BEGIN CERTIFICATE-----") or count == 0:
        problem = tls_error(b"damaged")
        raise ValueError("it has no certificate" if b"-----BEGIN CERT" not in data else f"certificate: {problem}")
    ssl.ERR_clear_error()


cdef class CertificateStore:
    """The base class of both stores: certificates, which it frees."""

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            table.X509_free(self.certificates[i])
        free(self.certificates)

    cdef int add(self, X509* certificate) except -1:
        """Add a certificate, which now belongs to the store. It is freed if this raises."""
        cdef X509** larger = <X509**>realloc(self.certificates, <size_t>(self.count + 1) * sizeof(X509*))
        if larger == NULL:
            table.X509_free(certificate)
            raise MemoryError
        self.certificates = larger
        self.certificates[self.count] = certificate
        self.count += 1
        return 0

    cdef int write(self, kl_libssl* ssl, BIO* bio) noexcept:
        """Write all certificates in PEM."""
        cdef Py_ssize_t i
        for i in range(self.count):
            ssl.PEM_write_bio_X509(bio, self.certificates[i])
        return 0


@cython.final
cdef class KeyStore(CertificateStore):
    """A private key with its certificate chain, the leaf first."""

    def __dealloc__(self):
        if self.key != NULL:
            table.EVP_PKEY_free(self.key)

    @staticmethod
    def from_pem(bytes key not None, bytes chain not None, bytes password=None):
        """Read one private key, which `password` decrypts, and its certificate chain from PEM texts. Raises
        ValueError."""
        cdef kl_libssl* ssl = tls_library()
        cdef KeyStore store = KeyStore.__new__(KeyStore)
        cdef Py_ssize_t keys = key.count(b"PRIVATE KEY-----") // 2
        cdef BIO* bio
        if keys != 1:
            raise ValueError(f"it has {'no' if keys == 0 else 'more than one'} private key")
        bio = open_bytes(ssl, key)
        store.key = ssl.PEM_read_bio_PrivateKey(
            bio, NULL, kl_pem_password, NULL if password is None else PyBytes_AS_STRING(password))
        ssl.BIO_free(bio)
        if store.key == NULL:
            problem = tls_error(b"damaged")
            if b"ENCRYPTED" in key:
                problem = "it is encrypted, but no password is given" if password is None else "the password is wrong"
            raise ValueError(f"private key: {problem}")
        read_certificates(ssl, chain, store)
        return store

    @staticmethod
    def from_pkcs12(bytes data not None, bytes password=None):
        """Read a PKCS#12 file. Raises ValueError for a wrong password, or if the file has no key with a certificate."""
        cdef KeyStore store = KeyStore.__new__(KeyStore)
        store.take_pkcs12(data, password)
        if store.key == NULL or store.count == 0:
            raise ValueError("it has no private key with a certificate")
        return store

    cdef int take_pkcs12(self, bytes data, bytes password) except -1:
        """Read the key, the leaf, and the other certificates; put these in the order of the chain. Raises
        ValueError."""
        cdef kl_libssl* ssl = tls_library()
        cdef BIO* bio = open_bytes(ssl, data)
        cdef PKCS12* container = ssl.d2i_PKCS12_bio(bio, NULL)
        cdef X509* leaf = NULL
        cdef stack_st_X509* others = NULL
        cdef OPENSSL_STACK* stack
        cdef int parsed, i
        ssl.BIO_free(bio)
        if container == NULL:
            ssl.ERR_clear_error()
            raise ValueError("it is not a PKCS#12 file")
        parsed = ssl.PKCS12_parse(
            container, NULL if password is None else PyBytes_AS_STRING(password), &self.key, &leaf, &others)
        ssl.PKCS12_free(container)
        if not parsed:
            problem = tls_error(b"damaged")
            raise ValueError("the password is wrong" if "mac verify" in problem else problem)
        if leaf != NULL:
            self.add(leaf)
        stack = <OPENSSL_STACK*>others
        if stack == NULL:
            return 0
        for i in range(ssl.OPENSSL_sk_num(stack)):
            self.add(<X509*>ssl.OPENSSL_sk_value(stack, i))
        ssl.OPENSSL_sk_free(stack)
        if leaf != NULL:
            self.order_chain(ssl)
        return 0

    cdef void order_chain(self, kl_libssl* ssl) noexcept:
        """Sort the certificates so that each issuer follows what it issued; remove those outside of the leaf's
        chain."""
        cdef Py_ssize_t i, j
        cdef X509* found
        for i in range(1, self.count):
            j = i
            while j < self.count and ssl.X509_check_issued(self.certificates[j], self.certificates[i - 1]) != 0:
                j += 1
            if j == self.count:
                while self.count > i:
                    self.count -= 1
                    ssl.X509_free(self.certificates[self.count])
                return
            found = self.certificates[j]
            self.certificates[j] = self.certificates[i]
            self.certificates[i] = found

    def to_pem(self):
        """Return (key, chain) in PEM, with the key unencrypted."""
        cdef kl_libssl* ssl = tls_library()
        cdef BIO* bio = ssl.BIO_new(ssl.BIO_s_mem())
        if bio == NULL:
            raise MemoryError
        try:
            if not ssl.PEM_write_bio_PrivateKey(bio, self.key, NULL, NULL, 0, kl_pem_password, NULL):
                raise ValueError(tls_error(b"the key could not be written"))
            key = written(ssl, bio)
            self.write(ssl, bio)
            return key, written(ssl, bio)[len(key):]
        finally:
            ssl.BIO_free(bio)

    def check(self):
        """Raise ValueError if the key is not the leaf's, or if a certificate did not issue the one before it in the
        chain."""
        cdef kl_libssl* ssl = tls_library()
        cdef Py_ssize_t i
        if not ssl.X509_check_private_key(self.certificates[0], self.key):
            ssl.ERR_clear_error()
            raise ValueError("the private key does not belong to the first certificate")
        for i in range(1, self.count):
            if ssl.X509_check_issued(self.certificates[i], self.certificates[i - 1]) != 0:
                raise ValueError(f"certificate {i + 1} of the chain did not issue the one before it")

    @property
    def subject(self):
        """The leaf's subject, as the DER of an X.501 Name."""
        return subject_of(self.certificates[0])

    @property
    def alternative_names(self):
        """The leaf's subjectAltName, as the DER of GeneralNames; empty if the leaf has none."""
        cdef kl_libssl* ssl = tls_library()
        cdef int index = ssl.X509_get_ext_by_NID(self.certificates[0], KL_NID_SUBJECT_ALT_NAME, -1)
        if index < 0:
            return b""
        data = <ASN1_STRING*>ssl.X509_EXTENSION_get_data(ssl.X509_get_ext(self.certificates[0], index))
        return PyBytes_FromStringAndSize(<const char*>ssl.ASN1_STRING_get0_data(data), ssl.ASN1_STRING_length(data))

    @property
    def validity(self):
        """(not before, not after) of the whole chain, in seconds since 1970: its latest start and its earliest end."""
        cdef kl_libssl* ssl = tls_library()
        begins = max([seconds_of(ssl.X509_get0_notBefore(self.certificates[i])) for i in range(self.count)])
        ends = min([seconds_of(ssl.X509_get0_notAfter(self.certificates[i])) for i in range(self.count)])
        return begins, ends

    cdef bint is_rsa(self) noexcept:
        """Return whether this is an RSA or RSA-PSS key."""
        return strncmp(table.EVP_PKEY_get0_type_name(self.key), b"RSA", 3) == 0

    @property
    def key_description(self):
        """(type, bits) of the key, such as ("RSA", 2048)."""
        cdef kl_libssl* ssl = tls_library()
        return ssl.EVP_PKEY_get0_type_name(self.key).decode(), ssl.EVP_PKEY_get_bits(self.key)


cdef bytes subject_of(X509* certificate):
    cdef X509_NAME* name = table.X509_get_subject_name(certificate)
    cdef int size = table.i2d_X509_NAME(name, NULL)
    cdef bytes der
    cdef unsigned char* target
    if size < 0:
        raise ValueError(tls_error(b"the subject could not be read"))
    der = PyBytes_FromStringAndSize(NULL, size)
    target = <unsigned char*>PyBytes_AS_STRING(der)
    table.i2d_X509_NAME(name, &target)
    return der


cdef long seconds_of(const ASN1_TIME* time):
    cdef tm parts
    memset(&parts, 0, sizeof(tm))
    return timegm(&parts) if table.ASN1_TIME_to_tm(<ASN1_TIME*>time, &parts) else 0


@cython.final
cdef class TrustStore(CertificateStore):
    """Trusted certificates, and certificate revocation lists."""

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.revocation_count):
            table.X509_CRL_free(self.revocations[i])
        free(self.revocations)

    @staticmethod
    def from_pem(bytes data not None):
        """Read one or several certificates from a PEM text. Raises ValueError."""
        cdef TrustStore store = TrustStore.__new__(TrustStore)
        read_certificates(tls_library(), data, store)
        return store

    @staticmethod
    def from_pkcs12(bytes data not None, bytes password=None):
        """Read a PKCS#12 file. Raises ValueError for a wrong password, or if the file has a key or no certificate."""
        cdef TrustStore store = TrustStore.__new__(TrustStore)
        cdef KeyStore found = KeyStore.__new__(KeyStore)
        cdef Py_ssize_t count
        found.take_pkcs12(data, password)
        count = found.count
        if found.key != NULL or count == 0:
            raise ValueError("it has a private key" if count else "it has no certificate")
        store.certificates, store.count = found.certificates, count
        found.certificates, found.count = NULL, 0
        return store

    def revoke(self, bytes data not None):
        """Add the revocation lists of a PEM text. A context built later checks every chain against them. Raises
        ValueError."""
        cdef kl_libssl* ssl = tls_library()
        cdef BIO* bio = open_bytes(ssl, data)
        cdef X509_CRL* found
        cdef X509_CRL** larger
        try:
            while True:
                found = ssl.PEM_read_bio_X509_CRL(bio, NULL, kl_pem_password, NULL)
                if found == NULL:
                    break
                larger = <X509_CRL**>realloc(
                    self.revocations, <size_t>(self.revocation_count + 1) * sizeof(X509_CRL*))
                if larger == NULL:
                    ssl.X509_CRL_free(found)
                    raise MemoryError
                self.revocations = larger
                self.revocations[self.revocation_count] = found
                self.revocation_count += 1
        finally:
            ssl.BIO_free(bio)
        if self.revocation_count == 0 or self.revocation_count != data.count(b"-----BEGIN X509 CRL-----"):
            raise ValueError(f"certificate revocation list: {tls_error(b'none found')}")
        ssl.ERR_clear_error()

    def __len__(self):
        return self.count

    def to_pem(self):
        """Return the certificates in PEM."""
        cdef kl_libssl* ssl = tls_library()
        cdef BIO* bio = ssl.BIO_new(ssl.BIO_s_mem())
        if bio == NULL:
            raise MemoryError
        try:
            self.write(ssl, bio)
            return written(ssl, bio)
        finally:
            ssl.BIO_free(bio)


@cython.final
cdef class TlsContext:
    """The TLS settings for a listener's handshakes. Immutable; its session tickets are valid only for this context.

    `asks`: request a client certificate. `demands`: require one. `trusted`: the certificates that verify it. `ciphers`
    (TLS 1.2) and `suites` (TLS 1.3) are OpenSSL's names, separated by colons.

    By default ("") the suites are the system's, restricted to AEAD and ephemeral keys (RFC 9325, 4.1 and 4.2). AES-128
    comes before AES-256: it costs a tenth less, and its handshakes, which hash with SHA-256, cost a tenth less, too.

    TLS 1.3 clients get a session ticket only if resuming saves an RSA signature or the check of a client certificate.
    Otherwise a ticket costs three fifths of what it saves (31 of 49 µs, ECDSA P-256), and few Kafka clients resume.
    """

    def __cinit__(self, KeyStore keys not None, TrustStore trusted, *, bint asks, bint demands, int oldest, int newest,
                  str ciphers not None, str suites not None):
        cdef kl_libssl* ssl = tls_library()
        cdef SSL_CTX* context = ssl.SSL_CTX_new(ssl.TLS_server_method())
        if context == NULL:
            raise ValueError(tls_error(b"OpenSSL is not usable"))
        self.context = context
        ssl.SSL_CTX_ctrl(context, KL_CTRL_MIN_PROTO_VERSION, oldest, NULL)
        ssl.SSL_CTX_ctrl(context, KL_CTRL_MAX_PROTO_VERSION, newest, NULL)
        ssl.SSL_CTX_ctrl(context, KL_CTRL_MODE, KL_MODE_RELEASE_BUFFERS, NULL)
        ssl.SSL_CTX_ctrl(context, KL_CTRL_SESS_CACHE_MODE, KL_SESS_CACHE_OFF, NULL)
        ssl.SSL_CTX_ctrl(context, KL_CTRL_MAX_CERT_LIST, HANDSHAKE_MESSAGE_SIZE_MAX, NULL)
        ssl.SSL_CTX_set_options(
            context, KL_OP_NO_COMPRESSION | KL_OP_CIPHER_SERVER_PREFERENCE | KL_OP_NO_RENEGOTIATION)
        ssl.SSL_CTX_set_num_tickets(context, 1 if asks or keys.is_rsa() else 0)
        ssl.SSL_CTX_set_session_id_context(context, <const unsigned char*>b"kafkalite", 9)
        ssl.SSL_CTX_set_verify_depth(context, CHAIN_DEPTH_MAX)
        names = suite_names(ssl, context)
        newer = suites.encode() or in_order(names, of_tls_1_3=True)
        older = ciphers.encode() or in_order(names, of_tls_1_3=False)   # a variable keeps the bytes alive
        if newer and not ssl.SSL_CTX_set_ciphersuites(context, newer):
            raise ValueError(tls_error(b"no cipher suite is left"))
        if not ssl.SSL_CTX_set_cipher_list(context, older):
            raise ValueError(tls_error(b"no cipher suite is left"))
        use_keys(ssl, context, keys)
        if asks:
            if trusted is None:
                raise ValueError("no trusted certificates are given")
            use_trusted(ssl, context, trusted)
            ssl.SSL_CTX_set_verify(
                context, <int>(KL_VERIFY_PEER | (KL_VERIFY_FAIL_IF_NO_PEER_CERT if demands else 0)), NULL)

    def __dealloc__(self):
        if self.context != NULL:
            table.SSL_CTX_free(self.context)


cdef list suite_names(kl_libssl* ssl, SSL_CTX* context):
    """Return the names of the context's suites that are of TLS 1.3, or have AEAD and ephemeral keys, in its order.

    They are read from the context, so that the system's policy applies.
    """
    cdef OPENSSL_STACK* stack = <OPENSSL_STACK*>ssl.SSL_CTX_get_ciphers(context)
    cdef const SSL_CIPHER* suite
    cdef int i
    names = []
    for i in range(ssl.OPENSSL_sk_num(stack)):
        suite = <const SSL_CIPHER*>ssl.OPENSSL_sk_value(stack, i)
        name = <bytes>ssl.SSL_CIPHER_get_name(suite)
        if name.startswith(OF_TLS_1_3) or (
                ssl.SSL_CIPHER_is_aead(suite) and ssl.SSL_CIPHER_get_kx_nid(suite) in (KL_NID_KX_ECDHE, KL_NID_KX_DHE)):
            names.append(name)
    return names


cdef bytes in_order(list names, bint of_tls_1_3):
    """Return the suites of one TLS version, AES-128 first, as a list for OpenSSL."""
    found = [name for name in names if name.startswith(OF_TLS_1_3) == of_tls_1_3]
    return b":".join(sorted(found, key=lambda name: b"AES128" not in name and b"AES_128" not in name))


cdef int use_keys(kl_libssl* ssl, SSL_CTX* context, KeyStore keys) except -1:
    cdef Py_ssize_t i
    if not ssl.SSL_CTX_use_certificate(context, keys.certificates[0]) \
            or not ssl.SSL_CTX_use_PrivateKey(context, keys.key):
        raise ValueError(tls_error(b"the certificate cannot be used"))
    for i in range(1, keys.count):
        if not ssl.SSL_CTX_ctrl(context, KL_CTRL_CHAIN_CERT, 1, keys.certificates[i]):
            raise ValueError(tls_error(b"the chain cannot be used"))
    return 0


cdef int use_trusted(kl_libssl* ssl, SSL_CTX* context, TrustStore trusted) except -1:
    cdef X509_STORE* store = ssl.SSL_CTX_get_cert_store(context)
    cdef Py_ssize_t i
    for i in range(trusted.count):
        if not ssl.X509_STORE_add_cert(store, trusted.certificates[i]) \
                or not ssl.SSL_CTX_add_client_CA(context, trusted.certificates[i]):
            raise ValueError(tls_error(b"a trusted certificate cannot be used"))
    for i in range(trusted.revocation_count):
        if not ssl.X509_STORE_add_crl(store, trusted.revocations[i]):
            raise ValueError(tls_error(b"a revocation list cannot be used"))
    if trusted.revocation_count > 0:
        ssl.X509_STORE_set_flags(store, KL_CRL_CHECK_ALL)
    return 0
