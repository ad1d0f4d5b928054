"""Which source files are read, and that they are parsed and never run, by one process or by several."""

import pytest

from bert_training.builtin_data.docstrings import read_file
from bert_training.builtin_data.source_files import read_files, source_files

PROSE = 2 * (
    "This paragraph is only here to make the documentation long enough to be kept, for which two hundred are needed. "
)
SOURCE = f'''
"""{PROSE}"""
import a_package_that_does_not_exist
raise RuntimeError("a file that is read must not run")

class Outer:
    """An outer class. {PROSE}"""

    if True:
        def method(self):
            """A method of it. {PROSE}"""
            def inner():
                """A function inside a function. {PROSE}"""

add_newdoc("numpy", "absolute", """The absolute value. {PROSE}""")
add_docstr(torch.add, """add(a, b)

The sum of two. {PROSE}""".format(a=1))
'''


@pytest.fixture
def package(tmp_path):
    root = tmp_path / "package"
    for folder in (root, root / "tests", root / "_private", root / "sub"):
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (root / "core.py").write_text(SOURCE)
    (root / "sub" / "__init__.py").write_text(SOURCE)
    (root / "tests" / "test_core.py").write_text(SOURCE)
    (root / "_private" / "hidden.py").write_text(SOURCE)
    (root / "template.py").write_text(f"def {{name}}():\n    '''{PROSE}'''\n")
    (root / "short.py").write_text("'''Short.'''\n")
    return root


def test_files_are_parsed_and_never_run(package):
    documents = read_file(str(package / "core.py"), "package.core")
    assert [(document.name, document.kind) for document in documents] == [
        ("", "module"),
        ("Outer", "class"),
        ("Outer.method", "function"),
        ("absolute", "function"),
        ("add", "function"),
    ]
    assert documents[-1].summary.startswith("The sum of two.")  # The signature above it was removed.
    assert read_file(str(package / "template.py"), "t") == [] == read_file(str(package / "short.py"), "s")


def test_tests_and_private_folders_are_left_out(package):
    modules = [module for _, module in source_files(package, "package")]
    assert modules == ["package", "package.core", "package.short", "package.template", "package.sub"]


def test_the_number_of_processes_changes_nothing(package):
    files = list(source_files(package, "package"))
    alone = sorted(
        (document for path, module in files for document in read_file(path, module)),
        key=lambda document: (document.module, document.name),
    )
    assert len(alone) == 10
    assert read_files(files, workers=1) == read_files(files, workers=3) == alone
