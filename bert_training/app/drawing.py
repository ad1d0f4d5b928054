"""The page's results as HTML. Every text of a user, a config or a vocabulary goes through ``escape``."""

import base64
import html
import io
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from bert_training.app.folder import OpenedModel
from bert_training.app.readings import CheckpointGuess, Guess, Piece, Pieces, Reply, TaggedSpan

ACCENT = (37, 99, 235)  # the colour of bars and of attention, as in style.py
COLOUR = ",".join(map(str, ACCENT))
COLOURS = 6  # of kinds of names, and of words in the table of pieces; they repeat
CELLS = (12, 24, 340)  # pixels of a piece in a picture of attention: at least, at most, and those of a whole picture


def escape(text: object) -> str:
    """The text for HTML, also inside quoted attributes."""
    # "$" and braces as well, because the page's HTML component may treat "${...}" and "{{...}}" as a template.
    escaped = html.escape(str(text), quote=True)
    for char in "${}`":
        escaped = escaped.replace(char, f"&#{ord(char)};")
    return escaped


def notice(sentence: str) -> str:
    """What the page shows instead of a result."""
    return f'<div class="notice" role="alert">{escape(sentence)}</div>'


def hint(sentence: str) -> str:
    """A remark below a result."""
    return f'<p class="hint">{escape(sentence)}</p>'


def not_read(*lost: int) -> str:
    """A remark if a part of what was read was left out: so many pieces, of each of several pairs."""
    most = f"{'' if min(lost) == max(lost) else 'up to '}{max(lost):,}"
    return hint(f"Pieces that were not read, as in the training: {most}.") if any(lost) else ""


