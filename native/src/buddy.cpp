#include "comfyserverless/buddy.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace comfyserverless {

namespace {

unsigned order_of(std::uint64_t power_of_two) {
  return static_cast<unsigned>(std::countr_zero(power_of_two));
}

}  // namespace

BuddyAllocator::BuddyAllocator(std::uint64_t capacity_bytes, std::uint64_t min_block_bytes)
    : min_block_bytes_(min_block_bytes), capacity_units_(0) {
  if (!std::has_single_bit(min_block_bytes)) {
    throw std::invalid_argument("min_block_bytes must be a power of two, not " +
                                std::to_string(min_block_bytes));
  }
  if (capacity_bytes == 0 || capacity_bytes % min_block_bytes != 0) {
    throw std::invalid_argument("capacity_bytes must be a positive multiple of " +
                                std::to_string(min_block_bytes) + ", not " + std::to_string(capacity_bytes));
  }
  capacity_units_ = capacity_bytes / min_block_bytes;
  free_.resize(order_of(std::bit_floor(capacity_units_)) + 1);
  release_range(0, capacity_units_);
}

std::optional<std::uint64_t> BuddyAllocator::alloc(std::uint64_t size_bytes) {
  if (size_bytes > capacity_bytes()) {
    return std::nullopt;
  }
  const std::uint64_t rounded_up = size_bytes / min_block_bytes_ + (size_bytes % min_block_bytes_ != 0);
  const std::uint64_t units = std::max<std::uint64_t>(rounded_up, 1);
  const std::size_t needed = order_of(std::bit_ceil(units));
  for (std::size_t order = needed; order < free_.size(); ++order) {
    auto& blocks = free_[order];
    if (blocks.empty()) {
      continue;
    }
    const std::uint64_t start = *blocks.begin();
    blocks.erase(blocks.begin());
    live_.emplace(start, units);
    used_units_ += units;
    release_range(start + units, (std::uint64_t{1} << order) - units);
    return start * min_block_bytes_;
  }
  return std::nullopt;
}

void BuddyAllocator::free(std::uint64_t offset_bytes) {
  const auto found = offset_bytes % min_block_bytes_ == 0 ? live_.find(offset_bytes / min_block_bytes_) : live_.end();
  if (found == live_.end()) {
    throw std::invalid_argument("no live block starts at offset " + std::to_string(offset_bytes));
  }
  const auto [start, units] = *found;
  live_.erase(found);
  used_units_ -= units;
  release_range(start, units);
}

std::uint64_t BuddyAllocator::largest_free_bytes() const noexcept {
  for (std::size_t order = free_.size(); order-- > 0;) {
    if (!free_[order].empty()) {
      return (std::uint64_t{1} << order) * min_block_bytes_;
    }
  }
  return 0;
}

// Cuts a range into aligned blocks, lowest first, and makes each of them free.
void BuddyAllocator::release_range(std::uint64_t start, std::uint64_t length) {
  while (length > 0) {
    const std::uint64_t fits = std::bit_floor(length);
    const std::uint64_t aligned = start == 0 ? fits : std::uint64_t{1} << std::countr_zero(start);
    const std::uint64_t size = std::min(fits, aligned);
    insert_merged(start, order_of(size));
    start += size;
    length -= size;
  }
}

void BuddyAllocator::insert_merged(std::uint64_t start, unsigned order) {
  while (order + 1 < free_.size() && free_[order].erase(start ^ (std::uint64_t{1} << order)) > 0) {
    start &= ~(std::uint64_t{1} << order);
    ++order;
  }
  free_[order].insert(start);
}

}  // namespace comfyserverless
