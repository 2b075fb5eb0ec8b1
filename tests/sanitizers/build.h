// Which sanitizer this program is built with. Under one everything takes 5 to 20 times as long, so
// that tests made of many repetitions do fewer of them.
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUINCE_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define QUINCE_ADDRESS_SANITIZER 1
#endif
#endif

namespace quince::test {

#ifdef QUINCE_THREAD_SANITIZER
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#ifdef QUINCE_ADDRESS_SANITIZER
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
inline constexpr bool kSanitized = kThreadSanitizer || kAddressSanitizer;

}  // namespace quince::test
