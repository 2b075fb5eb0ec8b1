/* The C border of the Rust library: tokenizers, chat templates and grammars.
 *
 * Strings are pointer and length, UTF-8 where not said otherwise, and need no final NUL. Nothing
 * given in is kept after the call. Every function may be called from any thread; a tokenizer does
 * not change after it is made. No panic crosses this border: it comes back as an error like any
 * other. */
#ifndef QUINCE_BRIDGE_H
#define QUINCE_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qb_slice {
  const char* data;
  size_t size;
} qb_slice;

/* Memory of this library: give back with quince_bridge_bytes_free / quince_bridge_ids_free (all
 * zero: nothing to free). */
typedef struct qb_bytes {
  char* data;
  size_t size;
  size_t capacity;
} qb_bytes;

typedef struct qb_ids {
  uint32_t* data;
  size_t size;
  size_t capacity;
} qb_ids;

/* Called when the library gets no memory, on the thread that wanted some; must not return and must
 * not call the library. Without it the program is aborted. */
void quince_bridge_on_out_of_memory(void (*handler)(void));

void quince_bridge_bytes_free(qb_bytes bytes);
void quince_bridge_ids_free(qb_ids ids);

/* A half-open range of bytes of a text, at character borders. */
typedef struct qb_range {
  size_t begin;
  size_t end;
} qb_range;

typedef enum qb_kind {
  QB_MERGES = 0, /* byte-pair encoding by a list of merges */
  QB_SCORES =
      1, /* byte-pair encoding where any two pieces whose text is a token merge, best score first */
  QB_UNIGRAM = 2,
  QB_WORDPIECE = 3
} qb_kind;

enum qb_flag {
  QB_BYTE_LEVEL = 1 << 0,     /* tokens are written in GPT-2's characters for bytes */
  QB_WHOLE_WORDS = 1 << 1,    /* a word that is a token is not merged but taken */
  QB_WHOLE_NEWLINES = 1 << 2, /* so is a run of line feeds */
  QB_ESCAPE_SPACES = 1 << 3,  /* U+2581 stands for a space */
  QB_SPACE_PREFIX =
      1 << 4, /* a space goes before the text and before what follows an added token */
  QB_NFC = 1 << 5,
  QB_LOWERCASE = 1 << 6,     /* WordPiece */
  QB_STRIP_ACCENTS = 1 << 7, /* WordPiece */
  QB_MERGE_SPACES = 1 << 8,  /* Unigram: spaces around go, runs become one */
  QB_SPLIT_MARKS = 1 << 9    /* every U+2581 begins a word, and the text begins with one */
};

/* A vocabulary as plain lists. */
typedef struct qb_vocabulary {
  qb_kind kind;
  uint32_t flags;         /* qb_flag */
  const qb_slice* tokens; /* by id */
  size_t token_count;
  const float* scores;   /* token_count, or NULL */
  const uint8_t* types;  /* token_count, or NULL; GGUF's numbers: 1 normal, 2 unknown, 3 control,
                            4 user-defined, 5 unused, 6 byte */
  const uint8_t* strips; /* token_count, or NULL; bit 0: an added token takes the white space on its
                            left with it, bit 1: on its right */
  const qb_slice* merges; /* "left right", the first merges first */
  size_t merge_count;
  const qb_slice* splits; /* expressions that cut the text into words, one after another */
  size_t split_count;
  int64_t unknown;        /* id, or -1 */
  const uint32_t* prefix; /* ids put before a text when asked for */
  size_t prefix_count;
  const uint32_t* suffix; /* and behind it */
  size_t suffix_count;
  qb_slice charsmap; /* SentencePiece's precompiled normalization, or empty; bytes */
} qb_vocabulary;

typedef struct qb_tokenizer qb_tokenizer;

/* Both: NULL and *error (text) on failure. */
qb_tokenizer* quince_bridge_tokenizer_from_json(qb_slice json, qb_bytes* error);
qb_tokenizer* quince_bridge_tokenizer_from_vocabulary(
    const qb_vocabulary* vocabulary, qb_bytes* error);
void quince_bridge_tokenizer_free(qb_tokenizer* tokenizer);

/* Ids of text. Special tokens written in the text are recognised only where they lie wholly inside
 * one of the `allowed` ranges (ascending, apart); elsewhere they are text. add_special: with prefix
 * and suffix; a text whose ids already begin with the prefix gets no second one. */
bool quince_bridge_encode(
    const qb_tokenizer* tokenizer,
    qb_slice text,
    const qb_range* allowed,
    size_t allowed_count,
    bool add_special,
    qb_ids* ids,
    qb_bytes* error);

/* The bytes that ids stand for: UTF-8 as far as the tokens are. Ids without a token give nothing.
 */
bool quince_bridge_decode(
    const qb_tokenizer* tokenizer,
    const uint32_t* ids,
    size_t count,
    bool skip_special,
    qb_bytes* bytes,
    qb_bytes* error);

/* True: quince_bridge_decode of a sequence is the concatenation of quince_bridge_decode_one of its
 * ids, less up to *strip_left spaces at its beginning. False: only whole sequences can be decoded.
 */
