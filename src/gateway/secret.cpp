#include "gateway/secret.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "base/error.h"

namespace quince::gateway {

namespace {

constexpr std::string_view kScheme = "sha256:";
constexpr size_t kSaltBytes = 16;
constexpr size_t kDigestBytes = SHA256_DIGEST_LENGTH;

std::vector<unsigned char> random_bytes(size_t count) {
  std::vector<unsigned char> bytes(count);
  if (RAND_bytes(bytes.data(), static_cast<int>(count)) != 1) {
    throw std::runtime_error("[secret] the system gives no random numbers");
  }
  return bytes;
}

std::string hex(const unsigned char* bytes, size_t count) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string digest(std::string_view salt, std::string_view secret) {
  const std::string text = std::string(salt) + ":" + std::string(secret);
  std::array<unsigned char, kDigestBytes> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return hex(out.data(), out.size());
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string new_secret() {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string secret = "qk-";
  constexpr size_t kLength = 43;  // 43 * log2(62) = 256 bits
  while (secret.size() < 3 + kLength) {
    for (const unsigned char byte : random_bytes(kLength)) {
      // Bytes above the largest multiple of 62 would make some letters likelier.
      if (byte < 248 && secret.size() < 3 + kLength) {
        secret += kLetters[byte % 62];
      }
    }
  }
  return secret;
}

std::string hash_secret(std::string_view secret) {
  if (secret.size() < kShortestSecret) {
    throw UserError(
        "the key has {} bytes, want at least {}; `quince key new` makes a good one",
        secret.size(),
        kShortestSecret);
  }
  const auto odd = [](unsigned char c) { return c < 33 || c > 126; };
  if (std::any_of(secret.begin(), secret.end(), odd)) {
    throw UserError("the key has spaces, or characters that a header cannot carry; leave them out");
  }
  const auto salt_bytes = random_bytes(kSaltBytes);
  const std::string salt = hex(salt_bytes.data(), salt_bytes.size());
  return std::string(kScheme) + salt + ":" + digest(salt, secret);
}

bool is_secret_hash(std::string_view hash) {
  if (!hash.starts_with(kScheme)) {
    return false;
  }
  hash.remove_prefix(kScheme.size());
  const size_t colon = hash.find(':');
  return colon == 2 * kSaltBytes && hash.size() == colon + 1 + 2 * kDigestBytes &&
         is_hex(hash.substr(0, colon)) && is_hex(hash.substr(colon + 1));
}

bool matches(std::string_view secret, std::string_view hash) {
  if (!is_secret_hash(hash)) {
    return false;
  }
  hash.remove_prefix(kScheme.size());
  const std::string have = digest(hash.substr(0, 2 * kSaltBytes), secret);
  return same_secret(have, hash.substr(2 * kSaltBytes + 1));
}

bool same_secret(std::string_view a, std::string_view b) {
  // Of equal length whatever comes, so that the length does not tell either.
  std::array<unsigned char, kDigestBytes> first{};
  std::array<unsigned char, kDigestBytes> second{};
  SHA256(reinterpret_cast<const unsigned char*>(a.data()), a.size(), first.data());
  SHA256(reinterpret_cast<const unsigned char*>(b.data()), b.size(), second.data());
  return CRYPTO_memcmp(first.data(), second.data(), first.size()) == 0;
}

}  // namespace quince::gateway
