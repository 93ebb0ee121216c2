// libcrypt makes salts, which are not needed here, with a function that glibc has from 2.36 on. With this one in its
// place the library loads beside older ones too.
#include <openssl/rand.h>

#include <cstddef>

extern "C" void arc4random_buf(void* buffer, std::size_t size) noexcept {
  (void)::RAND_bytes(static_cast<unsigned char*>(buffer), static_cast<int>(size));
}
