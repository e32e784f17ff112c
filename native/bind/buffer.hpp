// Borrow the bytes of a Python object through the buffer protocol, for as long as this object lives.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace comfyserverless::bind {

enum class Access { read, write };

class Buffer {
 public:
  // Raises BufferError or TypeError in Python if the object has no contiguous buffer of that access.
  Buffer(nanobind::handle object, Access access) {
    const int flags = access == Access::write ? PyBUF_WRITABLE | PyBUF_SIMPLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
      throw nanobind::python_error();
    }
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Returns the address of [offset, offset + size). Raises IndexError if that is not inside the buffer.
  std::byte* range(std::uint64_t offset_bytes, std::uint64_t size_bytes) const {
    const auto length = static_cast<std::uint64_t>(view_.len);
    if (offset_bytes > length || size_bytes > length - offset_bytes) {
      throw nanobind::index_error("range is outside of the buffer");
    }
    return static_cast<std::byte*>(view_.buf) + offset_bytes;
  }

  // Returns the 32-bit word at an offset. Raises ValueError if it is not aligned.
  std::uint32_t* word(std::uint64_t offset_bytes) const {
    std::byte* address = range(offset_bytes, sizeof(std::uint32_t));
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(std::uint32_t) != 0) {
      throw nanobind::value_error("flag is not aligned to 4 bytes");
    }
    return reinterpret_cast<std::uint32_t*>(address);
  }

 private:
  Py_buffer view_{};
};

}  // namespace comfyserverless::bind
