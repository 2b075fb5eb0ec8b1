// API keys at rest. What is kept of a key is "sha256:SALT:DIGEST", the digest of the salt and the
// key (FIPS 180-4). One round is enough for keys of 256 random bits, which is what new_secret()
// makes: nobody can try them all. A key that somebody thought up is as safe as it is long, so short
// ones are refused. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace quince::gateway {

constexpr size_t kShortestSecret = 16;  // bytes

std::string new_secret();  // "qk-" and 43 letters and digits
// Throws UserError: too short, or with characters that a header cannot carry.
std::string hash_secret(std::string_view secret);
bool is_secret_hash(std::string_view hash);
// Takes as long whatever the secret is.
bool matches(std::string_view secret, std::string_view hash);
// Whether the two are the same; takes as long whatever stands in them.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace quince::gateway