bool quince_bridge_decodes_by_token(const qb_tokenizer* tokenizer, uint32_t* strip_left);
qb_bytes quince_bridge_decode_one(const qb_tokenizer* tokenizer, uint32_t id, bool skip_special);

uint32_t quince_bridge_vocab_size(const qb_tokenizer* tokenizer); /* highest id + 1 */
int64_t quince_bridge_token_to_id(const qb_tokenizer* tokenizer, qb_slice token); /* -1: none */
bool quince_bridge_id_to_token(
    const qb_tokenizer* tokenizer, uint32_t id, qb_bytes* token); /* false: none */
bool quince_bridge_is_special(const qb_tokenizer* tokenizer, uint32_t id);
/* Ids of the special added tokens, ascending. */
qb_ids quince_bridge_special_ids(const qb_tokenizer* tokenizer);

/* A chat template (Jinja as Hugging Face's templates use it). */
typedef struct qb_template qb_template;

typedef struct qb_time { /* local time */
  int32_t year;
  int32_t month; /* 1 to 12 */
  int32_t day;
  int32_t hour;
  int32_t minute;
  int32_t second;
  int32_t weekday; /* 0: Sunday */
  int32_t yearday; /* 0: 1 January */
} qb_time;

/* NULL and *error on a syntax error. */
qb_template* quince_bridge_template_new(qb_slice source, qb_bytes* error);
void quince_bridge_template_free(qb_template* chat_template);

/* The prompt of a conversation. request: JSON, {"messages": [...], "tools": [...], "extra": {...},
 * "special": {"bos_token": ...}, "add_generation_prompt": bool}. With a tokenizer, special tokens
 * that stand in the conversation are kept apart from those that the template writes: no special
 * token reaches over one of the cuts (byte positions of the text, ascending). *refused: the error
 * is the template's own (raise_exception). */
bool quince_bridge_template_render(
    const qb_template* chat_template,
    qb_slice request,
    const qb_time* now,
    const qb_tokenizer* tokenizer, /* or NULL */
    qb_bytes* text,
    qb_ids* cuts,
    bool* refused,
    qb_bytes* error);

/* The vocabulary of a tokenizer as grammars need it: what each id stands for. vocab_size: the
 * model's; ids beyond the tokenizer's are never allowed. It keeps what it needs of the tokenizer.
 * Any thread. The first grammar takes longer, for tables over the vocabulary are made then. */
typedef struct qb_tokens qb_tokens;

qb_tokens* quince_bridge_tokens_new(
    const qb_tokenizer* tokenizer, uint32_t vocab_size, qb_bytes* error);
void quince_bridge_tokens_free(qb_tokens* tokens);

typedef enum qb_grammar_kind {
  QB_JSON_SCHEMA = 0,
  QB_JSON_OBJECT = 1, /* any JSON object; the text is not looked at */
  QB_REGEX = 2,       /* of the whole text, in the Rust regex crate's syntax, without look-around */
  QB_CHOICE = 3,      /* a JSON array of texts */
  QB_LARK = 4,        /* llguidance's variant of Lark */
  QB_GBNF = 5         /* llama.cpp's notation */
} qb_grammar_kind;

/* A place in a text that is held to a grammar. One thread at a time; clones share tables behind a
 * lock, and are otherwise independent. */
typedef struct qb_matcher qb_matcher;

typedef struct qb_matcher_state {
  bool accepting; /* the text may end here */
  bool complete;  /* it must: nothing can follow */
} qb_matcher_state;

/* The beginning of a text; NULL and *error when the grammar is wrong, cannot be held to, or costs
 * more than is allowed. */
qb_matcher* quince_bridge_grammar_compile(
    const qb_tokens* tokens, qb_grammar_kind kind, qb_slice grammar, qb_bytes* error);
qb_matcher* quince_bridge_matcher_clone(const qb_matcher* matcher); /* NULL: failed */
void quince_bridge_matcher_free(qb_matcher* matcher);

/* Which ids may come next: bit id % 32 of word id / 32. word_count: (vocab_size + 31) / 32. False
 * and *error where the grammar costs too much here, or no token can go on; the matcher is of no use
 * then. */
bool quince_bridge_matcher_mask(
    qb_matcher* matcher,
    uint32_t* words,
    size_t word_count,
    qb_matcher_state* state,
    qb_bytes* error);
/* False and *error for the first id that does not fit; those before it are taken. */
bool quince_bridge_matcher_consume(
    qb_matcher* matcher,
    const uint32_t* ids,
    size_t count,
    qb_matcher_state* state,
    qb_bytes* error);
/* The ids that are the only way on, written as the tokenizer would; often none. */
bool quince_bridge_matcher_forced(qb_matcher* matcher, qb_ids* ids, qb_bytes* error);
/* Takes back the last count ids that were consumed. */
bool quince_bridge_matcher_rollback(qb_matcher* matcher, size_t count, qb_bytes* error);

#ifdef __cplusplus
}
#endif
#endif
