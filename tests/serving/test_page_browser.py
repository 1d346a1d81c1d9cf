"""The page in a real browser, against the real application and job store. Jobs go on as recorded ones did."""

from __future__ import annotations

import httpx
import pytest

from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.optimize.rounds import ModuleFault
from tests.serving.browser import Watched, editor, paste
from tests.serving.page_site import Playback, Site
from tests.serving.page_steps import EXAMPLES, NOTHING, WON, events_of, expect, shot, start

pytestmark = pytest.mark.slow
MARKS = len(events_of(WON, "candidate")) + len(events_of(WON, "confirmation"))  # drawn a moment after the outcome


def test_page_when_an_example_is_made_faster_offers_the_winner_for_download(site, watched, tab):
    """From an empty page to a file on disk."""
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    first = next(n for n, event in enumerate(events_of(WON), start=1) if event["type"] == "round")
    site.work.allowed = first
    tab.goto("/")
    expect(tab.locator("#jobs-hint")).to_contain_text("None yet")
    tab.get_by_label("Example").select_option(label=EXAMPLES["won"])
    tab.get_by_label("Rounds").fill(str(WON["settings"]["rounds"]))
    tab.get_by_role("button", name="Make it faster").click()

    expect(tab.locator("#job-status")).to_have_text("running")  # the first round is here, the others are to come
    written = [event for event in events_of(WON)[:first] if event["type"] == "candidate"]
    expect(tab.locator(".marks .mark")).to_have_count(len(written))
    expect(tab.locator("#announce")).to_contain_text(f"Round 1 of {WON['settings']['rounds']} done")
    expect(tab.locator("#outcome")).to_be_hidden()
    site.work.allowed = 10**9

    result = WON["result"]
    expect(tab.locator("#outcome .big")).to_have_text(shot(result["speedup"]))
    expect(tab.locator("#outcome")).to_contain_text(f"{shot(result['speedup_low'])} to {shot(result['speedup_high'])}")
    for row in result["baselines"]:
        expect(tab.locator("#outcome table")).to_contain_text(row["missing"] or shot(row["speedup"]))
    for text in (result["analysis"], result["design"]):
        assert not text or text.strip() in tab.locator("#outcome").inner_text()
    kinds = [mark.get_attribute("class").split()[1] for mark in tab.locator(".marks .mark").all()]
    statuses = [event["status"] for event in events_of(WON, "candidate")]
    assert [kinds.count(kind) for kind in ("accepted", "rejected", "known")] == [
        statuses.count(kind) for kind in ("accepted", "rejected", "known")
    ]
    assert kinds.count("confirmed") + kinds.count("refuted") == len(events_of(WON, "confirmation"))
    expect(tab.locator("#table tbody tr")).to_have_count(len(statuses))
    body = next(line for line in result["code"].splitlines() if "return" in line).strip()
    expect(tab.locator("#diff")).to_contain_text(body)

    tab.get_by_role("button", name="Copy", exact=True).click()
    expect(tab.locator("#copy")).to_have_text("Copied")
    assert tab.evaluate("navigator.clipboard.readText()") == result["code"].rstrip() + "\n"
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "module_fast.py"
    assert download.value.path().read_text() == result["code"].rstrip() + "\n"
    for layout, editors in (("One column", 1), ("Side by side", 2)):
        tab.get_by_role("button", name=layout).click()
        expect(tab.locator("#diff .cm-editor")).to_have_count(editors)
        expect(tab.locator("#diff")).to_contain_text(body)


ASKEW = """() => [...document.querySelector("#diff").shadowRoot.querySelectorAll(".cm-editor")].flatMap((editor) => {
  const tops = [...editor.querySelectorAll(".cm-line")].map((line) => line.getBoundingClientRect().top);
  const numbers = [...editor.querySelectorAll(".cm-lineNumbers .cm-gutterElement")].filter((one) => one.offsetHeight);
  return numbers.filter((one) => !tops.some((top) => Math.abs(top - one.getBoundingClientRect().top) < 2));
}).length"""


def test_line_numbers_when_nothing_was_scrolled_stand_beside_their_lines(tab):
    for width in (1280, 360):  # two columns, one column
        tab.set_viewport_size({"width": width, "height": 500})
        start(tab, WON)
        expect(tab.locator("#diff .cm-lineNumbers .cm-gutterElement").last).to_be_attached()
        assert tab.evaluate("document.querySelector('#diff').getBoundingClientRect().top") > 500
        tab.wait_for_function(f"({ASKEW})() === 0")
        assert tab.evaluate("scrollY") == 0


