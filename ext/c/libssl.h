/* Find the OpenSSL functions that kafkalite calls at run time, in the machine's libssl.
 *
 * The first TLS listener or client loads the library. So a process without TLS loads nothing, a wheel works on a
 * machine without OpenSSL, and the distribution's security updates apply.
 *
 * Compiling and linking do not need OpenSSL: its types are opaque here, and this file has its own prototypes.
 * tests/unit/native/tls/test_library.py compares them with the installed headers.
 *
 * Thread rule: one thread at a time calls kl_libssl_load. After that the table is read-only.
 */
#ifndef KL_LIBSSL_H
#define KL_LIBSSL_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef KL_LIBSSL_TYPES /* the test that compares takes OpenSSL's own */
typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct ssl_cipher_st SSL_CIPHER;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
typedef struct x509_st X509;
typedef struct X509_name_st X509_NAME;
typedef struct X509_extension_st X509_EXTENSION;
typedef struct X509_crl_st X509_CRL;
typedef struct x509_store_st X509_STORE;
typedef struct x509_store_ctx_st X509_STORE_CTX;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct evp_cipher_st EVP_CIPHER;
typedef struct asn1_string_st ASN1_STRING;
typedef struct asn1_string_st ASN1_TIME;
typedef struct asn1_string_st ASN1_OCTET_STRING;
typedef struct PKCS12_st PKCS12;
typedef struct stack_st OPENSSL_STACK;
typedef struct ossl_init_settings_st OPENSSL_INIT_SETTINGS;
typedef int (*SSL_verify_cb)(int, X509_STORE_CTX *);
typedef int pem_password_cb(char *, int, int, void *);
struct stack_st_X509;
struct stack_st_SSL_CIPHER;
#endif

