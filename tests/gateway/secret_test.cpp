#include "gateway/secret.h"

#include <set>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quince::gateway {

namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Secret, NewOnesAreLongAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    const std::string secret = new_secret();
    EXPECT_EQ(secret.size(), 46U);
    EXPECT_TRUE(secret.starts_with("qk-"));
    EXPECT_EQ(
        secret.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"),
        std::string::npos);
    EXPECT_TRUE(seen.insert(secret).second);
  }
}

TEST(Secret, AHashFitsItsKeyOnly) {
  const std::string secret = new_secret();
  const std::string hash = hash_secret(secret);
  EXPECT_TRUE(is_secret_hash(hash));
  EXPECT_THAT(hash, Not(HasSubstr(secret)));
  EXPECT_TRUE(matches(secret, hash));
  EXPECT_FALSE(matches(secret + "x", hash));
  EXPECT_FALSE(matches(secret.substr(1), hash));
  EXPECT_FALSE(matches("", hash));
  EXPECT_NE(hash_secret(secret), hash) << "the salt is new each time";
}

// Computed with: printf '%s' 00112233445566778899aabbccddeeff:correct-horse-battery | sha256sum
TEST(Secret, IsSha256OfSaltAndKey) {
  EXPECT_TRUE(matches(
      "correct-horse-battery",
      "sha256:00112233445566778899aabbccddeeff:"
      "a449a3a3365fbd731e01d1eb62f4bf306c6bd99f000aab55a10a97b8f3e6651e"));
}

TEST(Secret, WhatIsNoHashMatchesNothing) {
  for (const char* hash : {"", "sha256:", "sha256:00:11", "plain-text-secret-key", "md5:00:11"}) {
    EXPECT_FALSE(is_secret_hash(hash)) << hash;
    EXPECT_FALSE(matches("plain-text-secret-key", hash)) << hash;
  }
  const std::string hash = hash_secret("plain-text-secret-key");
  EXPECT_FALSE(is_secret_hash(hash + "0"));
  EXPECT_FALSE(is_secret_hash(hash.substr(0, hash.size() - 1) + "G"));
}

TEST(Secret, WeakOrUnsendableKeysAreRefused) {
  EXPECT_THROW(static_cast<void>(hash_secret("short")), UserError);
  EXPECT_THROW(static_cast<void>(hash_secret("with a space in it!!")), UserError);
  EXPECT_THROW(static_cast<void>(hash_secret("with-a-line\nbreak-in")), UserError);
}

TEST(Secret, ComparesWhatIsOfAnyLength) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abcd"));
  EXPECT_FALSE(same_secret("abc", ""));
}

}  // namespace

}  // namespace quince::gateway
