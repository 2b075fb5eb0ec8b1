// What boost::json::basic_parser tells a handler, with nothing done about any of it: a handler
// derives from this and has members of its own for the events that it looks at.
#pragma once

#include <cstddef>
#include <cstdint>

#include <boost/json/string_view.hpp>
#include <boost/system/error_code.hpp>

namespace quince {

struct JsonEvents {
  using Error = boost::system::error_code;
  using Text = boost::json::string_view;

  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  bool on_document_begin(Error&) {
    return true;
  }
  bool on_document_end(Error&) {
    return true;
  }
  bool on_object_begin(Error&) {
    return true;
  }
  bool on_object_end(size_t, Error&) {
    return true;
  }
  bool on_array_begin(Error&) {
    return true;
  }
  bool on_array_end(size_t, Error&) {
    return true;
  }
  bool on_key_part(Text, size_t, Error&) {
    return true;
  }
  bool on_key(Text, size_t, Error&) {
    return true;
  }
  bool on_string_part(Text, size_t, Error&) {
    return true;
  }
  bool on_string(Text, size_t, Error&) {
    return true;
  }
  bool on_number_part(Text, Error&) {
    return true;
  }
  bool on_int64(int64_t, Text, Error&) {
    return true;
  }
  bool on_uint64(uint64_t, Text, Error&) {
    return true;
  }
  bool on_double(double, Text, Error&) {
    return true;
  }
  bool on_bool(bool, Error&) {
    return true;
  }
  bool on_null(Error&) {
    return true;
  }
  bool on_comment_part(Text, Error&) {
    return true;
  }
  bool on_comment(Text, Error&) {
    return true;
  }
};

}  // namespace quince
