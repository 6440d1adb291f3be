"""report.html in a browser: no error, nothing fetched, the timeline zooms and tells what is under the pointer."""
import json
import os
import re
import shutil

from run import Skip, folder, main, ranks, stargrad

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
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
    page.get("file://" + path)
    return page


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
    """What the pointer tells along a row of the timeline."""
    told = set()
    for x in range(-canvas.size["width"] // 4, canvas.size["width"] // 2 - 10, 7):
        ActionChains(page, duration=0).move_to_element_with_offset(canvas, x, 30 * row + 15 - canvas.size["height"] // 2).perform()
        told.add(tip.text)
    return told


def test_timeline():
    path = report(2, "--trace", "3-4")
    for size in ("1200,1400", "400,800"):
        page = browser(path, size)
        try:
            assert page.get_log("browser") == [], "the console has errors"
            assert requests(page) == ["file://" + path], "something was fetched"
            assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), f"wider than {size}"
            canvas, tip = page.find_element(By.CSS_SELECTOR, "#gantt canvas"), page.find_element(By.ID, "tip")
            page.execute_script("arguments[0].scrollIntoView()", canvas)
            if not os.path.exists("/usr/share/javascript/d3/d3.min.js"):
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


if __name__ == "__main__":
    main(globals())
