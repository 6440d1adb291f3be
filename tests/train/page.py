"""Pages in a browser: no errors, no downloads. report.html: the timeline zooms and describes the task under the pointer.
index.html of dedup: the images are there, and the slider splits groups."""
import json
import os
import pathlib
import re
import shutil
import subprocess

from run import Skip, folder, main, ranks, stargrad

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
except ImportError:
    webdriver = None


def browser(path, size):
    if not webdriver or not shutil.which("chromedriver"):
        raise Skip("needs python3-selenium and chromium-driver")
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=" + size):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    page = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    page.get(pathlib.Path(path).as_uri())
    return page


def d3():
    return os.path.exists("/usr/share/javascript/d3/d3.min.js")


def requests(page):
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def report(count, *words):
    out = folder(f"page-{count}")
    words = ("train", "--model", "lenet", "--data", "synthetic:28x28x1,10,256", "--batch", 32, "--steps", 5, "--out", out, *words)
    if count > 1:
        ranks(count, *words)
    else:
        stargrad(*words)
    stargrad("report", out)
    return f"{out}/report.html"


def tips(page, canvas, tip, row):
    """What the pointer tells along a row of the timeline, at each of its pixels: where its boxes are is the machine's affair."""
    return set(page.execute_script("""const [canvas, tip, y] = arguments, at = canvas.getBoundingClientRect(), told = [];
        for (let x = at.left; x < at.right; x++) {
          canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: x, clientY: at.top + y, bubbles: true }));
          told.push(tip.style.display === "none" ? "" : tip.textContent);
        }
        return told;""", canvas, tip, 30 * row + 15))


def test_timeline():
    path = report(2, "--trace", "3-4")
    for size in ("1200,1400", "400,800"):
        page = browser(path, size)
        try:
            assert page.get_log("browser") == [], "the console has errors"
            assert requests(page) == [pathlib.Path(path).as_uri()], "something was fetched"
            assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), f"wider than {size}"
            assert [step for step, ms in page.execute_script("return data.timeline.steps")] == [3, 4], "no mark where steps end"
            canvas, tip = page.find_element(By.CSS_SELECTOR, "#gantt canvas"), page.find_element(By.ID, "tip")
            page.execute_script("arguments[0].scrollIntoView()", canvas)
            if not d3():
                raise Skip("there is no d3")
            whole = page.execute_script("return arguments[0].toDataURL()", canvas)
            tasks, messages = (tips(page, canvas, tip, row) for row in range(2))
            assert any("backward" in text and " ms" in text for text in tasks), tasks
            assert any(re.match(r"bucket \d+ \(.*(weight|bias).*\), \d+ bytes from rank 1: .* ms", text) for text in messages), messages
            assert len(page.find_elements(By.CSS_SELECTOR, "svg.memory path")) == 2, "no memory in use of two ranks"
            page.execute_script("""const at = arguments[0].getBoundingClientRect();
                arguments[0].dispatchEvent(new WheelEvent("wheel", { deltaY: -600, clientX: at.left + at.width / 2, clientY: at.top + 20,
                                                                     bubbles: true, cancelable: true }));""", canvas)
            assert page.execute_script("return arguments[0].toDataURL()", canvas) != whole, "the wheel does not zoom"
            page.find_element(By.ID, "all").click()
            assert page.execute_script("return arguments[0].toDataURL()", canvas) == whole, "the button does not show all again"
        finally:
            page.quit()


def test_without_trace():
    page = browser(report(1), "1200,1400")
    try:
        assert page.get_log("browser") == [] and "lenet" in page.find_element(By.ID, "title").text
        assert not page.find_elements(By.CSS_SELECTOR, "#gantt"), "a timeline of no trace"
    finally:
        page.quit()


