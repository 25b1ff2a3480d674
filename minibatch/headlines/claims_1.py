"""Article 1, "O lote que nunca fecha". See `claims.py`."""

from minibatch.headlines.claims import BOUNDED, CONFIRMED, CORRECTED, Claim

WHY, OLD, SEEN = "por que existe lote", "o jeito antigo", "a observação que mudou tudo"
SIZE, CODE, PRICE, MEMORY = "o tamanho do ganho", "o código", "o preço", "a memória virou o palco"

CLAIMS = (
    Claim(
        1,
        WHY,
        "Reading the weights costs the same for one request or for thirty",
        BOUNDED,
        "The weights do; their K and V are read for each. On a 13B model at 500 tokens of context a step of 30 lasts "
        "{facts[step of 30 / step of 1]:.2f} times a step of one, until computing takes over.",
        "notebook 01, section 2; notebook 01, section 5",
    ),
    Claim(
        1,
        OLD,
        "In a batch of answers of 20 and 900 tokens the short one's slot is dead for 880 steps",
        CONFIRMED,
        "A static batcher that serves the two computes {facts[dead slot-steps of 20 and 900]:.0f} dead slot-steps.",
        "notebook 02, section 1; notebook 02, section 6",
    ),
    Claim(
        1,
        OLD,
        "Throughput collapses, for the card spends much of its time on empty slots",
        BOUNDED,
        "Steps run over steps needed at 32 slots: {dead_slots[Orca's lengths, 32 slots]:.1f} with Orca's lengths, "
        "{dead_slots[Azure conversation, 32 slots]:.1f} on Azure's conversations, "
        "{dead_slots[Azure code, 32 slots]:.1f} on its code. It is the lengths that decide.",
        "notebook 02, section 6; headline dead_slots",
    ),
    Claim(
        1,
        OLD,
        "Who arrives waits for the slowest of the batch before",
        CONFIRMED,
        "Which is why a static batch must stay far below its saturation where waiting is bounded: of Orca's gain a "
        "factor of {orca_latency_bound[... of which waiting, at the bound]:.1f} is that.",
        "notebook 03, section 8; headline orca_latency_bound",
    ),
    Claim(
        1,
        SEEN,
        "Orca, 2022, of Seoul National University",
        CORRECTED,
        "Of Seoul National University and FriendliAI (OSDI 2022).",
        "notebook 03, section 1",
    ),
    Claim(
        1,
        SEEN,
        "A model processes steps; the sequences of a batch share nothing but the moment",
        CONFIRMED,
        "In float32 every text is the same in any batch, token by token.",
        "notebook 03, section 5",
    ),
    Claim(
        1,
        SEEN,
        "Between two steps one may leave and another enter; nothing forces the batch to close",
        CONFIRMED,
        "One class of the package does so; the name is iteration-level scheduling, or continuous batching.",
        "notebook 03, section 2",
    ),
    Claim(
        1,
        SIZE,
        "Orca reported more than an order of magnitude at the same latency",
        BOUNDED,
        "It did, 36.9 times, on 16 cards and 175B parameters. On one card, same lengths and bound: "
        "{orca_latency_bound[rate at twice the unloaded latency: gain]:.1f} times.",
        "headline orca_latency_bound",
    ),
    Claim(
        1,
        SIZE,
        "Public benchmarks are typically at 10 to 20 times",
        BOUNDED,
        "Where a bound on latency, memory and unequal answers come together: "
        "{decomposition[ShareGPT-like: total]:.1f} times on chat, {decomposition[Azure conversation: total]:.1f} and "
        "{decomposition[Azure code: total]:.1f} on two production traces.",
        "headline decomposition; notebook 09, section 6",
    ),
    Claim(
        1,
        SIZE,
        "The gain comes entirely from waiting that is removed",
        CORRECTED,
        "Of {decomposition[ShareGPT-like: total]:.1f} times on chat, {decomposition[... slots refilled]:.1f} are "
        "refilled slots and {decomposition[... latency bound]:.1f} waiting at the bound, but "
        "{decomposition[... memory freed]:.1f} are memory, which is paging's. And of Anyscale's 23 times about 4 are "
        "one static engine against a slower one.",
        "headline decomposition; headline anyscale",
    ),
    Claim(
        1,
        SIZE,
        "No computation became faster, not a byte less is read per token",
        CORRECTED,
        "No kernel did. But the weights are read once a step, so per token of an answer they are read as much less "
        "often as there are fewer steps: {gain_by_variance[Azure code: gain in steps]:.1f} times on Azure's code.",
        "notebook 01, section 1; headline gain_by_variance",
    ),
    Claim(
        1,
        SIZE,
        "If all answers have the same length the gain is modest",
        CONFIRMED,
        "Saturated {gain_by_variance[all equal: gain in time]:.2f} times, at a latency bound "
        "{orca_latency_bound[all requests alike: gain at the bound]:.2f}; unequal prompts, padded, make it "
        "{gain_by_variance[equal answers, unequal prompts: gain in time]:.2f}.",
        "notebook 03, section 6; headline gain_by_variance; headline orca_latency_bound",
    ),
    Claim(
        1,
        SIZE,
        "With real traffic, 15 tokens beside 2,000, the waste is gigantic",
        BOUNDED,
        "In steps: {gain_by_variance[Azure code: gain in steps]:.1f} times on Azure's code. In seconds "
        "{gain_by_variance[Azure code: gain in time]:.1f}, for its prompts must be computed by both.",
        "headline gain_by_variance",
    ),
    Claim(
        1,
        CODE,
        "Task.WhenAll over a list is a static batch",
        CONFIRMED,
        "Line by line, with the same dead slots.",
        "notebook 02, section 1",
    ),
    Claim(
        1,
        CODE,
        "The fluid loop: who has finished leaves, a slot and free memory let the next one in, then one step",
        BOUNDED,
        "The loop asks about memory once, at the door, and every sequence then grows. It needs a reservation for the "
        "whole life or a way to take memory back.",
        "notebook 03, section 2; notebook 07, section 1",
    ),
    Claim(
        1,
        CODE,
        "Admission is limited by memory, not by computing",
        BOUNDED,
        "By memory for throughput. With long prompts or a bound on latency by computing first: on Azure's code freed "
        "memory brings little.",
        "notebook 05, section 1; headline decomposition",
    ),
    Claim(
        1,
        CODE,
        "Starting a sequence hides a whole prefill, the phase that is dear in computing",
        CONFIRMED,
        "A prompt of 2,048 tokens makes a step of 30 decodes {facts[prompt of 2,048 / step of 30]:.0f} times as long "
        "(13B model, A100).",
        "notebook 04, section 3",
    ),
    Claim(
        1,
        PRICE,
        "The newcomer's prompt makes everyone who is being answered stall",
        CONFIRMED,
        "Drawn gap by gap on a real model.",
        "notebook 04, section 4; headline chunked",
    ),
    Claim(
        1,
        PRICE,
        "The pauses go with admissions, not with load",
        CONFIRMED,
        "In Azure's traffic the long gaps stand where long prompts enter.",
        "notebook 04, section 6",
    ),
    Claim(
        1,
        PRICE,
        "The static batch did not have this problem: all prefills came together, then decode flowed",
        BOUNDED,
        (
            "Within a batch. The same wait stands before the batch, as time to first token, for everyone who came "
            "meanwhile."
        ),
        "notebook 02, section 4; notebook 03, section 8",
    ),
    Claim(
        1,
        PRICE,
        "Chunked prefill pays the admission in instalments",
        CONFIRMED,
        "Within a strict bound on the gaps, chunks of 512 carry "
        "{chunked[rate within 0.1 s: chunks of 512 / prompts first]:.1f} times the load of prompts first. The "
        "newcomer pays with its own first token.",
        "notebook 04, section 7; headline chunked",
    ),
    Claim(
        1,
        MEMORY,
        'Capacity went from "how large is the batch" to "how many caches fit"',
        CONFIRMED,
        "With the same scheduler, freed memory alone is worth {decomposition[... memory freed]:.1f} times on chat.",
        "notebook 05, section 1; headline decomposition",
    ),
    Claim(
        1,
        MEMORY,
        "On a card of 80 GB a 7B model leaves about 66 for the caches",
        CONFIRMED,
        "{facts[GB free beside 7B]:.1f} GB, {facts[tokens beside 7B]:,.0f} tokens, "
        "{facts[sequences of 2,048 beside 7B]:.0f} sequences of 2,048. A server that keeps a tenth back has "
        "{facts[GB free if a tenth is kept back]:.1f} GB.",
        "notebook 05, section 1",
    ),
    Claim(
        1,
        MEMORY,
        "Servers reserved the maximum for each; the card is then full of reservations that nobody uses",
        CONFIRMED,
        "While requests wait, {kv_use[Orca (Max): used]:.0%} of the memory holds a token.",
        "notebook 05, section 3; headline kv_use",
    ),
    Claim(
        1,
        "Insights & Takeaways",
        "The waste was up to 80 %",
        CONFIRMED,
        "79.6 % in the vLLM paper's figure 2, by the policy that reserves most. It falls with every guess that is "
        "better: {kv_use[Orca (Oracle): used]:.0%} is used if lengths were known.",
        "notebook 05, section 5; headline kv_use",
    ),
    Claim(
        1,
        "Insights & Takeaways",
        "The solution is an idea of the sixties, taken from the operating system",
        CONFIRMED,
        "Paging, which operating systems have had since the sixties (Atlas, 1962).",
        "notebook 06, section 1",
    ),
    Claim(
        1,
        "Insights & Takeaways",
        "vLLM, TGI and the large providers admit at every iteration",
        CONFIRMED,
        "As do SGLang, TensorRT-LLM, transformers and llama.cpp; for providers it is not published.",
        "command systems; notebook 09, section 4",
    ),
)
