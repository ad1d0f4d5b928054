"""The docstrings of source files become plain English, as in examples worked by hand."""

import textwrap

import pytest

from bert_training.builtin_data.docstrings import Parameter, fingerprint, plain, read_docstring, tagged_words

FILLER = (
    "This paragraph is only here to make the documentation long enough to be kept, for which two hundred are needed."
)
PROSE = f"{FILLER} {FILLER}"


def read(text):
    return read_docstring(textwrap.dedent(text), "package.module", "f", "function")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("see :class:`~torch.Tensor` and :func:`the sum <numpy.sum>`", "see torch.Tensor and the sum"),
        ("``None`` or `x`, *optional*, **never** a*b*c", "None or x, optional, never a*b*c"),
        ("the `manual <https://example.org>`_ or [guide](https://example.org/x)", "the manual or guide"),
        ("as in [1]_ and {input} at https://example.org/a.", "as in and at"),
        ("two\n   lines", "two lines"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("*args and **kwargs", "*args and **kwargs"),
    ],
)
def test_markup_is_reduced_to_words(raw, expected):
    assert plain(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("Return ``x.y`` of `axis`, or None.", "Return B:x I:. I:y of B:axis , or None ."),
        ("See :func:`~a.sum` or ``b`` ``c``.", "See B:a I:. I:sum or B:b B:c ."),
        ("the `manual <https://example.org>`_ and *this*", "the manual and this"),
        ("a `link`_ and \\`no\\`", "a link and \\ no \\"),
        ("``a = 1`` sets it", "B:a I:= I:1 sets it"),
        ("no marks, e.g. here", "no marks , e . g . here"),
    ],
)
def test_words_marked_as_code(raw, expected):
    tagged = [word if tag == "O" else f"{tag}:{word}" for word, tag in tagged_words(raw)]
    assert " ".join(tagged) == expected


NUMPY = f"""
    Sum of the elements over an axis.

    {PROSE}

    .. math:: \\sum_i x_i

    .. versionadded:: 1.7

    .. note:: The sum of nothing is zero, as one would expect.

    Parameters
    ----------
    a : array_like
        Elements to add up.

        A second paragraph that is not read.
    axis : int, optional
        Axis along which the sum
        is taken.
    out, where : ndarray
        Two at once are described as neither.

    Returns
    -------
    The sum along the given axis.

    Examples
    --------
    This sentence introduces an example of it:

    >>> sum([1, 2])
    3
    """
GOOGLE = f"""Sum of the elements over an axis.

    {PROSE}

    Example::

        sum(what is written here is code and no sentence)

    ```python
    This line within a fence is code and not a sentence.
    ```

    Args:
        a (`array_like`): Elements to add up.
        axis (`int`, *optional*): Axis along which the sum
            is taken.

    Returns:
        The sum along the given axis.
    """
SPHINX = f"""Sum of the elements over an axis.

    {PROSE}

    >>> this sentence is the input of a doctest
    and this sentence is the output that it prints

    The sum along the given axis.

    :param array_like a: Elements to add up.
    :param axis: Axis along which the sum
        is taken.
    """


@pytest.mark.parametrize("text", [NUMPY, GOOGLE, SPHINX], ids=["numpydoc", "google", "sphinx"])
def test_the_three_styles_of_docstrings_give_the_same(text):
    document = read(text)
    assert document.summary == "Sum of the elements over an axis."
    note = ["The sum of nothing is zero, as one would expect."] if text is NUMPY else []
    assert document.prose == [PROSE, *note, "The sum along the given axis."]
    first, second = document.parameters
    assert first == Parameter("a", "array_like", "Elements to add up.")
    assert (second.name, second.description) == ("axis", "Axis along which the sum is taken.")
    assert document.paragraphs()[-1].startswith("axis") and "\n" not in "".join(document.paragraphs())
    if text is not SPHINX:
        assert str(second) == "axis (int, optional): Axis along which the sum is taken."


def test_fingerprints_find_shared_sentences():
    first = set(fingerprint(PROSE + " One more sentence with eight words stands here."))
    assert first and set(fingerprint(PROSE)) <= first
    assert not first & set(
        fingerprint("Nothing of what is written in the other text is found within this one, at all.")
    )
