"""Reports in a headless browser: open, read, zoom, filter, sort, save.

    python tests/browser/reports.py target/release/sigprop [browser]

`browser` is a Chromium; without it the one of Playwright is taken. Needs Playwright (PyPI).
"""

import json
import math
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

HOSTILE = "</script><img src=x onerror=alert(1)><!-- \"'&amp;"
SMALL = ["--layers", "12", "--width", "64", "--seq-len", "16", "--vocab", "100"]


def sigprop(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reports(binary, folder):
    """One report of each kind, one of numbers beyond f64, and one with a hostile name."""
    model = folder / "model.json"
    model.write_text(json.dumps({"name": HOSTILE, "n_layers": 3, "d_model": 64, "seq_len": 16, "vocab_size": 100}))
    runs = {
        "predict": ["predict", *SMALL],
        "validate": ["validate", *SMALL, "--replicates", "3"],
        "compare": ["compare", *SMALL, "--schemes", "xavier,gpt2,dslm,normal:0.02"],
        "far": ["predict", *SMALL, "--layers", "400", "--norm", "none", "--scheme", "normal:0.9"],
        "hostile": ["predict", str(model)],
    }
    for name, arguments in runs.items():
        arguments = [word for index, word in enumerate(arguments) if not overridden(arguments, index)]
        sigprop(binary, *arguments, "--report", folder / f"{name}.html")
    return runs


def overridden(arguments, index):
    """Whether a flag, or the value of one, is given again further on."""
    flag = arguments[index] if arguments[index].startswith("--") else arguments[index - 1]
    return flag.startswith("--") and flag in arguments[index + 1 :]


@contextmanager
def opened(browser, path, **options):
    """The report, which must ask for nothing, complain of nothing and show no dialog."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options})
    page = context.new_page()
    wrong = []
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    yield page
    assert not [entry for entry in wrong if not entry.startswith("blob:")], wrong
    context.close()


def saved(page: Page, name):
    with page.expect_download() as download:
        page.get_by_role("link", name=name, exact=True).click()
    assert download.value.suggested_filename == name
    return json.loads(Path(download.value.path()).read_text())


def panel(page, index=0):
    svg = page.locator("svg.panel").nth(index)
    svg.scroll_into_view_if_needed()
    return svg, svg.bounding_box()


def at_share(page, share, index=0):
    """Moves the pointer over a panel to a share of its frame."""
    svg, box = panel(page, index)
    frame = svg.locator("rect.frame").bounding_box()
    page.mouse.move(frame["x"] + share * frame["width"], frame["y"] + frame["height"] / 2)
    return svg


def tip(page):
    return page.locator(".tip:visible").inner_text()


def depth_labels(page):
    """The numbers below the first panel."""
    texts = page.locator("svg.panel").first.locator("text[text-anchor=middle]").all_text_contents()
    return [float(text) for text in texts if text != "blocks passed"]


def test_hover(page, layers):
    """The cursor reads what the document says."""
    sites = saved(page, "prediction.json")["sites"]
    svg = at_share(page, 0.5)
    inner, outer = page.locator(".tip:visible").bounding_box(), svg.bounding_box()
    for place, size in [("x", "width"), ("y", "height")]:
        assert outer[place] <= inner[place] and inner[place] + inner[size] <= outer[place] + outer[size], (inner, outer)
    middle = next(site for site in sites if site["layer"] == layers // 2 - 1)
    lines = tip(page).splitlines()
    assert lines[0] == f"after {layers // 2} blocks", lines
    value = lines[1].removeprefix("predicted: ").split()[0]
    mantissa, _, exponent = value.partition("e")
    ln = math.log(float(mantissa)) + int(exponent or 0) * math.log(10)
    assert abs(ln - middle["ln_variance"]) < 1e-3, (value, middle)
    page.mouse.move(0, 0)
    expect(page.locator(".tip:visible")).to_have_count(0)


def test_zoom(page, layers):
    whole = depth_labels(page)
    assert whole[0] == 0 and whole[-1] <= layers
    at_share(page, 0.25)
    page.mouse.down()
    at_share(page, 0.5)
    expect(page.locator(".selection")).to_have_count(1)
    page.mouse.up()
    inside = depth_labels(page)
    assert layers * 0.24 <= min(inside) and max(inside) <= layers * 0.51, inside
    page.get_by_role("button", name="Whole depth").click()
    assert depth_labels(page) == whole
    page.get_by_role("button", name="Zoom in").click()
    assert max(depth_labels(page)) < layers
    page.locator("svg.panel").first.dblclick()
    assert depth_labels(page) == whole


def test_keys(page):
    """Everything can be reached and read without a pointer."""
    reached = set()
    page.locator("h1").click()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
    assert {"BUTTON", "svg", "INPUT", "A", "SUMMARY", "PRE"} <= reached, reached
    page.locator("svg.panel").nth(1).focus()
    page.keyboard.press("ArrowRight")
    assert tip(page).startswith("input"), tip(page)
    page.keyboard.press("ArrowRight")
    assert tip(page).startswith("after 1 block\n"), tip(page)
    whole = depth_labels(page)
    page.keyboard.press("+")
    assert depth_labels(page) != whole
    page.keyboard.press("0")
    assert depth_labels(page) == whole


def column(page, table, name):
    heads = [text.strip(" ↑↓") for text in table.locator("thead th").all_inner_texts()]
    index = heads.index(name)
    return [row.locator("td").nth(index).get_attribute("title") for row in table.locator("tbody tr").all()]


def magnitude(text):
    mantissa, _, exponent = text.partition("e")
    return math.log10(float(mantissa)) + int(exponent or 0)


def test_table(page, total):
    table = page.locator("table").first
    filter_box = page.get_by_role("searchbox").first
    count = page.locator("output").first
    filter_box.fill("blocks.3")
    sites = column(page, table, "site")
    assert sites and all("blocks.3" in site for site in sites), sites
    filter_box.fill("nothing of the kind")
    expect(count).to_have_text(f"0 of {total} rows")
    filter_box.fill("")
    bound = column(page, table, "variance")[total // 2]
    filter_box.fill(f"variance>{bound}")
    found = column(page, table, "variance")
    assert found and all(magnitude(value) > magnitude(bound) for value in found), found
    filter_box.fill("")
    button = page.get_by_role("button", name="variance", exact=True)
    head = table.locator("thead th", has=button)
    for direction, reverse in [("ascending", False), ("descending", True)]:
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", direction)
        sizes = [magnitude(value) for value in column(page, table, "variance")]
        assert sizes == sorted(sizes, reverse=reverse), sizes


def test_downloads(page, binary, folder, arguments):
    run = saved(page, "run.json")
    assert run["command"][1:3] == arguments[:2] and run["seed"] == 0, run
    stack = folder / "stack.json"
    stack.write_text(json.dumps(saved(page, "stack.json")))
    told = json.loads(sigprop(binary, "predict", "--stack", stack, "--format", "json"))
    assert told["sites"] == saved(page, "prediction.json")["sites"]
    assert saved(page, "plan.json")["parameters"]


def test_looks(browser, path):
    """Dark and light differ, and no width makes the page itself scroll sideways."""
    papers = set()
    for scheme in ["light", "dark"]:
        for width in [320, 760, 1600]:
            with opened(browser, path, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
                papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    assert len(papers) == 2, papers


def test_all(binary, browser, folder):
    runs = reports(binary, folder)
    with opened(browser, folder / "predict.html") as page:
        test_hover(page, 12)
        test_zoom(page, 12)
        test_keys(page)
        test_table(page, 14)
        test_downloads(page, binary, folder, runs["predict"])
        assert page.locator("path.band").count() == 2, "those of both variances"
    with opened(browser, folder / "far.html") as page:
        test_hover(page, 400)
        page.get_by_role("button", name="Show all rows").click()
        test_table(page, 401)
    with opened(browser, folder / "validate.html") as page:
        assert page.locator("path.point").count() > 4 * 10 and page.locator("line.bar").count() > 4 * 10
        at_share(page, 0.5)
        assert "\nobserved: " in tip(page), tip(page)
        assert saved(page, "validation.json")["replicates"] == 3
    with opened(browser, folder / "compare.html") as page:
        expect(page.locator("path.curve")).to_have_count(4 * 4 + 4)
        page.get_by_role("button", name="gpt2").click()
        expect(page.locator("path.curve")).to_have_count(4 * 3 + 4)
        assert page.locator("path.band").count() == 2 * 3, "three curves leave room for bands"
        at_share(page, 0.5)
        assert "xavier: " in tip(page) and "gpt2" not in tip(page), tip(page)
        assert [network["scheme"] for network in saved(page, "networks.json")][0] == "xavier"
        assert len(saved(page, "comparison.json")["schemes"]) == 4
    with opened(browser, folder / "hostile.html") as page:
        assert page.locator("h1").inner_text().startswith(HOSTILE) and page.title().startswith(HOSTILE)
        assert page.locator("img").count() == 0 and page.locator("svg.panel").count() == 4
        assert saved(page, "stack.json")["name"] == HOSTILE
    for name in ["predict", "compare", "hostile"]:
        test_looks(browser, folder / f"{name}.html")


def main():
    binary, executable = sys.argv[1], (sys.argv[2:] or [None])[0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        # Containers run as root, where Chromium has no sandbox.
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        test_all(binary, browser, Path(folder))
        browser.close()
    print("reports: open, read, zoom, filter, sort, save: all as they should be")


if __name__ == "__main__":
    main()