def test_page_when_a_file_is_opened_shows_it(tab):
    tab.goto("/")
    module = {"name": "net.py", "mimeType": "text/x-python", "buffer": NOTHING["source"].encode()}
    tab.locator("#file").set_input_files(module)
    expect(tab.locator("#editor .cm-content")).to_contain_text("class Model")
    tab.reload()
    expect(tab.locator("#editor .cm-content")).to_contain_text("class Model")  # the draft is kept in this tab
    editor(tab).focus()
    tab.keyboard.press("Control+A")
    tab.keyboard.type("def f():\nreturn 1")
    expect(tab.locator("#editor .cm-line")).to_have_text(["def f():", "    return 1"])


def test_job_when_the_page_is_reloaded_survives_and_is_in_the_list(site, tab):
    job_id = start(tab, WON)
    expect(tab.locator("#outcome .big")).to_be_visible()
    expect(tab.locator(".marks .mark")).to_have_count(MARKS)
    tab.reload()
    expect(tab.locator("#outcome .big")).to_have_text(shot(WON["result"]["speedup"]))
    expect(tab.locator(".marks .mark")).to_have_count(MARKS)
    tab.get_by_role("link", name="cudal1, start page").click()
    expect(tab.locator("#jobs a")).to_have_count(1)
    expect(tab.locator("#editor .cm-content")).to_contain_text("class Model")  # the draft is still there
    tab.locator("#jobs a").click()
    expect(tab.locator("#job-id")).to_have_text(job_id[:8])
    tab.go_back()
    expect(tab.locator("#compose")).to_be_visible()
    assert len(site.work.begun) == 1  # read again, not worked out again


def test_page_when_nothing_is_faster_states_it(tab):
    start(tab, NOTHING)
    outcome = tab.locator("#outcome")
    expect(outcome.get_by_role("heading")).to_have_text("Nothing faster found")
    expect(outcome).to_contain_text(f"{NOTHING['result']['candidates']} candidate")
    expect(tab.locator("#diff-card")).to_be_hidden()
    expect(tab.locator("#job-status")).to_have_text("nothing faster")
    assert tab.locator("#outcome .big").count() == 0
    tab.get_by_role("button", name="Edit and run again").click()
    expect(tab.locator("#compose")).to_be_visible()
    expect(tab.locator("#editor .cm-content")).to_contain_text("class Model")


def test_page_when_a_module_is_no_problem_takes_examples_of_its_arguments(site, tab):
    site.work.jobs["other"] = NOTHING
    tab.goto("/")
    paste(tab, "import torch.nn as nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x.relu()\n")
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.locator("#start-fault")).to_contain_text("give example inputs")
    expect(tab.get_by_label("What forward takes")).to_be_focused()  # what was folded away is open
    tab.get_by_label("What forward takes").fill("x = randn(64, 128)\n3")
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.locator("#start-fault")).to_contain_text("either all by position or all by name")
    tab.get_by_label("What forward takes").fill("x = randn(64, 128)")
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.locator("#job-status")).to_have_text("nothing faster")
    tab.get_by_text("The module of this job").click()
    expect(tab.locator("#source .cm-content")).to_contain_text("return [torch.randn(64, 128)]")


def test_job_when_asked_for_again_is_the_same_unless_a_new_one_is_wanted(site, tab):
    first = start(tab, NOTHING)
    expect(tab.locator("#shared")).to_be_hidden()
    assert start(tab, NOTHING) == first
    expect(tab.locator("#shared")).to_be_visible()
    tab.goto("/")
    tab.get_by_label("A new job even if").check()
    paste(tab, NOTHING["source"])
    tab.get_by_role("button", name="Make it faster").click()
    tab.wait_for_url("**/#job=*")
    expect(tab.locator("#job-id")).not_to_have_text(first[:8])
    expect(tab.locator("#shared")).to_be_hidden()


def test_job_when_cancelled_states_that_nothing_was_confirmed(site, tab):
    site.work.allowed = 3
    start(tab, WON)
    expect(tab.locator("#job-status")).to_have_text("running")
    tab.get_by_role("button", name="Cancel").click()
    expect(tab.locator("#job-status")).to_have_text("cancelled")
    expect(tab.locator("#outcome")).to_contain_text("No winner was confirmed")
    expect(tab.locator("#announce")).to_have_text("The job was cancelled.")
    expect(tab.get_by_role("button", name="Cancel")).to_be_hidden()


