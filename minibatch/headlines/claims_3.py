"""Article 3, "Continuous batching: mais capacidade para servir LLMs". See `claims.py`."""

from minibatch.headlines.claims import BOUNDED, CONFIRMED, Claim

TOP, HOW, ORCA, KINDS = "abertura", "como funciona", "a contribuição do Orca", "estático, dinâmico e contínuo"
EXAMPLE, THROUGHPUT, LATENCY = (
    "um exemplo de escalonamento",
    "por que o throughput aumenta",
    "o que acontece com a latência",
)
DEMAND, SERVERS, TOO_FAR, NOW = (
    "pouca e muita demanda",
    "suporte e limites",
    "onde as promessas passam do ponto",
    "na prática",
)

CLAIMS = (
    Claim(
        3,
        TOP,
        "More tokens a second do not mean faster answers for each user",
        CONFIRMED,
        "Throughput grows with the batch, and so does the time of each step: {facts[step of 30 / step of 1]:.2f} "
        "times at 30 decodes.",
        "notebook 01, section 5; notebook 04, section 7",
    ),
    Claim(
        3,
        TOP,
        "Throughput without a latency target does not say how many clients are served well",
        CONFIRMED,
        "Between two servers the difference can be a factor of "
        "{orca_latency_bound[... of which waiting, at the bound]:.1f} beyond their throughput.",
        "headline orca_latency_bound; notebook 09, section 7",
    ),
    Claim(
        3,
        HOW,
        "A free seat does not mean that anyone in the queue can enter: prompt and memory must fit",
        CONFIRMED,
        "Admission asks for a slot, memory and a share of the step.",
        "notebook 05, section 3; notebook 07, section 6",
    ),
    Claim(
        3,
        ORCA,
        "Orca decides anew at every iteration; selective batching lets requests of different lengths share a step",
        CONFIRMED,
        "All but attention runs over the tokens of all; attention request by request.",
        "notebook 03, section 4",
    ),
    Claim(
        3,
        ORCA,
        "The change is in the server; the model need not be trained anew",
        CONFIRMED,
        "The same weights, the same texts.",
        "notebook 03, section 5",
    ),
    Claim(
        3,
        KINDS,
        "Triton's dynamic batching controls batch size and waiting; that is not replacing requests during generation",
        CONFIRMED,
        "Its batch, once closed, is static.",
        "notebook 02, section 5; command systems",
    ),
    Claim(
        3,
        KINDS,
        "Streaming is another matter: tokens can be sent while the batch stays closed",
        CONFIRMED,
        "A static batcher that streams has the same slots as one that does not.",
        "notebook 02, section 3",
    ),
    Claim(
        3,
        EXAMPLE,
        "Two slots, A needs 2 steps, B 4, C 2: in a fixed batch C waits for B, else it takes A's place",
        CONFIRMED,
        "C ends at step {facts[C ends, static]:.0f} or at {facts[C ends, iteration]:.0f}.",
        "notebook 02, section 2; notebook 03, section 2",
    ),
    Claim(
        3,
        THROUGHPUT,
        "A batch does more useful work with the same movement of weights",
        CONFIRMED,
        "Until arithmetic or the reading of K and V takes over.",
        "notebook 01, section 3",
    ),
    Claim(
        3,
        THROUGHPUT,
        "A GPU can be busy with an inefficient batch; what counts is useful work",
        CONFIRMED,
        "{dead_slots[Azure code, 32 slots]:.1f} times the steps needed, all of them busy.",
        "headline dead_slots; notebook 02, section 6",
    ),
    Claim(
        3,
        THROUGHPUT,
        "Paging reduces fragmentation and duplication, and complements Orca's scheduling",
        CONFIRMED,
        "On chat {decomposition[... slots refilled]:.1f} times by scheduling, another "
        "{decomposition[... memory freed]:.1f} by memory.",
        "notebook 06, section 7; headline decomposition",
    ),
    Claim(
        3,
        THROUGHPUT,
        "Without room for K and V vLLM preempts, and computes again later",
        CONFIRMED,
        "The newest gives way and returns to the head of the queue.",
        "notebook 07, section 2; notebook 07, section 5",
    ),
    Claim(
        3,
        LATENCY,
        "Continuous batching can shorten the queue, and larger batches can slow those who are in",
        CONFIRMED,
        "Both on one clock: TTFT falls, ITL rises.",
        "notebook 03, section 8; notebook 04, section 1",
    ),
    Claim(
        3,
        LATENCY,
        "A small token budget keeps the gaps short, a large one computes more prompts: a trade",
        CONFIRMED,
        "With limits: below some budget the prompts themselves no longer keep up.",
        "notebook 04, section 7; headline chunked",
    ),
    Claim(
        3,
        DEMAND,
        "With little demand there is little to batch; with lasting overload the queue remains",
        CONFIRMED,
        "Far below its limit a server runs a few sequences at a time; beyond it the queue grows for as long as the "
        "load lasts, under every scheduler.",
        "notebook 09, section 7; headline systems_on_traces",
    ),
    Claim(
        3,
        DEMAND,
        "Watch p95 beside the median",
        CONFIRMED,
        "There are loads at which the median looks fine and p95 does not; one of the exercises is to find one.",
        "notebook 09, section 7",
    ),
    Claim(
        3,
        SERVERS,
        (
            "vLLM: the controls are the sequences and the tokens of a step; more sequences can mean preemption, not "
            "capacity"
        ),
        CONFIRMED,
        "max_num_seqs and max_num_batched_tokens.",
        "command systems; notebook 07, section 3",
    ),
    Claim(
        3,
        SERVERS,
        "SGLang: --max-running-requests, --chunked-prefill-size, --mem-fraction-static",
        CONFIRMED,
        "The names are in the table, beside ours.",
        "command systems",
    ),
    Claim(
        3,
        SERVERS,
        "TensorRT-LLM: the limit of requests and the token budget are two things, and capacity is decided apart",
        CONFIRMED,
        "Its capacity scheduler says who may hold memory, its micro-batch scheduler who runs.",
        "command systems",
    ),
    Claim(
        3,
        SERVERS,
        "TGI has continuous batching and is in maintenance",
        CONFIRMED,
        "By its own documentation.",
        "command systems",
    ),
    Claim(
        3,
        TOO_FAR,
        "There is no universal multiplier",
        CONFIRMED,
        "The same three steps make {decomposition[Azure code: total]:.1f}, "
        "{decomposition[Azure conversation: total]:.1f}, {decomposition[Orca's lengths: total]:.1f} and "
        "{decomposition[ShareGPT-like: total]:.1f} times on four workloads.",
        "headline decomposition",
    ),
    Claim(
        3,
        TOO_FAR,
        "It does not do away with waiting",
        CONFIRMED,
        "Prompt, memory and turn remain, and at the operating limit one of them is what stops.",
        "notebook 09, section 7; notebook 07, section 6",
    ),
    Claim(
        3,
        TOO_FAR,
        "A higher total of tokens does not prove a better product",
        BOUNDED,
        "Nor need it be a total of answers: Anyscale's tokens/s count prompts. In the same runs they fall to "
        "{anyscale[paged, cap 1,536 / cap 32: prompts counted]:.2f} of what they were with the cap, and outputs "
        "alone rise to {anyscale[paged, cap 1,536 / cap 32: outputs alone]:.1f} times.",
        "headline anyscale; notebook 09, section 8",
    ),
    Claim(
        3,
        NOW,
        "Define the experience, replay a representative set, record throughput with queue and latency, keep the "
        "highest load that meets the targets",
        CONFIRMED,
        "As a function, with the reason why the next load was too much.",
        "command sweep; notebook 09, section 7",
    ),
    Claim(
        3,
        NOW,
        "vLLM exposes num_requests_waiting, time_to_first_token_seconds, inter_token_latency_seconds",
        CONFIRMED,
        "As its metrics are named; the definitions differ between tools, in TTFT's start above all.",
        "notebook 00, section 6",
    ),
)