/* X(result, name, arguments) for each function. libcrypto's are found through libssl, which depends on it. */
#define KL_LIBSSL_FUNCTIONS(X) \
    X(int, OPENSSL_init_ssl, (uint64_t, const OPENSSL_INIT_SETTINGS *)) \
    X(unsigned long, OpenSSL_version_num, (void)) \
    X(const char *, OpenSSL_version, (int)) \
    X(const char *, OPENSSL_cipher_name, (const char *)) \
    X(unsigned long, ERR_get_error, (void)) \
    X(void, ERR_clear_error, (void)) \
    X(unsigned long, ERR_peek_error, (void)) \
    X(const char *, ERR_reason_error_string, (unsigned long)) \
    X(const SSL_METHOD *, TLS_server_method, (void)) \
    X(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *)) \
    X(void, SSL_CTX_free, (SSL_CTX *)) \
    X(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *)) \
    X(uint64_t, SSL_CTX_set_options, (SSL_CTX *, uint64_t)) \
    X(void, SSL_CTX_set_verify, (SSL_CTX *, int, SSL_verify_cb)) \
    X(void, SSL_CTX_set_verify_depth, (SSL_CTX *, int)) \
    X(struct stack_st_SSL_CIPHER *, SSL_CTX_get_ciphers, (const SSL_CTX *)) \
    X(int, SSL_CTX_set_cipher_list, (SSL_CTX *, const char *)) \
    X(int, SSL_CTX_set_ciphersuites, (SSL_CTX *, const char *)) \
    X(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t)) \
    X(int, SSL_CTX_set_session_id_context, (SSL_CTX *, const unsigned char *, unsigned int)) \
    X(int, SSL_CTX_use_certificate, (SSL_CTX *, X509 *)) \
    X(int, SSL_CTX_use_PrivateKey, (SSL_CTX *, EVP_PKEY *)) \
    X(int, SSL_CTX_add_client_CA, (SSL_CTX *, X509 *)) \
    X(X509_STORE *, SSL_CTX_get_cert_store, (const SSL_CTX *)) \
    X(SSL *, SSL_new, (SSL_CTX *)) \
    X(void, SSL_free, (SSL *)) \
    X(void, SSL_set_bio, (SSL *, BIO *, BIO *)) \
    X(void, SSL_set_accept_state, (SSL *)) \
    X(int, SSL_do_handshake, (SSL *)) \
    X(int, SSL_read_ex, (SSL *, void *, size_t, size_t *)) \
    X(long, SSL_ctrl, (SSL *, int, long, void *)) \
    X(int, SSL_free_buffers, (SSL *)) \
    X(int, SSL_write_ex, (SSL *, const void *, size_t, size_t *)) \
    X(int, SSL_get_error, (const SSL *, int)) \
    X(int, SSL_shutdown, (SSL *)) \
    X(int, SSL_key_update, (SSL *, int)) \
    X(int, SSL_version, (const SSL *)) \
    X(const char *, SSL_get_version, (const SSL *)) \
    X(const SSL_CIPHER *, SSL_get_current_cipher, (const SSL *)) \
    X(const char *, SSL_CIPHER_standard_name, (const SSL_CIPHER *)) \
    X(const char *, SSL_CIPHER_get_name, (const SSL_CIPHER *)) \
    X(int, SSL_CIPHER_is_aead, (const SSL_CIPHER *)) \
    X(int, SSL_CIPHER_get_kx_nid, (const SSL_CIPHER *)) \
    X(int, SSL_session_reused, (const SSL *)) \
    X(long, SSL_get_verify_result, (const SSL *)) \
    X(X509 *, SSL_get1_peer_certificate, (const SSL *)) \
    X(int, BIO_get_new_index, (void)) \
    X(BIO_METHOD *, BIO_meth_new, (int, const char *)) \
    X(int, BIO_meth_set_write_ex, (BIO_METHOD *, int (*)(BIO *, const char *, size_t, size_t *))) \
    X(int, BIO_meth_set_read_ex, (BIO_METHOD *, int (*)(BIO *, char *, size_t, size_t *))) \
    X(int, BIO_meth_set_ctrl, (BIO_METHOD *, long (*)(BIO *, int, long, void *))) \
    X(BIO *, BIO_new, (const BIO_METHOD *)) \
    X(int, BIO_free, (BIO *)) \
    X(void, BIO_set_data, (BIO *, void *)) \
    X(void *, BIO_get_data, (BIO *)) \
    X(void, BIO_set_init, (BIO *, int)) \
    X(void, BIO_set_flags, (BIO *, int)) \
    X(const BIO_METHOD *, BIO_s_mem, (void)) \
    X(BIO *, BIO_new_mem_buf, (const void *, int)) \
    X(long, BIO_ctrl, (BIO *, int, long, void *)) \
    X(EVP_PKEY *, PEM_read_bio_PrivateKey, (BIO *, EVP_PKEY **, pem_password_cb *, void *)) \
    X(X509 *, PEM_read_bio_X509, (BIO *, X509 **, pem_password_cb *, void *)) \
    X(X509_CRL *, PEM_read_bio_X509_CRL, (BIO *, X509_CRL **, pem_password_cb *, void *)) \
    X(int, PEM_write_bio_PrivateKey, (BIO *, const EVP_PKEY *, const EVP_CIPHER *, const unsigned char *, int, \
                                      pem_password_cb *, void *)) \
    X(int, PEM_write_bio_X509, (BIO *, const X509 *)) \
    X(PKCS12 *, d2i_PKCS12_bio, (BIO *, PKCS12 **)) \
    X(int, PKCS12_parse, (PKCS12 *, const char *, EVP_PKEY **, X509 **, struct stack_st_X509 **)) \
    X(void, PKCS12_free, (PKCS12 *)) \
    X(int, OPENSSL_sk_num, (const OPENSSL_STACK *)) \
    X(void *, OPENSSL_sk_value, (const OPENSSL_STACK *, int)) \
    X(void, OPENSSL_sk_free, (OPENSSL_STACK *)) \
    X(void, EVP_PKEY_free, (EVP_PKEY *)) \
    X(int, EVP_PKEY_get_bits, (const EVP_PKEY *)) \
    X(const char *, EVP_PKEY_get0_type_name, (const EVP_PKEY *)) \
    X(void, X509_free, (X509 *)) \
    X(int, X509_check_issued, (X509 *, X509 *)) \
    X(int, X509_check_private_key, (const X509 *, const EVP_PKEY *)) \
    X(X509_NAME *, X509_get_subject_name, (const X509 *)) \
    X(int, i2d_X509_NAME, (const X509_NAME *, unsigned char **)) \
    X(const ASN1_TIME *, X509_get0_notBefore, (const X509 *)) \
    X(const ASN1_TIME *, X509_get0_notAfter, (const X509 *)) \
    X(int, ASN1_TIME_to_tm, (const ASN1_TIME *, struct tm *)) \
    X(int, X509_get_ext_by_NID, (const X509 *, int, int)) \
    X(X509_EXTENSION *, X509_get_ext, (const X509 *, int)) \
    X(ASN1_OCTET_STRING *, X509_EXTENSION_get_data, (X509_EXTENSION *)) \
    X(const unsigned char *, ASN1_STRING_get0_data, (const ASN1_STRING *)) \
    X(int, ASN1_STRING_length, (const ASN1_STRING *)) \
    X(const char *, X509_verify_cert_error_string, (long)) \
    X(int, X509_STORE_add_cert, (X509_STORE *, X509 *)) \
    X(int, X509_STORE_add_crl, (X509_STORE *, X509_CRL *)) \
    X(int, X509_STORE_set_flags, (X509_STORE *, unsigned long)) \
    X(void, X509_CRL_free, (X509_CRL *))

