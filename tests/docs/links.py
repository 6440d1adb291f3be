"""Every relative link in the Markdown files leads to a file, and every fragment to a heading of that file."""
import os
import re

from markdown import SOURCE, files, main, pages, prose, pytest


def anchors(page):
    """The fragments that GitHub gives to the headings of a page."""
    seen, names = {}, set()
    for heading in re.findall(r"^#+ +(.*?) *#*$", prose(page), flags=re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        seen[name] = seen.get(name, -1) + 1
        names.add(name + (f"-{seen[name]}" if seen[name] else ""))
    return names


def links(page):
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", files())
def test_links(page):
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(SOURCE, target)):
            broken.append(f"{link}: no such file")
        elif fragment and fragment not in anchors(target):
            broken.append(f"{link}: no such heading")
    assert not broken, f"{page}: {broken}"


def test_index_lists_every_page():
    listed = {os.path.normpath(os.path.join("docs", link.partition("#")[0])) for link in links("docs/index.md")}
    unlisted = [page for page in pages() if page.startswith("docs/") and page not in listed and page != "docs/index.md"]
    assert not unlisted, f"docs/index.md does not link {unlisted}"


if __name__ == "__main__":
    main(globals())
