// Python names of the native parts. Converts and checks arguments only; the work is in src/.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstdlib>
#include <cstring>

#include "buffer.hpp"
#include "comfyserverless/buddy.hpp"
#include "comfyserverless/flag.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using comfyserverless::BuddyAllocator;
using comfyserverless::bind::Access;
using comfyserverless::bind::Buffer;

namespace {

// Copies shorter than this take less time than giving up the interpreter lock and getting it back.
constexpr std::uint64_t kHoldLockBytes = 64 * 1024;

void copy(nb::handle target, std::uint64_t target_offset, nb::handle source, std::uint64_t source_offset,
          std::uint64_t size_bytes) {
  const Buffer to(target, Access::write);
  const Buffer from(source, Access::read);
  std::byte* const out = to.range(target_offset, size_bytes);
  const std::byte* const in = from.range(source_offset, size_bytes);
  if (size_bytes < kHoldLockBytes) {
    std::memmove(out, in, size_bytes);
    return;
  }
  nb::gil_scoped_release unlocked;
  std::memmove(out, in, size_bytes);
}

std::uint32_t load_flag(nb::handle buffer, std::uint64_t offset) {
  const Buffer shared(buffer, Access::read);
  return comfyserverless::load_flag(shared.word(offset));
}

void publish_flag(nb::handle buffer, std::uint64_t offset, std::uint32_t value) {
  const Buffer shared(buffer, Access::write);
  comfyserverless::publish_flag(shared.word(offset), value);
}

bool wait_flag(nb::handle buffer, std::uint64_t offset, std::uint32_t value, double timeout_s) {
  const Buffer shared(buffer, Access::read);
  const std::uint32_t* const word = shared.word(offset);
  nb::gil_scoped_release unlocked;
  return comfyserverless::wait_flag(word, value, timeout_s);
}

}  // namespace

NB_MODULE(_native, module) {
  // Objects that live at the end of an interpreter are no leak of ours; tests ask for the report.
  nb::set_leak_warnings(std::getenv("COMFYSERVERLESS_LEAK_CHECK") != nullptr);

  module.doc() = "Native parts of the data plane: copies, the buddy allocator, publication flags.";

  module.def("copy", &copy, "target"_a, "target_offset"_a, "source"_a, "source_offset"_a, "size_bytes"_a,
             "Copy bytes between two buffers without the interpreter lock. Raises IndexError outside of them.");
  module.def("load_flag", &load_flag, "buffer"_a, "offset"_a,
             "Read the 32-bit flag at an offset, with acquire order.");
  module.def("publish_flag", &publish_flag, "buffer"_a, "offset"_a, "value"_a,
             "Set a flag with release order and wake all that wait for it.");
  module.def("wait_flag", &wait_flag, "buffer"_a, "offset"_a, "value"_a, "timeout_s"_a,
             "Wait until a flag is at least `value`: True then, False after the timeout.");

  nb::class_<BuddyAllocator>(module, "BuddyAllocator",
                             "Divide [0, capacity_bytes) into blocks; the metadata is outside of the region.")
      .def(nb::init<std::uint64_t, std::uint64_t>(), "capacity_bytes"_a, "min_block_bytes"_a = 512)
      .def("alloc", &BuddyAllocator::alloc, "size_bytes"_a,
           "Return the offset of a new block, or None if no free block is big enough.")
      .def("free", &BuddyAllocator::free, "offset_bytes"_a,
           "Give a block back. Raises ValueError unless a live block starts there.")
      .def_prop_ro("capacity_bytes", &BuddyAllocator::capacity_bytes)
      .def_prop_ro("min_block_bytes", &BuddyAllocator::min_block_bytes)
      .def_prop_ro("used_bytes", &BuddyAllocator::used_bytes)
      .def_prop_ro("live_blocks", &BuddyAllocator::live_blocks)
      .def_prop_ro("largest_free_bytes", &BuddyAllocator::largest_free_bytes);
}
