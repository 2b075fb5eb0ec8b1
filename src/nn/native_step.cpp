#include "nn/native_step.h"

#include <algorithm>
#include <cstring>

#include "nn/native_run.h"

namespace quince {

std::byte* Workspace::reserve(size_t bytes) {
  if (!memory_ || bytes > memory_->size()) {
    memory_.reset();
    constexpr size_t kHugePage = AnonymousMemory::kHugePage;
    const bool huge = bytes >= kHugePage / 8;
    const size_t unit = huge ? kHugePage : 4096;
    memory_.emplace((bytes + bytes / 4 + unit - 1) / unit * unit, huge);
  }
  return memory_->data();
}

NativeStep::NativeStep(std::shared_ptr<const NativeModel> model, StepPlan plan)
    : model_(std::move(model)), plan_(std::move(plan)) {
  row_segment_.resize(static_cast<size_t>(plan_.rows));
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const StepSegment& segment = plan_.segments[s];
    std::fill_n(row_segment_.begin() + segment.first_row, segment.rows, static_cast<int>(s));
  }
  const size_t kinds = model_->kinds.windows.size();
  const int value_width = plan_.segments.front().layouts.front().value_width();
  const int64_t group = model_->weights.spec.heads / model_->weights.spec.kv_heads;
  const int64_t partial = group * (value_width + 2);
  for (size_t k = 0; k < kinds; ++k) {
    std::vector<int64_t> places(static_cast<size_t>(plan_.rows), -1);
    int64_t floats = 0;
    for (const StepSegment& segment : plan_.segments) {
      for (int r = 0; segment.by_row && r < segment.rows; ++r) {
        places[static_cast<size_t>(segment.first_row) + static_cast<size_t>(r)] = floats;
        floats += kernels::row_parts(segment.blocks_to(k, r)).count * partial *
                  model_->weights.spec.kv_heads;
      }
    }
    row_partials_.push_back(std::move(places));
    partial_floats_ = std::max(partial_floats_, floats);
  }
  for (size_t k = 0; k < kinds; ++k) {
    units_.push_back(attention_units(k, false));
  }
  last_units_ = attention_units(static_cast<size_t>(model_->kinds.kind.back()), true);
  store_units_ = store_units();
}

bool NativeStep::wanted(int first_row, int rows) const {
  auto found = std::lower_bound(plan_.logit_rows.begin(), plan_.logit_rows.end(), first_row);
  return found != plan_.logit_rows.end() && *found < first_row + rows;
}

int StepSegment::blocks_to(size_t kind, int row) const {
  const auto& list = blocks[kind]->blocks;
  const auto behind =
      std::upper_bound(list.begin(), list.end(), position + row, [](int64_t at, const auto& block) {
        return at < block.start;
      });
  return static_cast<int>(behind - list.begin());
}

// The parts of row r of segment s.
void NativeStep::add_row_units(size_t kind, int s, int r, std::vector<AttentionUnit>& units) const {
  const DecoderSpec& spec = model_->weights.spec;
  const StepSegment& segment = plan_.segments[static_cast<size_t>(s)];
  const int blocks = segment.blocks_to(kind, r);
  const kernels::RowParts parts = kernels::row_parts(blocks);
  const int64_t size =
      static_cast<int64_t>(spec.heads / spec.kv_heads) * (segment.layouts[kind].value_width() + 2);
  for (int head = 0; head < spec.kv_heads; ++head) {
    for (int part = 0; part < parts.count; ++part) {
      AttentionUnit unit;
      unit.segment = s;
      unit.head = head;
      unit.first_row = segment.first_row + r;
      unit.first_block = part * parts.blocks;
      unit.last_block = std::min(blocks, unit.first_block + parts.blocks);
      unit.stores = segment.alone() && part + 1 == parts.count;
      unit.partial = row_partials_[kind][static_cast<size_t>(unit.first_row)] +
                     (static_cast<int64_t>(head) * parts.count + part) * size;
      units.push_back(unit);
    }
  }
}

// Heaviest first, as far as that is known: the last rows of a prompt see the most.
std::vector<AttentionUnit> NativeStep::attention_units(size_t kind, bool only_logit_rows) const {
  const DecoderSpec& spec = model_->weights.spec;
  const int group = spec.heads / spec.kv_heads;
  std::vector<AttentionUnit> units;
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const StepSegment& segment = plan_.segments[s];
    const int at_once = kernels::rows_at_once(group, segment.rows);
    for (int end = segment.rows; !segment.by_row && end > 0;) {
      const int begin = (end - 1) / at_once * at_once;
      for (int head = 0; head < spec.kv_heads; ++head) {
        AttentionUnit unit;
        unit.segment = static_cast<int>(s);
        unit.head = head;
        unit.first_row = segment.first_row + begin;
        unit.rows = end - begin;
        unit.single = false;
        if (!only_logit_rows || wanted(unit.first_row, unit.rows)) {
          units.push_back(unit);
        }
      }
      end = begin;
    }
  }
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const StepSegment& segment = plan_.segments[s];
    for (int r = 0; segment.by_row && r < segment.rows; ++r) {
      if (segment.alone() || !only_logit_rows || wanted(segment.first_row + r, 1)) {
        add_row_units(kind, static_cast<int>(s), r, units);
      }
    }
  }
  return units;
}

// Rows that lie in one block each.
std::vector<AttentionUnit> NativeStep::store_units() const {
  std::vector<AttentionUnit> units;
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const StepSegment& segment = plan_.segments[s];
    for (int r = 0; !segment.alone() && r < segment.rows;) {
      const auto slot = static_cast<int>((segment.position + r) % kernels::kKvBlock);
      const int rows = std::min(segment.rows - r, kernels::kKvBlock - slot);
      for (int head = 0; head < model_->weights.spec.kv_heads; ++head) {
        AttentionUnit unit;
        unit.segment = static_cast<int>(s);
        unit.head = head;
        unit.first_row = segment.first_row + r;
        unit.rows = rows;
        unit.single = false;
        units.push_back(unit);
      }
      r += rows;
    }
  }
  return units;
}

void NativeStep::run(
    ThreadPool& pool,
    Workspace& workspace,
    const int32_t* tokens,
    int64_t stride,
    float* logits) const {
  for (const StepSegment& segment : plan_.segments) {
    for (size_t k = 0; k < segment.blocks.size(); ++k) {
      for (const kernels::KvCopy& copy : segment.blocks[k]->copies) {
        kernels::copy_block(segment.layouts[k], copy.from.get(), copy.to);
      }
    }
  }
  StepRun run(*this, workspace, pool.size(), tokens, stride, logits);
  pool.run([&run](Team& team) { run.member(team); });
}

}  // namespace quince
