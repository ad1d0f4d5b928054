"""What the paper reports in Tables 5 to 8 and Figure 5, and what it concludes from each.

Source: Devlin et al. 2018, arXiv:1810.04805v2, whose pages are counted here. Scores are of development sets, in per
cent; the masked-LM perplexity of Table 6 is of held-out training data. Figure 5 is a picture without numbers.

A claim is a sentence of the paper and the contrasts that it is about. A contrast is a sum or difference of scores of
one seed: BERT minus No NSP on the questions is by how much next sentence prediction helps there. The tasks differ from
scale to scale; therefore a claim names kinds of tasks ("pair", "qa", ...), and each of its contrasts is computed on
every column of these kinds.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

# MRPC is about pairs, too, but the paper does not count it among the tasks that next sentence prediction helps.
GLUE = ("pair", "paraphrase", "classification")


class Term(NamedTuple):
    """One summand of a contrast: the score of a row.

    Attributes:
        sign: 1, or -1 for a score that is subtracted.
        row: the name of a row of the table.
        checkpoint: the number of the checkpoint from which the model was fine-tuned, counted from 1; 0 stands for the
            finished pre-training.
    """

    sign: int
    row: str
    checkpoint: int = 0


@dataclass(frozen=True)
class Contrast:
    """A sum or difference of scores of one seed, and what the claim says about it.

    Attributes:
        says: "above": the sum is above ``bound``; "within": it lies between -bound and bound.
        bound: in per cent, or in the unit of the column.
    """

    terms: tuple[Term, ...]
    says: Literal["above", "within"] = "above"
    bound: float = 0.0

    @property
    def allows_equality(self) -> bool:
        """Whether equal scores fulfil the claim, as in "robust" and "close behind"."""
        return self.says == "within" or self.bound < 0


@dataclass(frozen=True)
class Claim:
    """A conclusion of the paper.

    Attributes:
        text: in our words, close to the paper's.
        place: section and page.
        contrasts: the claim says that all of them are true.
        kinds: the kinds of columns that it is about.
    """

    text: str
    place: str
    contrasts: tuple[Contrast, ...]
    kinds: tuple[str, ...] = (*GLUE, "qa")


@dataclass(frozen=True)
class Row:
    """A row of a table: our name, the paper's label, and the paper's scores in the order of the table's columns."""

    name: str
    label: str
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Published:
    """A table of the paper.

    Attributes:
        place: the page.
        columns: the paper's headings.
        reference: the name of the row from which the report counts differences.
    """

    title: str
    place: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    reference: str
    claims: tuple[Claim, ...]


def better(one: str, other: str, checkpoint: int = 0) -> Contrast:
    """The row ``one`` has higher scores than the row ``other``, both from the same checkpoint."""
    return Contrast((Term(1, one, checkpoint), Term(-1, other, checkpoint)))


TABLE_5 = Published(
    title="Table 5: pre-training tasks",
    place="p. 8",
    columns=("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD 1.1 F1"),
    rows=(
        Row("bert", "BERT-Base", (84.4, 88.4, 86.7, 92.7, 88.5)),
        Row("no_nsp", "No NSP", (83.9, 84.9, 86.5, 92.6, 87.9)),
        Row("ltr", "LTR & No NSP", (82.1, 84.3, 77.5, 92.1, 77.8)),
        Row("ltr_bilstm", "+ BiLSTM", (82.1, 84.1, 75.7, 91.6, 84.9)),
    ),
    reference="bert",
    claims=(
        Claim(
            "Removing NSP hurts on tasks about pairs of sentences and on SQuAD",
            "section 5.1, p. 8",
            (better("bert", "no_nsp"),),
            ("pair", "qa"),
        ),
        Claim(
            "The left-to-right model is worse than the masked LM on all tasks",
            "section 5.1, p. 8",
            (better("no_nsp", "ltr"),),
        ),
        Claim(
            "A BiLSTM on top of the left-to-right model helps on SQuAD",
            "section 5.1, p. 8",
            (better("ltr_bilstm", "ltr"),),
            ("qa",),
        ),
        Claim(
            "With the BiLSTM it is still worse on SQuAD than the bidirectional model",
            "section 5.1, p. 8",
            (better("no_nsp", "ltr_bilstm"),),
            ("qa",),
        ),
        # On MNLI-m the paper's own scores of these two rows are equal.
        Claim(
            "The BiLSTM hurts on the GLUE tasks",
            "section 5.1, p. 8",
            (better("ltr", "ltr_bilstm"),),
            GLUE,
        ),
    ),
)

