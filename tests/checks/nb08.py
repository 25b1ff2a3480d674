"""Right and wrong answers to the exercises of notebook 08. Read by tests/test_checks.py, which says the format."""

from minibatch.checks.nb08 import check_copy, check_largest, check_mend, check_window
from minibatch.cuda.backends import missing

NOTEBOOK = "08_paged_attention_cuda"
SKIP = "; ".join(missing("checked"))  # these checks compile what they are given


def mended(bug, source):
    """By small replacements, and for divergent_barrier by one way for all warps."""
    return {
        "missing_barrier": source.replace("\n  T* out_row", "\n  __syncthreads();\n  T* out_row"),
        "divergent_barrier": source.replace("warp < length", "true"),
        "wrong_group_divisor": source.replace("head / kv.kv_heads", "head * kv.kv_heads / rows.heads"),
        "past_the_context": source.replace("position <= length", "position + 1 <= length"),
        "int_overflow": source.replace("short at", "long at"),
    }[bug]


def mended_otherwise(bug, source):
    if bug == "past_the_context":
        return source.replace("position <= length", "position != length")
    if bug == "int_overflow":
        return source.replace("short at", "auto at")
    return mended(bug, source)


def but(bug, wrong, right):
    """All mended, and one of them in a way that is not right."""
    return lambda name, source: source.replace(wrong, right) if name == bug else mended(name, source)


def text(lines):
    return lambda: lines


def window_from(first, at="kv.offset(seq, position, kv_head)", end="length"):
    return text(f"for (int position = {first}; position < {end}; ++position) {{ int64_t at = {at};")


WINDOW_BY_IF = """
  for (int position = 0; position < length; ++position) {
    if (position + window < length) continue;
    int64_t at = kv.offset(seq, position, kv_head);
"""
WINDOW_DOWN = """
  int first = length > window ? length - window : 0;
  for (int position = length - 1; position >= first; --position) {
    auto at = kv.offset(seq, position, kv_head);
"""

WRITE, MEET = "if (lane == 0) best[warp] = score;\n", "__syncthreads();\n"
READ = "for (int w = 0; w < WARPS; ++w) score = fmaxf(score, best[w]);\n"
TWO_BARRIERS_FIRST = (
    MEET + "if (lane == 31) { best[warp] = score; }\n" + MEET + "for (float x : best) score = max(score, x);"
)

WHERE = """
  int64_t source = int64_t(from[blockIdx.x]) * block_elements, target = int64_t(to[blockIdx.x]) * block_elements;
"""
EACH = "for (int i = threadIdx.x; i < block_elements; i += blockDim.x) "
COPY_BY_POINTERS = """
  const float* source = cache + int64_t(block_elements) * from[blockIdx.x];
  float* target = cache + int64_t(block_elements) * to[blockIdx.x];
  for (int i = blockDim.x - 1 - threadIdx.x; i < block_elements; i += blockDim.x) target[i] = source[i];
"""

TABLE = {
    "mend": {
        "check": check_mend,
        "right": [mended, mended_otherwise],
        "wrong": [
            (lambda bug, source: source, "unchanged"),
            (lambda bug, source: source + "\n", "missing_barrier, 8 query heads on 2: uninitialised read at line"),
            (but("missing_barrier", "  T* out_row", "  __syncwarp();\n  T* out_row"), "uninitialised read at line"),
            (but("missing_barrier", "  T* out_row", "  __syncthreads()\n  T* out_row"), "does not compile"),
            (but("missing_barrier", "k3_block", "my_kernel"), "no kernel of the ladder"),
            (but("divergent_barrier", "__syncthreads();", ""), "divergent_barrier, 8 query heads on 2: uninit"),
            (but("wrong_group_divisor", "head / kv.kv_heads", "head % kv.kv_heads"), "wrong numbers"),
            (but("wrong_group_divisor", "head / kv.kv_heads", "head / 4"), "on 4: wrong numbers"),
            (but("past_the_context", "position <= length", "position < length - 1"), "wrong numbers"),
            (but("int_overflow", "short at", "int at"), "2^31"),
            (lambda bug, source: 3, "as one string"),
        ],
    },
    "window": {
        "check": check_window,
        "right": [text(WINDOW_BY_IF), text(WINDOW_DOWN)],
        "wrong": [
            (window_from("0"), "whole context"),
            (window_from("length"), "saw nothing"),
            (window_from("length - window"), "never written"),
            (window_from("max(0, length - window + 1)"), "Which position is the first"),
            (window_from("max(0, length - window - 1)"), "Which position is the first"),
            (window_from("0", end="min(window, length)"), "Which position is the first"),
            (window_from("max(0, length - window)", at="kv.offset(seq, position, head)"), "k["),
            (window_from("max(0, length - window)", at="position * 32"), "k["),
            (text("int first = 0;"), "does not compile"),
            (lambda: 7, "one string"),
        ],
    },
    "largest": {
        "check": check_largest,
        "right": [text(TWO_BARRIERS_FIRST), text(WRITE + MEET + READ + "if (tile + 1 < tiles) " + MEET)],
        "wrong": [
            (text(WRITE + MEET + READ), "read it at line 3 of your lines"),
            (text(WRITE + READ + MEET), "Is a barrier missing"),
            (text(WRITE + "__syncwarp();" + READ + MEET), "Is a barrier missing"),
            (text("if (lane == 0) { " + WRITE + MEET + "} " + READ + MEET), "race at line"),
            (text(WRITE + "if (warp < 2)\n" + MEET + "else\n" + MEET + READ + MEET), "divergent barrier at line"),
            (text(WRITE + MEET + "if (warp == 0) " + READ + MEET), "of 128 threads"),
            (text(WRITE + MEET + "score = 0; " + READ + MEET), "all of which are negative"),
            (text(WRITE + MEET + READ.replace("<", "<=") + MEET), "uses index 4 in a float[4]"),
            (text("best[threadIdx.x] = score; " + MEET + READ + MEET), "array index"),
            (text(""), "each warp has its own largest"),
        ],
    },
    "copy": {
        "check": check_copy,
        "right": [text(COPY_BY_POINTERS), text(WHERE + EACH + "cache[i + target] = cache[i + source];")],
        "wrong": [
            (text(WHERE + "cache[target + threadIdx.x] = cache[source + threadIdx.x];"), "has 32 wrong elements"),
            (text(WHERE + "for (int i = 0; i < block_elements; ++i) cache[target + i] = cache[source + i];"), "race"),
            (text(WHERE + EACH.replace("blockDim.x", "32") + "cache[target + i] = cache[source + i];"), "race"),
            (text(WHERE + EACH + "cache[source + i] = cache[target + i];"), "is a target"),
            (text(WHERE.replace("blockIdx.x", "0") + EACH + "cache[target + i] = cache[source + i];"), "two blocks"),
            (text(EACH + "cache[to[blockIdx.x] + i] = cache[from[blockIdx.x] + i];"), "race"),
            (text(WHERE + EACH.replace("<", "<=") + "cache[target + i] = cache[source + i];"), "no target"),
            (text(WHERE + EACH + "cache[target + i] = from[source + i];"), "out of bounds"),
            (text(WHERE), "wrong elements"),
        ],
    },
}