#define KL_LIBSSL_FIELD(result, name, arguments) result(*name) arguments;
#define KL_LIBSSL_NAME(result, name, arguments) #name,

typedef struct kl_libssl {
    KL_LIBSSL_FUNCTIONS(KL_LIBSSL_FIELD)
} kl_libssl;

/* Constants of OpenSSL's stable interface. */
enum {
    KL_TLS1_2 = 0x0303,
    KL_TLS1_3 = 0x0304,
    KL_ERROR_SSL = 1,
    KL_ERROR_WANT_READ = 2,
    KL_ERROR_ZERO_RETURN = 6,
    KL_VERIFY_PEER = 1,
    KL_VERIFY_FAIL_IF_NO_PEER_CERT = 2,
    KL_CTRL_MODE = 33,
    KL_CTRL_SESS_CACHE_MODE = 44,
    KL_CTRL_CLEAR_MODE = 78,
    KL_CTRL_MAX_CERT_LIST = 51,
    KL_CTRL_CHAIN_CERT = 89,
    KL_CTRL_MIN_PROTO_VERSION = 123,
    KL_CTRL_MAX_PROTO_VERSION = 124,
    KL_MODE_RELEASE_BUFFERS = 0x10,
    KL_SESS_CACHE_OFF = 0,
    KL_BIO_FLAGS_READ = 0x01,
    KL_BIO_FLAGS_SHOULD_RETRY = 0x08,
    KL_BIO_CTRL_INFO = 3,
    KL_BIO_CTRL_FLUSH = 11,
    KL_BIO_TYPE_SOURCE_SINK = 0x0400,
    KL_NID_SUBJECT_ALT_NAME = 85,
    KL_NID_KX_ECDHE = 1038,
    KL_NID_KX_DHE = 1039,
    KL_CRL_CHECK_ALL = 0x4 | 0x8,
    KL_KEY_UPDATE_NOT_REQUESTED = 0
};

#define KL_OP_NO_COMPRESSION ((uint64_t)1 << 17)
#define KL_OP_CIPHER_SERVER_PREFERENCE ((uint64_t)1 << 22)
#define KL_OP_NO_RENEGOTIATION ((uint64_t)1 << 30)
#define KL_INIT_NO_ATEXIT ((uint64_t)0x00080000)

#define KL_LIBSSL_OLDEST 0x30000000UL

/* Fill the table. Return NULL, or the name of the missing library or function. */
static inline const char *kl_libssl_load(kl_libssl *table)
{
    static const char *const libraries[] = {"libssl.so.4", "libssl.so.3"};
    static const char *const names[] = {KL_LIBSSL_FUNCTIONS(KL_LIBSSL_NAME)};
    int flags = RTLD_NOW | RTLD_LOCAL;
    void *library = NULL;
    void *found;
    size_t i;
#if !defined(__SANITIZE_ADDRESS__)
    flags |= RTLD_DEEPBIND; /* an interpreter that exports another OpenSSL must not lend it half of its symbols */
#endif
    for (i = 0; i < sizeof libraries / sizeof *libraries && library == NULL; i++)
        library = dlopen(libraries[i], flags);
    if (library == NULL)
        return libraries[1];
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        found = dlsym(library, names[i]);
        if (found == NULL) {
            dlclose(library);
            return names[i];
        }
        memcpy((char *)table + i * sizeof found, &found, sizeof found);
    }
    return NULL;
}

/* What PEM files are decrypted with: `secret` is the password, or NULL, and then nothing is asked on a terminal. */
static inline int kl_pem_password(char *target, int capacity, int writing, void *secret)
{
    size_t size = secret == NULL ? 0 : strlen((const char *)secret);
    (void)writing;
    if (secret == NULL || size > (size_t)capacity)
        return -1;
    memcpy(target, secret, size);
    return (int)size;
}

#endif