def test_connection_when_lost_is_reported_and_the_rest_arrives_later(site, tab):
    half = len(events_of(WON)) // 2
    site.work.allowed = half
    start(tab, WON)
    expect(tab.locator("#job-status")).to_have_text("running")
    site.stop()
    expect(tab.locator("#banner")).to_be_visible()
    expect(tab.locator("#banner-text")).to_contain_text("Trying again")
    expect(tab.locator("#announce")).to_have_text("The connection is lost.")
    site.work.allowed = 10**9
    site.start()  # the store has the job; the job queue goes on with it
    tab.get_by_role("button", name="Try now").click()
    expect(tab.locator("#outcome .big")).to_have_text(shot(WON["result"]["speedup"]))
    expect(tab.locator("#banner")).to_be_hidden()
    expect(tab.locator(".marks .mark")).to_have_count(MARKS)


def test_page_when_the_server_is_down_states_it_and_keeps_the_module(site, tab):
    tab.goto("/")
    paste(tab, WON["source"])
    site.stop()
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.locator("#start-fault")).to_contain_text("Nothing was started")
    site.start()
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.locator("#outcome .big")).to_be_visible()


def test_page_when_the_server_refuses_a_module_shows_its_words(site, tab):
    tab.goto("/")
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.get_by_role("alert")).to_contain_text("There is no module yet")
    paste(tab, "class Model: pass")
    tab.get_by_role("button", name="Make it faster").click()
    refusal = httpx.post(f"{site.url}/v1/optimize", json={"source": "class Model: pass"}, timeout=60)
    assert refusal.status_code == 400
    expect(tab.locator("#start-fault")).to_contain_text(refusal.json()["error"]["message"])
    paste(tab, WON["source"])
    tab.get_by_label("Rounds").fill("1000")
    tab.get_by_role("button", name="Make it faster").click()
    expect(tab.locator("#start-fault")).to_contain_text("Rounds")
    assert tab.evaluate("document.activeElement.id") == "rounds"
    tab.goto(f"/#job={'0' * 24}")
    expect(tab.locator("#banner-text")).to_contain_text("no job")


@pytest.mark.parametrize(
    "fault, message",
    [
        (ModuleFault("the module itself fails where it is measured: <b>no</b> such layer"), "<b>no</b> such layer"),
        (RuntimeError("secret"), "the server failed to work on this job"),
    ],
)
def test_page_when_a_job_fails_states_why(site, tab, fault, message):
    site.work.allowed = 0
    start(tab, WON)
    site.work.fault = fault
    expect(tab.locator("#outcome").get_by_role("heading")).to_have_text("The job failed")
    expect(tab.locator("#outcome")).to_contain_text(message)
    assert "secret" not in tab.locator("body").inner_text()


def test_key_when_asked_for_is_kept_in_this_tab_only(browser, tmp_path):
    config = ServingConfig()
    config.optimize.jobs_dir, config.security.keys_file = str(tmp_path / "jobs"), str(tmp_path / "keys.json")
    key = KeyFile(config.security.keys_file).add("alice")
    site = Site(config, Playback(won=WON))
    site.start()
    watched = Watched(browser, site.url)
    try:
        tab = watched.tab
        tab.goto("/")
        expect(tab.locator("#jobs-hint")).to_contain_text("wants an API key")
        tab.get_by_label("API key").fill("cudal1-guess")
        tab.get_by_role("button", name="Use").click()
        expect(tab.locator("#banner-text")).to_have_text("The server does not know this API key.")
        tab.get_by_label("API key").fill(key)
        tab.get_by_label("API key").press("Enter")
        expect(tab.locator("#key-form")).to_be_hidden()
        start(tab, WON)
        expect(tab.locator("#outcome .big")).to_be_visible()
        tab.reload()
        expect(tab.locator("#outcome .big")).to_be_visible()
        stored = tab.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie]")
        assert key not in stored[0] and key in stored[1] and not stored[2] and key not in tab.content()
        other = watched.open()
        other.goto("/")
        expect(other.get_by_label("API key")).to_be_visible()
        tab.get_by_role("button", name="Forget the key").click()
        expect(tab.get_by_label("API key")).to_be_focused()
        assert key not in tab.evaluate("JSON.stringify(sessionStorage)")
        expect(tab.locator("#jobs a")).to_have_count(0)
        watched.close()
    finally:
        site.stop()