# The rows of Table 6 from the smallest model to the largest: layers, hidden size, attention heads.
LADDER = ("l3_h768_a12", "l6_h768_a3", "l6_h768_a12", "l12_h768_a12", "l12_h1024_a16", "l24_h1024_a16")
TABLE_6 = Published(
    title="Table 6: model size",
    place="p. 9",
    columns=("LM (ppl)", "MNLI-m", "MRPC", "SST-2"),
    rows=(
        Row(LADDER[0], "3 layers, 768 wide, 12 heads", (5.84, 77.9, 79.8, 88.4)),
        Row(LADDER[1], "6, 768, 3", (5.24, 80.6, 82.2, 90.7)),
        Row(LADDER[2], "6, 768, 12", (4.68, 81.9, 84.8, 91.3)),
        Row(LADDER[3], "12, 768, 12 (BERT-Base)", (3.99, 84.4, 86.7, 92.9)),
        Row(LADDER[4], "12, 1024, 16", (3.54, 85.7, 86.9, 93.3)),
        Row(LADDER[5], "24, 1024, 16 (BERT-Large)", (3.23, 86.6, 87.8, 93.7)),
    ),
    reference=LADDER[3],
    claims=(
        Claim(
            "The perplexity falls with every step of the ladder",
            "Table 6, p. 9",
            tuple(better(smaller, larger) for smaller, larger in pairwise(LADDER)),
            ("ppl",),
        ),
        # The text speaks of "all four datasets"; the table has three.
        Claim(
            "Larger models are strictly better on every task, at every step of the ladder",
            "section 5.2, p. 8",
            tuple(better(larger, smaller) for smaller, larger in pairwise(LADDER)),
            GLUE,
        ),
        Claim(
            "The largest model is better than the smallest on every task, also where training data is scarce",
            "section 5.2, p. 8",
            (better(LADDER[5], LADDER[0]),),
            GLUE,
        ),
    ),
)

# The layers of BERT whose outputs are the features, as --feature_based names them.
CHOICES = (
    "embeddings",
    "second_to_last",
    "last",
    "weighted_sum_last_four",
    "concat_last_four",
    "weighted_sum_all",
)
BEHIND = 1.0  # F1; our bound for "only 0.3 F1 behind"
TABLE_7 = Published(
    title="Table 7: features instead of fine-tuning",
    place="p. 9",
    columns=("CoNLL-2003 dev F1",),
    rows=(
        Row("fine_tuned", "Fine-tuned (BERT-Base)", (96.4,)),
        Row("embeddings", "Embeddings", (91.0,)),
        Row("second_to_last", "Second-to-last hidden", (95.6,)),
        Row("last", "Last hidden", (94.9,)),
        Row("weighted_sum_last_four", "Weighted sum of the last four", (95.9,)),
        Row("concat_last_four", "Concatenation of the last four", (96.1,)),
        Row("weighted_sum_all", "Weighted sum of all layers", (95.5,)),
    ),
    reference="fine_tuned",
    claims=(
        Claim(
            "The concatenation of the last four layers is the best of the six choices",
            "section 5.3, p. 9",
            tuple(better("concat_last_four", other) for other in CHOICES if other != "concat_last_four"),
            ("tags",),
        ),
        Claim(
            f"That choice is close behind fine-tuning (less than {BEHIND:g} F1; the paper has 0.3)",
            "section 5.3, p. 9",
            (Contrast((Term(1, "concat_last_four"), Term(-1, "fine_tuned")), "above", -BEHIND),),
            ("tags",),
        ),
        Claim(
            "The layers are better features than the embeddings alone",
            "Table 7, p. 9",
            tuple(better(other, "embeddings") for other in CHOICES if other != "embeddings"),
            ("tags",),
        ),
    ),
)

