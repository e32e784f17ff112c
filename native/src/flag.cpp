#include "comfyserverless/flag.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>

namespace comfyserverless {

namespace {

using Clock = std::chrono::steady_clock;

// One sleep is bounded so that a lost wake-up costs latency, never a hang.
constexpr double kLongestSleepS = 0.1;

void sleep_while_equal(const std::uint32_t* word, std::uint32_t seen, double sleep_s) noexcept {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(sleep_s);
  limit.tv_nsec = static_cast<long>((sleep_s - static_cast<double>(limit.tv_sec)) * 1e9);
  // Not FUTEX_PRIVATE_FLAG: the waiter and the publisher are different processes.
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace

std::uint32_t load_flag(const std::uint32_t* word) noexcept {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void publish_flag(std::uint32_t* word, std::uint32_t value) noexcept {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool wait_flag(const std::uint32_t* word, std::uint32_t value, double timeout_s) noexcept {
  const auto start = Clock::now();
  for (;;) {
    const std::uint32_t seen = load_flag(word);
    if (seen >= value) {
      return true;
    }
    const double left_s = timeout_s - std::chrono::duration<double>(Clock::now() - start).count();
    if (left_s <= 0.0) {
      return false;
    }
    sleep_while_equal(word, seen, std::min(left_s, kLongestSleepS));
  }
}

}  // namespace comfyserverless
