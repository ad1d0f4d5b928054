"""texts.py recognises the output of WikiExtractor and wikitext, and leaves other text alone."""

import pytest

from bert_training.inputs.texts import WIKIEXTRACTOR, WIKITEXT, reading_of_lines

DOC = '<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="{title}">'
# With a revision and quotes in a title as some versions write them, with an escaped title, and without any text.
EXTRACTED = f"""
{DOC.format(title="Storms")}
Storms

A storm came at night.
It went away.

Section.
The sea was calm.
</doc>
<doc id="13" revid="7" url="u" title="The "Sea" &amp; ships">
The "Sea" & ships
The sea is wide.
</doc>

{DOC.format(title="Nothing")}
Nothing

</doc>
"""
ARTICLES = [["A storm came at night.", "It went away.", "Section.", "The sea was calm."], ["The sea is wide."], []]
WIKI_LINES = """
 = Storms =

 A storm came at night .
 It went away .

 = = Causes = =

 Warm air = cold air = wind .
 = 12 = is no heading here .
 = 13 =

 = = = Of the sea = = =

 Salt .

 = The sea =

 The sea is wide ."""
WIKI_ARTICLES = [
    [
        "A storm came at night .",
        "It went away .",
        "Warm air = cold air = wind .",
        "= 12 = is no heading here .",
        "= 13 =",
        "Salt .",
    ],
    ["The sea is wide ."],
]


def documents(text, rows=False):
    """(form, documents), where a blank line ends a document."""
    reading, everything = reading_of_lines("a.txt", enumerate(text.split("\n"), 1), rows)
    form, lines = reading.form, reading.read(everything)
    found = [[]]
    for _, line in lines:
        if line.strip():
            found[-1].append(line.strip())
        else:
            found.append([])
    return form, found


def test_wikiextractor_is_read_as_its_articles():
    form, found = documents(EXTRACTED)
    assert form == WIKIEXTRACTOR and [one for one in found if one] == [one for one in ARTICLES if one]


def test_wikitext_is_read_as_its_articles():
    form, found = documents(WIKI_LINES)
    assert form == WIKITEXT and [document for document in found if document] == WIKI_ARTICLES


@pytest.mark.parametrize("rows", [True, False])
def test_wikitext_whose_blank_rows_were_filtered_out_is_read_as_its_articles(rows):
    lines = "\n".join(line for line in WIKI_LINES.split("\n") if line.strip() and line.strip() != "= 13 =")
    form, found = documents(lines, rows)
    expected = [[line for line in article if line != "= 13 ="] for article in WIKI_ARTICLES]
    assert form == WIKITEXT and [document for document in found if document] == expected


@pytest.mark.parametrize(
    "opening",
    ["<doc>", '<doc id="12">', "<doc id='12' url='u'>", "<doc id='12' title='Storms'>", '<doc id=12 title="Storms" >'],
)
def test_other_tags_of_documents_are_read_as_articles(opening):
    titled = "title" in opening
    text = f"{opening}\n" + "Storms\n\n" * titled + f"A storm.\n\nIt went.\n</doc>\n\n{opening}\nThe sea.\n</doc>\n"
    form, found = documents(text)
    assert form == WIKIEXTRACTOR
    assert [document for document in found if document] == [["A storm.", "It went."], ["The sea."]]


@pytest.mark.parametrize(
    "text",
    [
        "A tag is written <doc>.\n\n<doc>\nIt ends with\n</doc>\n",
        f"The first line of an article is\n\n{DOC.format(title='Storms')}\n\nand the second is its title.\n",
        "= A note =\n\nText.\n\nMore text.\n",
        "== Storms ==\n\nText.\n\n== The sea ==\n\nMore.\n",
        "a = b =\n\nc\n\n= d\n\n= = e\n",
        "<doc>\nis a tag that nothing closes here.\n",
        "<doc " + 'title="" ' * 100_000 + "x>\nA long line.\n</doc>\n",
        "<document>\nThe sea.\n</document>\n",
        "= 12 =\nis no heading.\n= 13 =\nNor is this.\n",
        "= A note =\nText.\nMore text.\n",
        "12\n",
        '{"a brace": "in a text",\n"of": "several lines"}\n',
        "{not JSON}\n{at all}\n",
    ],
)
def test_other_text_is_left_as_it_is(text):
    reading, everything = reading_of_lines("a.txt", enumerate(text.split("\n"), 1))
    lines = reading.read(everything)
    assert reading.form is None and "\n".join(line for _, line in lines) == text


@pytest.mark.parametrize("text", [EXTRACTED.replace("</doc>\n<doc", "<doc"), EXTRACTED + "</doc>"])
def test_a_document_ends_where_the_next_begins(text):
    assert [one for one in documents(text)[1] if one] == [one for one in ARTICLES if one]


def test_json_in_a_text_file_is_refused():
    with pytest.raises(ValueError, match=r"a\.txt: .* JSON .* ends in \.jsonl"):
        documents('{"id": "1", "text": "One."}\n\n{"id": "2", "text": "Two."}\n')
