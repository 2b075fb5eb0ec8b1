#include "cli/foreign_flags.h"

#include "cli/args.h"

namespace quince::cli {

namespace {

enum class Is { taken, refused };
enum class Value { none, one, maybe };  // maybe: on, off or auto

struct ForeignFlag {
  const char* names;
  Value value;
  Is is;
  const char* why;
};

using enum Is;
constexpr Value kNone = Value::none;
constexpr Value kOne = Value::one;

constexpr const char* kOneDevice = "one device computes the whole model";
constexpr const char* kNoDownload = "nothing is downloaded here: see quince pull";
constexpr const char* kNoImages = "images, sound and video are not offered yet";
constexpr const char* kNoTools = "nothing is run here for a model: tools are the client's";
constexpr const char* kRequest = "a request's own: it is a field of its body";
constexpr const char* kOneLookup = "there is one way to look texts up; see --num-draft-tokens";
constexpr const char* kThreads = "the system places threads: see taskset, nice and numactl";
constexpr const char* kRope = "positions are as the model's own configuration has them";
constexpr const char* kOneModel = "one model is served: name it as MODEL";

constexpr ForeignFlag kFlags[] = {
    // What this program does in other ways.
    {"--cache-list", kNone, refused, "see quince list"},
    {"--completion-bash", kNone, refused, "there is none"},
    {"--version", kNone, refused, "see quince --version"},
    {"--usage", kNone, refused, "see --help"},
    {"--list-devices", kNone, refused, "the GPU computes if there is one; see --device"},
    // Processors.
    {"-C,--cpu-mask,--cpu-range,--cpu-strict,--prio", kOne, refused, kThreads},
    {"--cpu-mask-batch,--cpu-range-batch,--cpu-strict-batch,--prio-batch", kOne, refused, kThreads},
    {"--poll,--poll-batch", kOne, taken, "threads wait in the way that has been measured as best"},
    {"--numa", kOne, refused, kThreads},
    {"--rpc", kOne, refused, kOneDevice},
    {"--override-tensor,--n-cpu-moe,--n-cpu-ffn", kOne, refused, kOneDevice},
    {"--cpu-moe,--op-offload,--no-op-offload,--no-host", kNone, refused, kOneDevice},
    {"--pipeline", kNone, refused, kOneDevice},
    {"--kv-offload", kNone, taken, "keys and values are where the model is"},
    {"--no-kv-offload", kNone, refused, "keys and values are where the model is"},
    {"--repack", kNone, taken, "weights are always packed for this machine"},
    {"--no-repack", kNone, refused, "weights are always packed for this machine; see --kernels"},
    {"--fit", Value::maybe, taken, "what does not fit is said before it is loaded"},
    {"--fit-target,--fit-ctx", kOne, taken, "what does not fit is said before it is loaded"},
    // The model.
    {"--rope-scaling,--rope-scale,--rope-freq-base,--rope-freq-scale", kOne, refused, kRope},
    {"--yarn-orig-ctx,--yarn-ext-factor,--yarn-attn-factor", kOne, refused, kRope},
    {"--yarn-beta-slow,--yarn-beta-fast", kOne, refused, kRope},
    {"--override-kv", kOne, refused, "a file's metadata are taken as they are"},
    {"--check-tensors", kNone, refused, "files are checked in their form, not in their numbers"},
    {"--lazy-mode", kOne, refused, "all weights are in memory"},
    {"--lora-scaled", kOne, refused, "LoRA adapters are not offered yet"},
    {"--lora-init-without-apply", kNone, refused, "LoRA adapters are not offered yet"},
    {"--control-vector,--control-vector-scaled", kOne, refused, "there are no control vectors"},
    {"--control-vector-layer-range", kOne, refused, "there are no control vectors"},
    {"--model-url,--docker-repo,--hf-token", kOne, refused, kNoDownload},
    {"--hf-file", kOne, refused, "name the file, or REPO:QUANT, as MODEL"},
    {"--offline", kNone, taken, "nothing is ever downloaded here"},
    {"--embd-gemma-default,--spec-default", kNone, refused, kNoDownload},
    {"--fim-qwen-1.5b-default,--fim-qwen-3b-default", kNone, refused, kNoDownload},
    {"--fim-qwen-7b-default,--fim-qwen-7b-spec", kNone, refused, kNoDownload},
    {"--fim-qwen-14b-spec,--fim-qwen-30b-default", kNone, refused, kNoDownload},
    {"--gpt-oss-20b-default,--gpt-oss-120b-default", kNone, refused, kNoDownload},
    {"--vision-gemma-4b-default,--vision-gemma-12b-default", kNone, refused, kNoDownload},
    {"--models-dir,--models-max,--models-preset", kOne, refused, kOneModel},
    {"--models-autoload", kNone, refused, kOneModel},
    {"--no-models-autoload", kNone, taken, kOneModel},
    {"--sleep-idle-seconds", kOne, refused, "the model stays loaded"},
    {"--warmup,--no-warmup", kNone, taken, "a model is ready when it is loaded"},
    // Keys and values.
    {"--keep", kOne, refused, "nothing of a prompt is dropped; see --max-kv-size"},
    {"--swa-full", kNone, taken, "what a prompt can go on from is kept in either case"},
    {"--defrag-thold", kOne, taken, "keys and values lie in pages, which need no order"},
    {"--kv-unified", kNone, taken, "requests share one memory"},
    {"--no-kv-unified", kNone, refused, "requests share one memory"},
    {"--kv-unified-per-slot", kOne, refused, "every request may have all of --ctx-size"},
    {"--ctx-checkpoints,--swa-checkpoints,--checkpoint-min-step",
     kOne,
     taken,
     "what a prompt can go on from is kept without them"},
    {"--cache-idle-slots", kNone, taken, "what has ended is kept for others; see --cache-ram"},
    {"--no-cache-idle-slots", kNone, refused, "see --cache-ram 0"},
    {"--cache-prompt", kNone, taken, "prompts always go on from what is known"},
    {"--no-cache-prompt",
     kNone,
     refused,
     "a request says so itself: cache_prompt; or --cache-ram 0"},
    {"--cache-reuse",
     kOne,
     taken,
     "what is known is used up to where a prompt changes; what follows is computed"},
    {"--prompt-cache-size", kOne, taken, "what is kept is bounded in bytes: see --cache-ram"},
    {"--slot-prompt-similarity", kOne, taken, "what a prompt begins with is found wherever it ran"},
    {"--context-shift",
     kNone,
     refused,
     "an answer ends where its context is full; see --max-kv-size"},
    {"--no-context-shift", kNone, taken, "an answer ends where its context is full"},
    {"--cont-batching", kNone, taken, "requests always advance together"},
    {"--no-cont-batching", kNone, refused, "requests always advance together; see --parallel"},
    {"--prompt-concurrency", kOne, taken, "prompts share what a step has room for"},
    // Sampling.
    {"--sampler-seq,--sampling-seq",
     kOne,
     refused,
     "letters are not understood; --samplers takes the steps' names"},
    {"--adaptive-target,--adaptive-decay", kOne, refused, "adaptive-p is not offered yet"},
    {"--grammar,--grammar-file,--json-schema-file", kOne, refused, kRequest},
    {"-j,--json-schema", kOne, refused, kRequest},
    {"-r,--reverse-prompt", kOne, refused, kRequest},
    {"--special", kNone, refused, "a request's own: skip_special_tokens"},
    {"-e,--escape,--no-escape", kNone, taken, "requests are JSON, which has escapes of its own"},
    {"--backend-sampling", kNone, taken, "tokens are chosen where that is quickest"},
    // Drafts.
    {"--spec-draft-threads,--threads-draft,--spec-draft-threads-batch,--threads-batch-draft",
     kOne,
     taken,
     "--threads counts for the draft model too"},
    {"--spec-draft-cpu-mask,--cpu-mask-draft,--spec-draft-cpu-range,--cpu-range-draft",
     kOne,
     refused,
     kThreads},
    {"--spec-draft-cpu-strict,--cpu-strict-draft,--spec-draft-prio,--prio-draft",
     kOne,
     refused,
     kThreads},
    {"--spec-draft-cpu-mask-batch,--cpu-mask-batch-draft", kOne, refused, kThreads},
    {"--spec-draft-cpu-strict-batch,--cpu-strict-batch-draft", kOne, refused, kThreads},
    {"--spec-draft-prio-batch,--prio-batch-draft", kOne, refused, kThreads},
    {"--spec-draft-poll,--poll-draft,--spec-draft-poll-batch,--poll-batch-draft",
     kOne,
     taken,
     "threads wait in the way that has been measured as best"},
    {"--spec-draft-override-tensor,--override-tensor-draft", kOne, refused, kOneDevice},
    {"--spec-draft-cpu-moe,--cpu-moe-draft", kNone, refused, kOneDevice},
    {"--spec-draft-n-cpu-moe,--spec-draft-ncmoe,--n-cpu-moe-draft", kOne, refused, kOneDevice},
    {"--spec-draft-device,--device-draft", kOne, refused, "the draft model is where the model is"},
    {"--spec-draft-ngl,--gpu-layers-draft,--n-gpu-layers-draft",
     kOne,
     taken,
     "the draft model is where the model is"},
    {"--spec-draft-type-k,--cache-type-k-draft,--spec-draft-type-v,--cache-type-v-draft",
     kOne,
     refused,
     "the draft model's keys and values are as --cache-type-k and --cache-type-v say"},
    {"--spec-draft-n-min,--draft-min,--draft-n-min", kOne, taken, "as many as pay off are guessed"},
    {"--spec-draft-p-split,--draft-p-split,--spec-draft-p-min,--draft-p-min",
     kOne,
     taken,
     "as many as pay off are guessed"},
    {"--spec-draft-backend-sampling,--no-spec-draft-backend-sampling",
     kNone,
     taken,
     "tokens are chosen where that is quickest"},
    {"--spec-draft-sampling", kOne, refused, "the draft model guesses its likeliest tokens"},
    {"--spec-synth-len,--spec-synth-rates", kOne, refused, "guesses are real"},
    {"--spec-type",
     kOne,
     refused,
     "texts are looked up, or --draft-model guesses; --num-draft-tokens 0: neither"},
    {"--spec-ngram-mod-n-min,--spec-ngram-mod-n-max,--spec-ngram-mod-n-match",
     kOne,
     refused,
     kOneLookup},
    {"--spec-ngram-simple-size-n,--spec-ngram-simple-size-m,--spec-ngram-simple-min-hits",
     kOne,
     refused,
     kOneLookup},
    {"--spec-ngram-map-k-size-n,--spec-ngram-map-k-size-m,--spec-ngram-map-k-min-hits",
     kOne,
     refused,
     kOneLookup},
    {"--spec-ngram-map-k4v-size-n,--spec-ngram-map-k4v-size-m,--spec-ngram-map-k4v-min-hits",
     kOne,
     refused,
     kOneLookup},
    {"--spec-ngram-size-n,--spec-ngram-size-m,--spec-ngram-min-hits", kOne, refused, kOneLookup},
    {"--lookup-cache-static,--lookup-cache-dynamic", kOne, refused, kOneLookup},
    // Images.
    {"--mmproj,--mmproj-url,--mmproj-device,--image-min-tokens,--image-max-tokens",
     kOne,
     refused,
     kNoImages},
    {"--mtmd-batch-max-tokens,--video-fps,--video-timestamp-interval,--video-ffmpeg-dir",
     kOne,
     refused,
     kNoImages},
    {"--media-path", kOne, refused, kNoImages},
    {"--mmproj-auto,--no-mmproj,--no-mmproj-auto,--mmproj-offload,--no-mmproj-offload",
     kNone,
     taken,
     kNoImages},
    // Chat.
    {"--jinja", kNone, taken, "chat templates are always rendered in full"},
    {"--no-jinja", kNone, refused, "chat templates are always rendered in full"},
    {"--chat-template", kOne, refused, "templates have no names here; see --chat-template-file"},
    {"--use-default-chat-template", kNone, taken, "the model's own template is used"},
    {"--reasoning",
     Value::maybe,
     refused,
     "say it to the template, --chat-template-kwargs '{\"enable_thinking\": false}', or with "
     "--reasoning-budget 0"},
    {"--reasoning-effort", kOne, refused, "a request's own: reasoning_effort"},
    {"--reasoning-budget-message", kOne, refused, "reasoning is closed with the model's own mark"},
    {"--reasoning-preserve,--no-reasoning-preserve", kNone, taken, "the chat template decides"},
    {"--skip-chat-parsing", kNone, refused, "see /completion, which gives the text as it is"},
    {"--no-skip-chat-parsing", kNone, taken, "answers are always read"},
    {"--prefill-assistant", kNone, taken, "an answer that has begun is gone on with"},
    {"--no-prefill-assistant", kNone, refused, "an answer that has begun is gone on with"},
    {"--spm-infill", kNone, refused, "infill has the order that the model was made for"},
    {"--embedding,--embeddings", kNone, taken, "/v1/embeddings is always there"},
    {"--reranking,--rerank", kNone, refused, "not offered yet"},
    // HTTP.
    {"--tags", kOne, taken, "tags are not told to anybody"},
    {"--reuse-port", kNone, refused, "a port that is taken is an error"},
    {"--path", kOne, refused, "no files are served"},
    {"--api-prefix", kOne, refused, "routes are where clients look for them"},
    {"--cors-methods,--cors-headers",
     kOne,
     taken,
     "what there is, and what is asked for, may be used"},
    {"--cors-credentials,--no-cors-credentials",
     kNone,
     taken,
     "no cookies are read; see --api-key"},
    {"--ui-config,--webui-config,--ui-config-file,--webui-config-file",
     kOne,
     refused,
     "the page keeps its settings in the browser"},
    {"--props", kNone, refused, "defaults are given as flags, and stay"},
    {"--threads-http", kOne, taken, "few threads serve all connections"},
    {"--tools,--tools-runtime,--mcp-servers-config,--mcp-servers-json", kOne, refused, kNoTools},
    {"--agent,--ui-mcp-proxy,--webui-mcp-proxy", kNone, refused, kNoTools},
    {"--no-agent,--no-ui-mcp-proxy,--no-webui-mcp-proxy", kNone, taken, kNoTools},
    // Messages.
    {"-v,--verbose,--log-verbose", kNone, taken, "/metrics and each answer's timings tell more"},
    {"--perf,--no-perf", kNone, taken, "every answer has its timings"},
    {"--log-level,--verbosity,--log-verbosity", kOne, taken, "there is one level of messages"},
    {"--log-disable,--no-log-jsonl", kNone, taken, "requests leave no line but with --log-format"},
    {"--log-colors", Value::maybe, taken, "messages have no colours"},
    {"--log-prefix,--no-log-prefix", kNone, taken, "see --log-format"},
    {"--log-timestamps,--no-log-timestamps", kNone, taken, "see --log-format"},
    {"--log-prompts-dir", kOne, refused, "see --log-prompts"},
};

}  // namespace

void add_foreign_serve_flags(CLI::App& app) {
  for (const ForeignFlag& flag : kFlags) {
    if (flag.value == Value::maybe) {
      switch_flag(app, flag.names, flag.is == taken, flag.why);
    } else if (flag.is == taken) {
      accept_flag(app, flag.names, flag.value == Value::one, flag.why);
    } else {
      refuse_flag(app, flag.names, flag.value == Value::one, flag.why);
    }
  }
}

}  // namespace quince::cli
