"""Declare the OpenSSL functions that ext/c/libssl.h finds at run time, and their constants."""

from libc.stdint cimport uint64_t

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    cdef struct tm:
        int tm_year
    time_t timegm(tm* parts)

cdef extern from "libssl.h" nogil:
    ctypedef struct SSL
    ctypedef struct SSL_CTX
    ctypedef struct SSL_METHOD
    ctypedef struct SSL_CIPHER
    ctypedef struct BIO
    ctypedef struct BIO_METHOD
    ctypedef struct X509
    ctypedef struct X509_NAME
    ctypedef struct X509_EXTENSION
    ctypedef struct X509_CRL
    ctypedef struct X509_STORE
    ctypedef struct X509_STORE_CTX
    ctypedef struct EVP_PKEY
    ctypedef struct EVP_CIPHER
    ctypedef struct ASN1_STRING
    ctypedef struct ASN1_TIME
    ctypedef struct ASN1_OCTET_STRING
    ctypedef struct PKCS12
    ctypedef struct OPENSSL_STACK
    ctypedef struct OPENSSL_INIT_SETTINGS
    cdef struct stack_st_X509
    cdef struct stack_st_SSL_CIPHER
    ctypedef int (*SSL_verify_cb)(int, X509_STORE_CTX*) noexcept nogil
    ctypedef int (*kl_password_cb "pem_password_cb *")(char*, int, int, void*) noexcept nogil
    ctypedef int (*kl_bio_write)(BIO*, const char*, size_t, size_t*) noexcept nogil
    ctypedef int (*kl_bio_read)(BIO*, char*, size_t, size_t*) noexcept nogil
    ctypedef long (*kl_bio_ctrl)(BIO*, int, long, void*) noexcept nogil

    ctypedef struct kl_libssl:
        int (*OPENSSL_init_ssl)(uint64_t, OPENSSL_INIT_SETTINGS*) noexcept nogil
        unsigned long (*OpenSSL_version_num)() noexcept nogil
        const char* (*OpenSSL_version)(int) noexcept nogil
        const char* (*OPENSSL_cipher_name)(const char*) noexcept nogil
        unsigned long (*ERR_get_error)() noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
        unsigned long (*ERR_peek_error)() noexcept nogil
        const char* (*ERR_reason_error_string)(unsigned long) noexcept nogil
        const SSL_METHOD* (*TLS_server_method)() noexcept nogil
        SSL_CTX* (*SSL_CTX_new)(SSL_METHOD*) noexcept nogil
        void (*SSL_CTX_free)(SSL_CTX*) noexcept nogil
        long (*SSL_CTX_ctrl)(SSL_CTX*, int, long, void*) noexcept nogil
        uint64_t (*SSL_CTX_set_options)(SSL_CTX*, uint64_t) noexcept nogil
        void (*SSL_CTX_set_verify)(SSL_CTX*, int, SSL_verify_cb) noexcept nogil
        void (*SSL_CTX_set_verify_depth)(SSL_CTX*, int) noexcept nogil
        stack_st_SSL_CIPHER* (*SSL_CTX_get_ciphers)(SSL_CTX*) noexcept nogil
        int (*SSL_CTX_set_cipher_list)(SSL_CTX*, const char*) noexcept nogil
        int (*SSL_CTX_set_ciphersuites)(SSL_CTX*, const char*) noexcept nogil
        int (*SSL_CTX_set_num_tickets)(SSL_CTX*, size_t) noexcept nogil
        int (*SSL_CTX_set_session_id_context)(SSL_CTX*, const unsigned char*, unsigned int) noexcept nogil
        int (*SSL_CTX_use_certificate)(SSL_CTX*, X509*) noexcept nogil
        int (*SSL_CTX_use_PrivateKey)(SSL_CTX*, EVP_PKEY*) noexcept nogil
        int (*SSL_CTX_add_client_CA)(SSL_CTX*, X509*) noexcept nogil
        X509_STORE* (*SSL_CTX_get_cert_store)(SSL_CTX*) noexcept nogil
        SSL* (*SSL_new)(SSL_CTX*) noexcept nogil
        void (*SSL_free)(SSL*) noexcept nogil
        void (*SSL_set_bio)(SSL*, BIO*, BIO*) noexcept nogil
        void (*SSL_set_accept_state)(SSL*) noexcept nogil
        int (*SSL_do_handshake)(SSL*) noexcept nogil
        int (*SSL_read_ex)(SSL*, void*, size_t, size_t*) noexcept nogil
        long (*SSL_ctrl)(SSL*, int, long, void*) noexcept nogil
        int (*SSL_free_buffers)(SSL*) noexcept nogil
        int (*SSL_write_ex)(SSL*, const void*, size_t, size_t*) noexcept nogil
        int (*SSL_get_error)(SSL*, int) noexcept nogil
        int (*SSL_shutdown)(SSL*) noexcept nogil
        int (*SSL_key_update)(SSL*, int) noexcept nogil
        int (*SSL_version)(SSL*) noexcept nogil
        const char* (*SSL_get_version)(SSL*) noexcept nogil
        const SSL_CIPHER* (*SSL_get_current_cipher)(SSL*) noexcept nogil
        const char* (*SSL_CIPHER_standard_name)(const SSL_CIPHER*) noexcept nogil
        const char* (*SSL_CIPHER_get_name)(const SSL_CIPHER*) noexcept nogil
        int (*SSL_CIPHER_is_aead)(const SSL_CIPHER*) noexcept nogil
        int (*SSL_CIPHER_get_kx_nid)(const SSL_CIPHER*) noexcept nogil
        int (*SSL_session_reused)(SSL*) noexcept nogil
        long (*SSL_get_verify_result)(SSL*) noexcept nogil
        X509* (*SSL_get1_peer_certificate)(SSL*) noexcept nogil
        int (*BIO_get_new_index)() noexcept nogil
        BIO_METHOD* (*BIO_meth_new)(int, const char*) noexcept nogil
        int (*BIO_meth_set_write_ex)(BIO_METHOD*, kl_bio_write) noexcept nogil
        int (*BIO_meth_set_read_ex)(BIO_METHOD*, kl_bio_read) noexcept nogil
        int (*BIO_meth_set_ctrl)(BIO_METHOD*, kl_bio_ctrl) noexcept nogil
        BIO* (*BIO_new)(BIO_METHOD*) noexcept nogil
        int (*BIO_free)(BIO*) noexcept nogil
        void (*BIO_set_data)(BIO*, void*) noexcept nogil
        void* (*BIO_get_data)(BIO*) noexcept nogil
        void (*BIO_set_init)(BIO*, int) noexcept nogil
        void (*BIO_set_flags)(BIO*, int) noexcept nogil
        const BIO_METHOD* (*BIO_s_mem)() noexcept nogil
        BIO* (*BIO_new_mem_buf)(const void*, int) noexcept nogil
        long (*BIO_ctrl)(BIO*, int, long, void*) noexcept nogil
        EVP_PKEY* (*PEM_read_bio_PrivateKey)(BIO*, EVP_PKEY**, kl_password_cb, void*) noexcept nogil
        X509* (*PEM_read_bio_X509)(BIO*, X509**, kl_password_cb, void*) noexcept nogil
        X509_CRL* (*PEM_read_bio_X509_CRL)(BIO*, X509_CRL**, kl_password_cb, void*) noexcept nogil
        int (*PEM_write_bio_PrivateKey)(BIO*, EVP_PKEY*, EVP_CIPHER*, const unsigned char*, int,
            kl_password_cb, void*) noexcept nogil
        int (*PEM_write_bio_X509)(BIO*, X509*) noexcept nogil
        PKCS12* (*d2i_PKCS12_bio)(BIO*, PKCS12**) noexcept nogil
        int (*PKCS12_parse)(PKCS12*, const char*, EVP_PKEY**, X509**, stack_st_X509**) noexcept nogil
        void (*PKCS12_free)(PKCS12*) noexcept nogil
        int (*OPENSSL_sk_num)(OPENSSL_STACK*) noexcept nogil
        void* (*OPENSSL_sk_value)(OPENSSL_STACK*, int) noexcept nogil
        void (*OPENSSL_sk_free)(OPENSSL_STACK*) noexcept nogil
        void (*EVP_PKEY_free)(EVP_PKEY*) noexcept nogil
        int (*EVP_PKEY_get_bits)(EVP_PKEY*) noexcept nogil
        const char* (*EVP_PKEY_get0_type_name)(EVP_PKEY*) noexcept nogil
        void (*X509_free)(X509*) noexcept nogil
        int (*X509_check_issued)(X509*, X509*) noexcept nogil
        int (*X509_check_private_key)(X509*, EVP_PKEY*) noexcept nogil
        X509_NAME* (*X509_get_subject_name)(X509*) noexcept nogil
        int (*i2d_X509_NAME)(X509_NAME*, unsigned char**) noexcept nogil
        const ASN1_TIME* (*X509_get0_notBefore)(X509*) noexcept nogil
        const ASN1_TIME* (*X509_get0_notAfter)(X509*) noexcept nogil
        int (*ASN1_TIME_to_tm)(ASN1_TIME*, tm*) noexcept nogil
        int (*X509_get_ext_by_NID)(X509*, int, int) noexcept nogil
        X509_EXTENSION* (*X509_get_ext)(X509*, int) noexcept nogil
        ASN1_OCTET_STRING* (*X509_EXTENSION_get_data)(X509_EXTENSION*) noexcept nogil
        const unsigned char* (*ASN1_STRING_get0_data)(ASN1_STRING*) noexcept nogil
        int (*ASN1_STRING_length)(ASN1_STRING*) noexcept nogil
        const char* (*X509_verify_cert_error_string)(long) noexcept nogil
        int (*X509_STORE_add_cert)(X509_STORE*, X509*) noexcept nogil
        int (*X509_STORE_add_crl)(X509_STORE*, X509_CRL*) noexcept nogil
        int (*X509_STORE_set_flags)(X509_STORE*, unsigned long) noexcept nogil
        void (*X509_CRL_free)(X509_CRL*) noexcept nogil

    enum:
        KL_TLS1_2
        KL_TLS1_3
        KL_ERROR_SSL
        KL_ERROR_WANT_READ
        KL_ERROR_ZERO_RETURN
        KL_VERIFY_PEER
        KL_VERIFY_FAIL_IF_NO_PEER_CERT
        KL_CTRL_MODE
        KL_CTRL_SESS_CACHE_MODE
        KL_CTRL_CLEAR_MODE
        KL_CTRL_MAX_CERT_LIST
        KL_CTRL_CHAIN_CERT
        KL_CTRL_MIN_PROTO_VERSION
        KL_CTRL_MAX_PROTO_VERSION
        KL_MODE_RELEASE_BUFFERS
        KL_SESS_CACHE_OFF
        KL_BIO_FLAGS_READ
        KL_BIO_FLAGS_SHOULD_RETRY
        KL_BIO_CTRL_INFO
        KL_BIO_CTRL_FLUSH
        KL_BIO_TYPE_SOURCE_SINK
        KL_NID_SUBJECT_ALT_NAME
        KL_NID_KX_ECDHE
        KL_NID_KX_DHE
        KL_CRL_CHECK_ALL
        KL_KEY_UPDATE_NOT_REQUESTED

    const uint64_t KL_OP_NO_COMPRESSION
    const uint64_t KL_OP_CIPHER_SERVER_PREFERENCE
    const uint64_t KL_OP_NO_RENEGOTIATION
    const uint64_t KL_INIT_NO_ATEXIT
    const unsigned long KL_LIBSSL_OLDEST

    const char* kl_libssl_load(kl_libssl* table) noexcept
    int kl_pem_password(char* target, int capacity, int writing, void* secret) noexcept