def percent(share: float) -> str:
    """A probability in per cent; small ones are not rounded to 0, nor large ones to 100."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def bars(guesses: Sequence[Guess]) -> str:
    """Texts with their probabilities as bars, and a remark if a part of what was read was left out."""
    lines = [
        f'<div class="bar{" first" if _is_marked(guess, number) else ""}"><span class="what">{_mark(guess)}'
        f"{escape(guess.text)}</span>"
        f'<span class="track"><span class="fill" style="width:{100 * guess.probability:.1f}%"></span></span>'
        f'<span class="share">{percent(guess.probability)}</span></div>'
        for number, guess in enumerate(guesses)
    ]
    return f'<div class="bars">{"".join(lines)}</div>{not_read(*(guess.lost for guess in guesses))}'


def labels(guesses: Sequence[Guess]) -> str:
    """Labels with their probabilities as bars; those that the text has are marked."""
    given = [guess for guess in guesses if guess.given]
    said = f"Labels: {', '.join(escape(guess.text) for guess in given)}" if given else "No label reaches its threshold."
    return f'<p class="hint">{said}</p>{bars(guesses)}'


def _is_marked(guess: Guess, number: int) -> bool:
    return number == 0 if guess.given is None else guess.given


def _mark(guess: Guess) -> str:
    """A tick before a label that the text has, and its threshold for those who point at it."""
    if guess.given is None:
        return ""
    return f'<span title="threshold {guess.threshold:.3f}">{"✓" if guess.given else "·"}</span> '


def gaps(guesses: Sequence[Sequence[Guess]], names: Sequence[str]) -> str:
    """The bars of every gap, below its name if there are several."""
    titles = [f"<h4>{escape(name)}</h4>" if len(guesses) > 1 else "" for name in names]
    return "".join(title + bars(column) for title, column in zip(titles, guesses))


def stops(found: Sequence[CheckpointGuess], left_out: int) -> str:
    """A table over the steps of the pre-training for every gap."""
    tables = []
    for gap in range(len(found[0].guesses)):
        winner = found[-1].guesses[gap][0].text
        rows = [
            f"<tr{' class=last' if number == len(found) else ''}><th>{_step(stop)}</th>"
            f"<td>{_chips(stop.guesses[gap])}</td><td class=number>{percent(stop.final[gap])}</td></tr>"
            for number, stop in enumerate(found, start=1)
        ]
        title = f"<h4>Gap {gap + 1}</h4>" if len(found[0].guesses) > 1 else ""
        tables.append(
            f'{title}<div class="scroll"><table class="plain"><thead><tr><th>step</th><th>best guesses</th>'
            f"<th class=number>{escape(winner)}</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )
    remark = hint(f"{left_out} more checkpoints in between are not shown.") if left_out else ""
    return "".join(tables) + remark


def _step(stop: CheckpointGuess) -> str:
    return "final" if stop.step is None else f"{stop.step:,}"


def _chips(guesses: Iterable[Guess]) -> str:
    return " ".join(
        f'<span class="chip">{escape(guess.text)} <small>{percent(guess.probability)}</small></span>'
        for guess in guesses
    )


def score(guess: Guess) -> str:
    """The score of a regression."""
    value = f'<div class="score"><b>{guess.probability:.2f}</b><span>{escape(guess.text)}</span></div>'
    return value + not_read(guess.lost)


# --- answers and names -----------------------------------------------------------------------------------


def reply(found: Reply, context: str) -> str:
    """The answer, the text with the answer highlighted, and the n best spans."""
    if found.answer:
        head = f'<div class="answer">{escape(found.answer)}</div>'
        before, marked, after = context[: found.start], context[found.start : found.end], context[found.end :]
        text = f"{escape(before)}<mark>{escape(marked)}</mark>{escape(after)}"
    else:
        head, text = '<div class="answer none">No answer in this text</div>', escape(context)
    rows = "".join(
        f"<tr><td>{escape(entry['text']) if entry['text'] else '<i>no answer</i>'}</td>"
        f"<td class=number>{percent(entry['probability'])}</td></tr>"
        for entry in found.entries
    )
    table = (
        f'<h4>Best spans</h4><div class="scroll tall"><table class="plain"><thead><tr><th>span</th>'
        f"<th class=number>probability among these</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return f'{head}<div class="text">{text}</div>{not_read(found.lost)}{_odds(found)}{table if rows else ""}'


def _odds(found: Reply) -> str:
    if found.null_odds is None or found.threshold is None:
        return hint("This model was trained on questions that all have an answer, so it always gives one.")
    verdict = "above it, so it gives no answer" if not found.answer else "not above it, so it answers"
    return hint(
        f"No-answer odds: {found.null_odds:.2f} (the score of “no answer” minus that of the best span). "
        f"The model's threshold is {found.threshold:.2f}; the odds are {verdict}."
    )


def names(found: Sequence[TaggedSpan], text: str) -> str:
    """The text with its names marked, and a table of them."""
    if not found:
        return f'<div class="text">{escape(text)}</div>' + hint("The model found no names in this text.")
    kinds = sorted({name.kind for name in found})
    marked, done = [], 0
    for name in found:
        colour = kinds.index(name.kind) % COLOURS
        marked.append(escape(text[done : name.start]))
        marked.append(
            f'<mark class="c{colour}">{escape(text[name.start : name.end])}<small>{escape(name.kind)}</small></mark>'
        )
        done = name.end
    rows = "".join(
        f"<tr><td>{escape(text[name.start : name.end])}</td><td>{escape(name.kind)}</td>"
        f"<td class=number>{name.start}–{name.end}</td><td class=number>{percent(name.probability)}</td></tr>"
        for name in found
    )
    return (
        f'<div class="text">{"".join(marked)}{escape(text[done:])}</div><div class="scroll tall"><table class="plain">'
        "<thead><tr><th>name</th><th>kind</th><th class=number>characters</th><th class=number>probability</th></tr>"
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


# --- pieces and attention --------------------------------------------------------------------------------


def steps(found: Pieces, text: str) -> str:
    """The four steps from a text to ids, with a table of offsets."""
    words = " ".join(f'<span class="chip">{escape(word)}</span>' for word in found.words)
    coloured = " ".join(
        f'<span class="chip {_colour(piece.word)}">{escape(piece.text)}</span>' for piece in found.pieces
    )
    rows = "".join(_piece_row(place, piece, text) for place, piece in enumerate(found.pieces))
    return (
        f"<h4>1 · Clean and normalise</h4>{hint('Control characters go; case and accents as the model wants them.')}"
        f'<div class="text">{escape(found.normalised)}</div>'
        f"<h4>2 · Split into words</h4>{hint('At spaces, and around every punctuation mark.')}<div>{words}</div>"
        f"<h4>3 · Split words into pieces</h4>{hint(PIECES)}<div>{coloured}</div>"
        f"<h4>4 · Number them</h4>{hint(NUMBERS)}<div class='scroll tall'><table class='plain'><thead><tr>"
        "<th class=number>place</th><th>piece</th><th class=number>id</th><th class=number>characters</th>"
        f"<th>text</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _piece_row(place: int, piece: Piece, text: str) -> str:
    characters, original = "", "<i>added</i>"
    if piece.word is not None:
        characters, original = f"{piece.start}–{piece.end}", escape(text[piece.start : piece.end])
    return (
        f"<tr><td class=number>{place}</td>"
        f"<td><span class='chip {_colour(piece.word)}'>{escape(piece.text)}</span></td>"
        f"<td class=number>{piece.id:,}</td><td class=number>{characters}</td><td class=original>{original}</td></tr>"
    )


PIECES = (
    "From the left, always the longest piece that is in the vocabulary; “##” continues a word. A word that cannot be "
    "put together becomes [UNK]."
)
NUMBERS = (
    "The model sees only the ids, between [CLS] and [SEP]. The last columns say which characters of your text a piece "
    "stands for, counted from 0."
)


def _colour(word: int | None) -> str:
    return "special" if word is None else f"c{word % COLOURS}"


def heads(tokens: Sequence[str], weights: np.ndarray, layer: int) -> str:
    """A picture for every head of a layer, (N, L, L): row by row, how each piece divides its attention."""
    figures = "".join(
        f"<figure><figcaption>Head {number}</figcaption>{_heat_map(tokens, head, layer, number)}</figure>"
        for number, head in enumerate(weights, start=1)
    )
    return f'<div class="heads">{figures}</div>'


def _heat_map(tokens: Sequence[str], head: np.ndarray, layer: int, number: int) -> str:
    least, most, wanted = CELLS
    cell = min(most, max(least, wanted // len(tokens)))
    size, margin = cell * len(tokens), 8 + 6.2 * min(12, max(map(len, tokens)))
    texts = []
    for place, token in enumerate(tokens):
        label, middle = escape(token if len(token) <= 12 else token[:11] + "…"), cell * (place + 0.5)
        texts.append(f'<text x="-4" y="{middle + 3:.1f}" text-anchor="end">{label}</text>')
        texts.append(f'<text transform="translate({middle + 3:.1f},-4) rotate(-90)">{label}</text>')
    strength = np.round(255 * head.clip(0, 1) ** 0.6).astype(np.uint8)  # lifts small weights, so that they are seen
    return (
        f'<svg viewBox="{-margin:.0f} {-margin:.0f} {size + margin + 2:.0f} {size + margin + 2:.0f}" '
        f'style="max-width:{size + margin:.0f}px" role="img" aria-label="Attention of layer {layer}, head {number}">'
        f'<image href="{_picture(strength)}" width="{size}" height="{size}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated"/><rect width="{size}" height="{size}" class="frame"/>{"".join(texts)}</svg>'
    )


def _picture(strength: np.ndarray) -> str:
    """An image of one pixel per pair of pieces, (L, L), as a data URL; the strength is the opacity of the colour."""
    pixels = np.empty((*strength.shape, 4), dtype=np.uint8)
    pixels[..., :3], pixels[..., 3] = ACCENT, strength
    file = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def looks(tokens: Sequence[str], weights: np.ndarray, place: int) -> str:
    """For every head (N, L, L) the text, with each piece as dark as the attention that one piece pays to it."""
    lines = []
    for number, head in enumerate(weights, start=1):
        chips = "".join(
            f'<span class="look{" from" if other == place else ""}" title="{percent(share)}" '
            f'style="background:rgba({COLOUR},{min(1.0, share**0.6):.2f})">{escape(token)}</span>'
            for other, (token, share) in enumerate(zip(tokens, head[place].tolist()))
        )
        lines.append(f"<figure><figcaption>Head {number}</figcaption><div class='looks'>{chips}</div></figure>")
    return f'<div class="heads wide">{"".join(lines)}</div>'


# --- the head of the page --------------------------------------------------------------------------------


def header(opened: OpenedModel) -> str:
    """The name of the model and its size in words."""
    config = opened.model.config
    facts = [
        f"{type(opened.model).__name__}",
        f"{config.num_hidden_layers} layers of {config.num_attention_heads} heads",
        f"{sum(parameter.numel() for parameter in opened.model.parameters()) / 1e6:,.1f} million parameters",
        f"{len(opened.tokenizer):,} pieces",
        f"reads {opened.longest:,} pieces at once",
    ]
    return f"<header><h1>{escape(opened.name)}</h1><p>{escape(' · '.join(facts))}</p></header>"
