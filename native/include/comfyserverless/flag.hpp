// Publication flags: 32-bit words in memory that processes share, waited on with futex(2).
#pragma once

#include <cstdint>

namespace comfyserverless {

// Reads the word with acquire order: what its writer wrote before publishing is visible.
std::uint32_t load_flag(const std::uint32_t* word) noexcept;

// Writes the word with release order and wakes every waiter, in this process and in others.
void publish_flag(std::uint32_t* word, std::uint32_t value) noexcept;

// Waits until the word is at least `value`; true then, false after `timeout_s` seconds. Values only grow.
// The memory may be mapped read-only.
bool wait_flag(const std::uint32_t* word, std::uint32_t value, double timeout_s) noexcept;

}  // namespace comfyserverless