def test_configuration():
    """What the run was asked for, and what a continuation changed."""
    path = report(1)
    out = os.path.dirname(path)
    stargrad("train", "--model", "lenet", "--data", "synthetic:28x28x1,10,256", "--batch", 32, "--steps", 6, "--lr", 0.05, "--resume", "--out", out)
    stargrad("report", out)
    for size in ("1200,1400", "400,800"):
        page = browser(path, size)
        try:
            assert page.get_log("browser") == [], "the console has errors"
            rows = dict(row.text.split("\n") for row in page.find_elements(By.CSS_SELECTOR, "#configuration dl:first-of-type div"))
            assert rows["lr"] == "0.1" and rows["batch"] == "32" and rows["weight-decay"] == "0.0001" and rows["bn-group"] == "rank", rows
            assert "after step 5, with steps 6 (was 5), lr 0.05 (was 0.1)" in page.find_element(By.ID, "configuration").text
            assert "lr 0.05," in page.find_element(By.ID, "settings").text, "the headline has the first learning rate"
            assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), f"wider than {size}"
        finally:
            page.quit()


def test_step_marks():
    """In the timeline a dashed line, top to bottom, where a step ends."""
    if not d3():
        raise Skip("there is no d3")
    page = browser(report(1, "--trace", "3-4"), "1200,1400")
    try:
        marked = page.execute_script("""const to = HTMLCanvasElement.prototype.getContext.call(document.querySelector("#gantt canvas"), "2d"), lines = [];
            to.lineTo = (x, y) => lines.push([x, y, to.getLineDash().length]);
            window.dispatchEvent(new Event("resize"));
            return lines;""")
        assert len(marked) == 2 and marked[0][0] < marked[1][0] and all(dashes for x, y, dashes in marked), marked
        assert re.search(r"vite -t \d+:\d+ ", page.find_element(By.ID, "timeline").text)
    finally:
        page.quit()


def test_large():
    """128 ranks of 64 workers: a picture and tables that a browser can show and a reader can read."""
    generator, out = os.path.join(os.environ.get("builddir", "build"), "tests/report/scale"), folder("page-large")
    if not os.path.exists(generator):
        raise Skip("tests/report/scale is not built")
    os.makedirs(out)
    subprocess.run([generator, out, "128", "64"], check=True)
    stargrad("report", out)
    page = browser(f"{out}/report.html", "1200,1400")
    try:
        assert page.get_log("browser") == [], "the console has errors"
        assert "The plot shows the busiest worker of each rank: 128 of 8192" in page.find_element(By.ID, "timeline").text or not d3()
        assert page.execute_script("return document.querySelectorAll('tr').length") < 400
        assert page.execute_script("return document.querySelectorAll('svg.memory').length") <= 32
        assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), "wider than the window"
        if d3():
            canvas = page.find_element(By.CSS_SELECTOR, "#gantt canvas")
            assert page.execute_script("return arguments[0].height", canvas) < 8192
            assert page.execute_script("return arguments[0].getContext('2d').getImageData(0, 0, arguments[0].width, arguments[0].height)"
                                       ".data.some(x => x)", canvas), "nothing is drawn"
    finally:
        page.quit()


def test_duplicates():
    out = folder("duplicates")
    told = json.loads(stargrad("dedup", "--data", "digits", "--threshold", 4, "--out", out, "--json"))
    path = f"{out}/index.html"
    for size in ("1200,1400", "400,800"):
        page = browser(path, size)
        try:
            shown = lambda: len(page.find_elements(By.TAG_NAME, "figure"))
            says = lambda: page.find_element(By.ID, "told").text
            assert page.get_log("browser") == [], "the console has errors"
            assert {url for url in requests(page) if not url.startswith("data:")} == {pathlib.Path(path).as_uri()}, "something was fetched"
            assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), f"wider than {size}"
            assert page.execute_script("""return Promise.all([...document.images].map(image => {
                image.loading = "eager";
                return image.decode().then(() => image.naturalWidth === 8);
            })).then(all => all.length > 0 && all.every(whole => whole))"""), "an image is not there, or of another size"
            many = shown()
            assert f"{told['dropped']:,} dropped" in says() and f"{told['within']['pairs']:,} pairs of one class" in says(), says()
            page.execute_script("""const slider = document.getElementById("slider");
                slider.value = 2;
                slider.dispatchEvent(new Event("input"));""")
            assert 0 < shown() < many and f"{told['dropped']:,} dropped" not in says(), says()
        finally:
            page.quit()


if __name__ == "__main__":
    main(globals())
