"""Solutions to the exercises of notebook 08. Try them yourself first: the checks help."""


def mend(bug: str, source: str) -> str:
    """What each needs: one barrier, one way for all warps, the group's size, one position less, 64 bits."""
    if bug == "missing_barrier":
        return source.replace("  T* out_row", "  __syncthreads();\n  T* out_row")
    if bug == "wrong_group_divisor":
        return source.replace("head / kv.kv_heads", "head / (rows.heads / kv.kv_heads)")
    if bug == "past_the_context":
        return source.replace("position <= length", "position < length")
    if bug == "int_overflow":
        return source.replace("short at", "int64_t at")
    # divergent_barrier: the state of a warp without positions is empty already, so it needs no way of its own.
    barrier, rest = source.index("    __syncthreads();\n  } else {"), source.index("\n  T* out_row")
    return source[:barrier].replace("if (warp < length) {", "{") + "  }\n  __syncthreads();\n" + source[rest:]


def window() -> str:
    """The loop starts later, never before 0; position and slot are still those of the whole sequence."""
    return """
      for (int position = max(0, length - window); position < length; ++position) {
        int64_t at = kv.offset(seq, position, kv_head);
    """


def largest() -> str:
    """One lane writes for its warp, all meet, all read; and nobody writes for the next tile while others still read."""
    return """
      if (lane == 0) best[warp] = score;
      __syncthreads();
      for (int w = 0; w < WARPS; ++w) score = fmaxf(score, best[w]);
      __syncthreads();
    """


def copy() -> str:
    """Neighbouring threads take neighbouring elements, and go on a whole block of threads further."""
    return """
      int64_t source = int64_t(from[blockIdx.x]) * block_elements, target = int64_t(to[blockIdx.x]) * block_elements;
      for (int i = threadIdx.x; i < block_elements; i += blockDim.x)
        cache[target + i] = cache[source + i];
    """
