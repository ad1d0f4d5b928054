"""A box for a text file, which the browser reads: nothing is sent to the server before the user asks about the text."""

BOX_FOR_TEXT = "text-of-a-file"  # the id of the box that gets the text


def file_box(characters: int) -> str:
    """HTML of the box. ``SCRIPT`` must be in the head of the page.

    Args:
        characters: the longest text that is accepted.
    """
    return (
        f'<label class="file" data-characters="{characters}">or drop a .txt file here, or choose one: '
        '<input type="file" accept="text/*,.txt,.md"></label><div class="notice" role="alert" hidden></div>'
    )


SCRIPT = (
    """
(() => {
  const boxOf = event => event.target.closest?.('label.file');
  async function read(label, file) {
    const notice = label.parentElement.querySelector('.notice'), most = Number(label.dataset.characters);
    const refuse = sentence => { notice.textContent = sentence; notice.hidden = false; };
    notice.hidden = true;
    // A character has at most four bytes in UTF-8.
    const tooLong = `The file has more than ${most.toLocaleString('en')} characters, the most that this page reads.`;
    if (file.size > 4 * most) return refuse(tooLong);
    let text;
    try {
      text = new TextDecoder('utf-8', {fatal: true}).decode(await file.arrayBuffer());
    } catch {
      return refuse('The file is not UTF-8 text; save it as plain text.');
    }
    if ([...text].length > most) return refuse(tooLong);
    const box = document.querySelector('#BOX textarea');
    box.value = text;
    box.dispatchEvent(new Event('input', {bubbles: true}));
  }
  document.addEventListener('change', event => {
    const label = boxOf(event);
    if (label && event.target.files.length) read(label, event.target.files[0]);
  });
  // A file that is dropped elsewhere would replace the page.
  document.addEventListener('dragover', event => event.preventDefault());
  document.addEventListener('drop', event => {
    event.preventDefault();
    const label = boxOf(event);
    if (label && event.dataTransfer.files.length) read(label, event.dataTransfer.files[0]);
  });
})();
"""
).replace("BOX", BOX_FOR_TEXT)
