#pragma once
// What both halves of a TLS connection have in common.
#include <openssl/err.h>

#include <algorithm>
#include <new>
#include <span>
#include <string>

#include "exporters/http/tls_session.hpp"
#include "exporters/web/tls/openssl.hpp"

namespace gradvane::exporters {

/// @tparam Half  TlsSession, or TlsClientSession
template <typename Half>
class OpenSession : public Half {
 public:
  using Progress = TlsSession::Progress;

  explicit OpenSession(SSL_CTX* context) : ssl_(::SSL_new(context)) {
    BIO* in = ::BIO_new(::BIO_s_mem());
    BIO* out = ::BIO_new(::BIO_s_mem());
    if (!ssl_ || in == nullptr || out == nullptr) {
      ::BIO_free(in);
      ::BIO_free(out);
      throw std::bad_alloc();
    }
    ::SSL_set_bio(ssl_.get(), in, out);  // which owns both
  }

  void take(std::span<const char> bytes) override {
    if (::BIO_write(::SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size())) !=
        static_cast<int>(bytes.size()))
      is_over_ = true;
  }

  Progress read(std::span<char> text, std::size_t& count) override {
    count = 0;
    if (is_over_) return Progress::failed;
    ::ERR_clear_error();
    if (::SSL_read_ex(ssl_.get(), text.data(), text.size(), &count) == 1) return Progress::done;
    return progress_after(0);
  }

  bool write(std::span<const char> text) override {
    std::size_t written = 0;
    if (is_over_ || text.empty()) return !is_over_;
    ::ERR_clear_error();
    is_over_ = ::SSL_write_ex(ssl_.get(), text.data(), text.size(), &written) != 1 ||
               written != text.size();
    ::ERR_clear_error();
    return !is_over_;
  }

  void end() override {
    if (!is_over_) (void)::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
  }

  std::string outgoing() override {
    BIO* bio = ::SSL_get_wbio(ssl_.get());
    std::string bytes(::BIO_ctrl_pending(bio), '\0');
    if (!bytes.empty())
      bytes.resize(static_cast<std::size_t>(
          std::max(0, ::BIO_read(bio, bytes.data(), static_cast<int>(bytes.size())))));
    return bytes;
  }

  [[nodiscard]] bool has_pending() const override {
    return !is_over_ && (::SSL_has_pending(ssl_.get()) == 1 ||
                         ::BIO_ctrl_pending(::SSL_get_rbio(ssl_.get())) > 0);
  }
  [[nodiscard]] std::size_t unsent() const override {
    return ::BIO_ctrl_pending(::SSL_get_wbio(ssl_.get()));
  }
  [[nodiscard]] bool was_plain_http() const override { return was_plain_; }

 protected:
  [[nodiscard]] SSL* ssl() const noexcept { return ssl_.get(); }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

  /// @param result  of a call that was not done
  Progress progress_after(int result) {
    const int error = ::SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return Progress::wants_input;
    if (error == SSL_ERROR_ZERO_RETURN) return Progress::ended;
    is_over_ = true;
    was_plain_ = ERR_GET_REASON(::ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    error_ = last_error();
    return Progress::failed;
  }
  /// Of OpenSSL, when it failed.
  [[nodiscard]] const std::string& openssl_error() const noexcept { return error_; }

 private:
  Session ssl_;
  bool is_over_ = false;
  bool was_plain_ = false;
  std::string error_;
};

}  // namespace gradvane::exporters
