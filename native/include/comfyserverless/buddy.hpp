// Buddy allocator with its metadata outside the region that it divides.
//
// A request takes the lowest free block of the smallest sufficient order; the unused tail of that block goes
// back at once, so a request costs its size rounded up to the minimum block. The choice is a function of
// the history of calls alone: the Python twin in dataplane/_python.py gives the same offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace comfyserverless {

class BuddyAllocator {
 public:
  // Divides [0, capacity_bytes). Throws std::invalid_argument unless min_block_bytes is a power of two and
  // capacity_bytes a positive multiple of it.
  BuddyAllocator(std::uint64_t capacity_bytes, std::uint64_t min_block_bytes);

  // Returns the offset of a new block, a multiple of min_block_bytes; nothing if no free block is big enough.
  std::optional<std::uint64_t> alloc(std::uint64_t size_bytes);

  // Gives a block back. Throws std::invalid_argument if offset is not the start of a live block.
  void free(std::uint64_t offset_bytes);

  std::uint64_t capacity_bytes() const noexcept { return capacity_units_ * min_block_bytes_; }
  std::uint64_t min_block_bytes() const noexcept { return min_block_bytes_; }
  std::uint64_t used_bytes() const noexcept { return used_units_ * min_block_bytes_; }
  std::size_t live_blocks() const noexcept { return live_.size(); }

  // Size of the biggest block that alloc could return now.
  std::uint64_t largest_free_bytes() const noexcept;

 private:
  // All positions and sizes inside are in units of min_block_bytes.
  void release_range(std::uint64_t start, std::uint64_t length);
  void insert_merged(std::uint64_t start, unsigned order);

  std::uint64_t min_block_bytes_;
  std::uint64_t capacity_units_;
  std::uint64_t used_units_ = 0;
  std::vector<std::set<std::uint64_t>> free_;  // by order: starts of free blocks of 2^order units
  std::unordered_map<std::uint64_t, std::uint64_t> live_;  // start -> length of every live block
};

}  // namespace comfyserverless