MIXES = {  # row: (mask, same, random), in per cent
    "mix_80_10_10": (80, 10, 10),
    "mix_100_0_0": (100, 0, 0),
    "mix_80_0_20": (80, 0, 20),
    "mix_80_20_0": (80, 20, 0),
    "mix_0_20_80": (0, 20, 80),
    "mix_0_0_100": (0, 0, 100),
}
ROBUST = 1.0  # per cent; our bound for "surprisingly robust"; the paper's largest difference is 0.6
TABLE_8 = Published(
    title="Table 8: masking strategies",
    place="p. 16",
    columns=("MNLI", "NER fine-tuned", "NER features"),
    rows=(
        Row("mix_80_10_10", "80 / 10 / 10", (84.2, 95.4, 94.9)),
        Row("mix_100_0_0", "100 / 0 / 0", (84.3, 94.9, 94.0)),
        Row("mix_80_0_20", "80 / 0 / 20", (84.1, 95.2, 94.6)),
        Row("mix_80_20_0", "80 / 20 / 0", (84.4, 95.2, 94.7)),
        Row("mix_0_20_80", "0 / 20 / 80", (83.7, 94.8, 94.6)),
        Row("mix_0_0_100", "0 / 0 / 100", (83.6, 94.9, 94.6)),
    ),
    reference="mix_80_10_10",
    claims=(
        Claim(
            f"Fine-tuning is robust to the mix (within {ROBUST:g} of 80/10/10; the paper has 0.6)",
            "appendix C.2, p. 16",
            tuple(
                Contrast((Term(1, mix), Term(-1, "mix_80_10_10")), "within", ROBUST)
                for mix in MIXES
                if mix != "mix_80_10_10"
            ),
            (*GLUE, "tags"),
        ),
        Claim(
            "[MASK] alone is a problem for features",
            "appendix C.2, p. 16",
            (better("mix_80_10_10", "mix_100_0_0"),),
            ("features",),
        ),
        Claim(
            "Random words alone are worse than 80/10/10",
            "appendix C.2, p. 16",
            (better("mix_80_10_10", "mix_0_0_100"),),
            (*GLUE, "tags", "features"),
        ),
    ),
)

CHECKPOINTS = 5  # the paper's axis has marks at 200,000, 400,000, ... 1,000,000 steps
MIDDLE = 3  # of these checkpoints, the first one behind the middle of the steps
FIGURE_5 = Published(
    title="Figure 5: number of training steps",
    place="p. 16",
    columns=(),
    rows=(
        Row("mlm", "BERT-Base (masked LM)", ()),
        Row("ltr", "BERT-Base (left to right)", ()),
    ),
    reference="mlm",
    claims=(
        Claim(
            "The last two fifths of the steps still help (the paper: almost 1 % from 500,000 to 1,000,000 steps)",
            "appendix C.1, p. 16",
            (Contrast((Term(1, "mlm", CHECKPOINTS), Term(-1, "mlm", MIDDLE))),),
            GLUE,
        ),
        # The paper gives no measure of convergence; this one is ours.
        Claim(
            "The masked LM converges more slowly: it gains more after the first checkpoint than left to right does",
            "appendix C.1, p. 16",
            (
                Contrast(
                    (
                        Term(1, "mlm", CHECKPOINTS),
                        Term(-1, "mlm", 1),
                        Term(-1, "ltr", CHECKPOINTS),
                        Term(1, "ltr", 1),
                    )
                ),
            ),
            GLUE,
        ),
        Claim(
            "The masked LM is better than left to right almost at once (from the second checkpoint on)",
            "appendix C.1, p. 16",
            tuple(better("mlm", "ltr", checkpoint) for checkpoint in range(2, CHECKPOINTS + 1)),
            GLUE,
        ),
    ),
)
