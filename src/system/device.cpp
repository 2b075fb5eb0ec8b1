#include "system/device.h"

#include <variant>

#include <mlx/device.h>
#include <mlx/memory.h>

namespace quince {

namespace mx = mlx::core;

bool gpu_available() {
  return mx::is_available(mx::Device(mx::Device::gpu));
}

std::string gpu_name() {
  if (!gpu_available()) {
    return "";
  }
  const auto& info = mx::device_info(mx::Device(mx::Device::gpu));
  auto name = info.find("device_name");
  if (name == info.end() || !std::holds_alternative<std::string>(name->second)) {
    return "GPU";
  }
  return std::get<std::string>(name->second);
}

void use_device(DeviceKind kind) {
  mx::set_default_device(kind == DeviceKind::gpu ? mx::Device::gpu : mx::Device::cpu);
}

size_t peak_device_memory() {
  return mx::get_peak_memory();
}

}  // namespace quince
