"""The console in a real Chromium: what people see and do there, and what a page may never do.

Pictures of each view are kept in tests/artefacts/console, for people to look at.
"""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.console_store import CROWD, RULES, fill_store
from tests.support.chromium import MISSING, Page, chromium, find_chromium, open_page
from tests.support.markdown import ROOT
from tests.support.processes import Penstock, penstock
from tests.support.rules import replace_rules
from tests.support.web import decide

PICTURES = ROOT / "tests/artefacts/console"
SCRIPT = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
WIDE, PHONE = (1280, 900), (390, 844)
TOKEN = "a-token-of-this-test"  # noqa: S105 - of no other server

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=MISSING)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, rules: Path) -> Iterator[Penstock]:
    """With 10,000 entities, and a family of three that has used some of its tokens."""
    folder = tmp_path_factory.mktemp("console")
    store = fill_store(folder, CROWD)
    with penstock(folder, rules=rules, store=store) as server:
        for _ in range(12):
            decide(server.http, "shop", ("api_key", "user-1"), ("model", "gpt-4"))
        decide(server.http, "shop", ("user", SCRIPT))
        yield server


@pytest.fixture(scope="module")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Chromium for all tests. Each has a tab and a profile of its own."""
    with chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address


@pytest.fixture
async def page(devtools: str, server: Penstock) -> AsyncIterator[Page]:
    """A tab. Nothing may have gone wrong in it, nor left this machine, when the test is over."""
    async with open_page(devtools) as page:
        await page.look_like(*WIDE)
        yield page
        assert page.problems == []
        assert page.requests, "they are on record"
        origin = f"http://{server.debug}/"
        assert [url for url in page.requests if not url.startswith(origin)] == []


async def show(page: Page, server: Penstock, where: str = "") -> None:
    """Open a view, and wait until it has its data."""
    await page.open(f"http://{server.debug}/console#/{where}")
    await page.wait_for("document.querySelector('main')?.dataset.state === 'shown'")


async def look_at_an_hour(page: Page) -> None:
    """A busy machine may need more than a minute for what a test counts."""
    await page.click("input[value='hour'] + span")


async def keep_pictures(page: Page, name: str) -> None:
    """In light and dark, and on a phone, which must not scroll sideways."""
    for kind, (width, height), dark in (
        ("light", WIDE, False), ("dark", WIDE, True), ("phone", PHONE, False),
    ):  # fmt: skip
        await page.look_like(width, height, dark=dark)
        await page.wait_for(f"innerWidth === {width}")
        most = await page.run("document.documentElement.scrollWidth")
        assert most <= width, f"{name} is {most} pixels wide on a screen of {width}"
        tall = await page.run("document.documentElement.scrollHeight")
        await page.look_like(width, max(height, tall), dark=dark)
        await page.keep_picture(PICTURES / f"{name}-{kind}.png")
    await page.look_like(*WIDE)


async def test_live_load_shows_up(page: Page, server: Penstock) -> None:
    """Without a reload: in the numbers, in the plot, and in the list of those who are limited."""
    await show(page, server)
    await look_at_an_hour(page)
    for _ in range(9):
        decide(server.http, "shop", ("user", "bob"))
    row = await page.wait_for(
        "[...document.querySelectorAll('.limited tbody tr')]"
        ".map(row => row.innerText).find(text => text.includes('user=bob'))"
    )
    assert re.search(r"4 of 9\s", row)
    assert "5/year" in row
    await page.wait_for("document.querySelectorAll('path.line.denied').length > 0")
    shown = "document.querySelector('.tile .more').innerText"
    await page.wait_for(f"parseInt({shown}) >= 22")
    assert "Healthy" in await page.text(".status")
    denials = await page.text(".denials")
    assert "user=bob" in denials
    await keep_pictures(page, "now")


async def test_what_is_wrong_is_shown_until_it_is_mended(
    page: Page, server: Penstock, rules: Path
) -> None:
    """Rules with errors, and errors of the store. What was wrong once is no warning for ever."""
    await show(page, server)
    fact = "document.querySelector('.fact.warn')?.innerText"
    replace_rules(rules, f"{RULES}what: 1\n")
    told = await page.wait_for(fact)
    assert re.search(r"the last load failed, the last good rules are in force: .*'what'", told)
    replace_rules(rules, RULES)
    await page.wait_for(f"{fact} === undefined")
    store = """(async (lately) => {
      const { nowView } = await import("/console/now.js");
      const { get } = await import("/console/api.js");
      const overview = await get("overview");
      const points = Array(14).fill({ ...overview.rates.points.at(-1), store_errors: 0 });
      points[points.length - lately] = { ...points[0], store_errors: 3 };
      const view = nowView();
      const store = { kind: "sqlite", errors: 3 };
      await view.refresh({ ...overview, store, rates: { step_ms: 5000, points } });
      return view.element.querySelector(".fact:nth-child(3)");
    })"""
    old = f"{store}(13).then((fact) => [fact.className, fact.innerText])"
    assert await page.run(old) == ["fact ", "SQLite no errors lately, 3 since the start"]
    new = f"{store}(12).then((fact) => [fact.className, fact.innerText])"
    assert await page.run(new) == ["fact warn", "SQLite 3 errors in the last minute"]


async def test_a_limited_entity_is_found_in_two_clicks(page: Page, server: Penstock) -> None:
    """From any view: to the first one, and from there to the entity with its full bar."""
    await show(page, server, "rules")
    await page.click("nav a[href='#/']")
    await page.wait_for("document.querySelector('.limited')")
    await look_at_an_hour(page)
    await page.click(".limited a[href='#/entity/user-1/gpt-4']")
    await page.wait_for("document.querySelector('.level.self .bucket')")
    assert "user-1" in await page.text("h1")
    empty = await page.text(".level.self .bucket")
    assert "0 of 10 left" in empty
    assert re.search(r"full in 36[45] d", empty)


async def test_the_tree_shows_parents_and_every_bucket_as_a_bar(
    page: Page, server: Penstock
) -> None:
    """The topmost parent first. Each bar says to all readers how much is left."""
    await show(page, server, "entity/user-1")
    await page.wait_for("document.querySelectorAll('.tree .level').length === 3")
    names = "[...document.querySelectorAll('.tree .who .name')].map(name => name.innerText)"
    assert await page.run(names) == ["org-1", "team-1", "user-1"]
    meters = (
        "[...document.querySelectorAll('[role=meter]')].map(bar => "
        "[bar.getAttribute('aria-label'), +bar.getAttribute('aria-valuenow'), "
        "+bar.getAttribute('aria-valuemax')])"
    )
    assert await page.run(meters) == [
        ["rpm", 80, 90], ["tpm", 1790, 1800],
        ["rpm", 40, 50], ["tpm", 1790, 1800],
        ["rpm", 0, 10], ["tpm", 1790, 1800],
    ]  # fmt: skip
    full = "document.querySelector('.level-bar span').getBoundingClientRect().width"
    box = "document.querySelector('.level-bar').getBoundingClientRect().width"
    await page.wait_for(f"Math.abs({full} / {box} - 80 / 90) < 0.02")
    await page.click(".tree a[href='#/entity/org-1']")
    await page.wait_for("document.querySelector('.children a')?.innerText === 'team-1'")


async def test_usage_is_plotted_over_hours_and_days(page: Page, server: Penstock) -> None:
    """A plot can be read with the pointer, with keys, and by a screen reader."""
    await show(page, server, "entity/user-1")
    await page.wait_for("document.querySelectorAll('figure').length === 3")
    assert "10 in all" in await page.text("figure")
    bars = "document.querySelectorAll('figure:first-child .bar-value').length"
    assert await page.run(bars) == 49
    label = await page.run("document.querySelector('figure svg').getAttribute('aria-label')")
    assert label.startswith("requests of gpt-4: 10 in all")
    await page.run("document.querySelector('figure svg').focus()")
    spoken = "document.querySelector('figure .unseen').innerText"
    read = []
    for key in ["Home", *["ArrowRight"] * 48]:
        await page.press(key)
        read.append(await page.run(spoken))
    # An hour may have begun meanwhile, so it need not be the last bar alone.
    assert len(set(read)) == 49
    assert sum(int(text.rpartition(" ")[2]) for text in read) == 10
    await keep_pictures(page, "entity")
    await page.click("input[value='day'] + span")
    await page.wait_for(f"{bars} === 32")


async def test_colours_follow_the_system_or_the_button(page: Page, server: Penstock) -> None:
    """And the choice is kept."""
    background = "getComputedStyle(document.body).backgroundColor"
    await show(page, server)
    light = await page.run(background)
    await page.look_like(*WIDE, dark=True)
    await page.wait_for(f"{background} !== '{light}'")
    await page.click("#theme")
    await page.wait_for(f"{background} === '{light}'")
    await show(page, server, "rules")
    assert await page.run(background) == light


async def test_one_of_ten_thousand_entities_is_found_by_keyboard(
    page: Page, server: Penstock
) -> None:
    """The search field is a key away. The list itself comes in parts."""
    await show(page, server, "entities")
    await page.wait_for("document.querySelectorAll('.entities tbody tr').length === 100")
    await page.press("/")
    await page.wait_for("document.activeElement.id === 'search'")
    await page.type("crowd-0987")
    await page.wait_for("document.querySelectorAll('#found li').length === 9")
    await page.press("ArrowDown")
    await page.press("Enter")
    await page.wait_for("document.querySelector('h1 .name')?.innerText === 'crowd-09871'")
    await page.wait_for("document.querySelector('.facts')?.innerText.includes('no parent')")


async def test_rules_and_the_audit_are_shown(page: Page, server: Penstock) -> None:
    """With what hits a rule, and what a change was about."""
    await show(page, server, "rules")
    rules = "[...document.querySelectorAll('.rules tbody th .name')].map(rule => rule.innerText)"
    assert await page.run(rules) == [
        "shop.user", "shop.user_vip", "shop.tried", "shop.path", "shop [api_key, model]",
    ]  # fmt: skip
    await keep_pictures(page, "rules")
    await page.run("document.querySelector('[aria-label=\"Rules that contain\"]').focus()")
    await page.type("vip")
    await page.wait_for(f"JSON.stringify({rules}) === '[\"shop.user_vip\"]'")
    await page.click("nav a[href='#/audit']")
    await page.wait_for("document.querySelectorAll('.event').length === 2")
    first = await page.text(".event")
    assert "bob" in first
    assert "rpm: 1000/year → 2000/year" in first
    await keep_pictures(page, "audit")


async def test_a_value_that_is_a_script_stays_a_text(page: Page, server: Penstock) -> None:
    """In every view that shows it, and in an address."""
    for _ in range(6):
        decide(server.http, "shop", ("user", SCRIPT))
    await show(page, server)
    await look_at_an_hour(page)
    link = (
        "[...document.querySelectorAll('.limited a')].find(link => link.innerText.includes('<img'))"
    )
    await page.wait_for(link)
    await page.run(f"{link}.click()")
    await page.wait_for("document.querySelector('.bucket')")
    assert SCRIPT.replace("=", "%3d") in await page.text("h1")
    assert await page.run("document.querySelectorAll('main img, main script').length") == 0
    assert await page.run("window.pwned") is None


async def test_the_browser_runs_no_script_that_is_not_ours(devtools: str, server: Penstock) -> None:
    """If a text did get so far: no handler, no markup, no script, no style, nothing loaded."""
    async with open_page(devtools) as page:
        await show(page, server)
        blocked = await page.run("""new Promise((done) => {
          const seen = new Set();
          document.addEventListener("securitypolicyviolation", (event) => {
            seen.add(event.effectiveDirective);
            if (seen.size === 4) done([...seen].sort());
          });
          const picture = document.createElement("img");
          const coloured = document.createElement("p");
          const refused = [
            () => picture.setAttribute("onerror", "window.pwned = 1"),
            () => { document.body.innerHTML = "<b>markup</b>"; },
            () => { document.createElement("script").text = "window.pwned = 1"; },
          ];
          for (const attempt of refused) try { attempt(); window.pwned = 2; } catch { continue; }
          picture.src = "http://127.0.0.2/elsewhere.png";
          coloured.setAttribute("style", "color: red");
          document.body.append(picture, coloured);
          import("data:text/javascript,window.pwned=3").catch(() => {});
        })""")
        assert blocked == [
            "img-src", "require-trusted-types-for", "script-src-elem", "style-src-attr",
        ]  # fmt: skip
        assert await page.run("window.pwned") is None


async def test_screen_readers_and_keys_reach_everything(page: Page, server: Penstock) -> None:
    """Landmarks, one heading for the page, a name for all that can be used, and a way past it."""
    await show(page, server)
    nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    roles = {node["role"]["value"] for node in nodes if "role" in node}
    assert {"banner", "navigation", "main", "search", "contentinfo", "table"} <= roles
    used = [
        node for node in nodes
        if node.get("role", {}).get("value") in {"link", "button", "radio", "combobox", "image"}
        and not node.get("ignored")
    ]  # fmt: skip
    assert len(used) > 15
    assert [node["role"] for node in used if not node.get("name", {}).get("value")] == []
    assert await page.run("document.querySelectorAll('h1').length") == 1
    await page.press("Tab")
    assert await page.run("document.activeElement.className") == "skip"
    await page.press("Enter")
    await page.wait_for("document.activeElement.id === 'main'")


async def test_a_reader_keeps_the_focus_while_rows_change(page: Page, server: Penstock) -> None:
    """Rows are updated and not made again."""
    await show(page, server)
    await look_at_an_hour(page)
    await page.wait_for("document.querySelector('.limited a')")
    await page.run("document.querySelector('.limited a').focus()")
    for name in ("carol", "dora"):
        for _ in range(30):
            decide(server.http, "shop", ("user", name))
        # As if the reader came back to this tab: it is refreshed at once.
        await page.run("document.dispatchEvent(new Event('visibilitychange'))")
        await page.wait_for(f"document.querySelector('.limited').innerText.includes('{name}')")
    assert await page.run("document.activeElement.closest('.limited') !== null")


async def test_a_token_is_asked_for_and_a_server_that_ends_is_told(
    devtools: str, tmp_path: Path, rules: Path
) -> None:
    """A wrong token is asked for again. The token is in no address."""
    env = {"PENSTOCK_CONSOLE_TOKEN": TOKEN, "PENSTOCK_CONSOLE_VALUES": "hashed"}
    async with open_page(devtools) as page:
        with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
            await page.look_like(*WIDE)
            await page.open(f"http://{server.debug}/console")
            await page.wait_for("document.getElementById('sign-in')?.open")
            await page.keep_picture(PICTURES / "token-light.png")
            await page.type("not-the-right-token")
            await page.press("Enter")
            wrong = (
                "document.getElementById('sign-in-problem').textContent.includes('not the right')"
            )
            await page.wait_for(wrong)
            await page.type(TOKEN)
            await page.press("Enter")
            await page.wait_for("document.querySelector('main').dataset.state === 'shown'")
            assert not await page.run("document.getElementById('sign-in').open")
            assert [url for url in page.requests if TOKEN in url] == []
            await check_concealed_names(page, server)
            await check_an_error_of_a_choice(page)
            await page.click("nav a[href='#/']")
            await page.wait_for("document.querySelector('.limited')")
            await page.click("#live")
        # Nothing asks by itself now.
        await page.click("input[value='hour'] + span")
        assert "does not answer" in await page.text("#trouble:not([hidden])")
        await page.click("#live")
        trouble = "document.querySelector('#trouble:not([hidden])')"
        await page.wait_for(f"{trouble}?.innerText.includes('does not answer. Trying again')")
        assert [problem for problem in page.problems if "Uncaught" in problem] == []


async def check_concealed_names(page: Page, server: Penstock) -> None:
    """A hash leads nowhere, so it is no link."""
    for _ in range(6):
        decide(server.http, "shop", ("user", "bob"))
    await page.click("input[value='hour'] + span")
    name = "document.querySelector('.limited .name')"
    await page.wait_for(f"{name}?.innerText.startsWith('user=hash:')")
    await page.wait_for("document.querySelector('.denials .name')")
    assert await page.run("document.querySelectorAll('main a').length") == 0


async def check_an_error_of_a_choice(page: Page) -> None:
    """It stands where the answer would be."""
    name = "document.querySelector('[aria-label=Name]')"
    await page.click("nav a[href='#/audit']")
    # The view before this one has a choice of the same name.
    await page.wait_for(name)
    await page.click("input[value='entity'] + span")
    await page.wait_for(f"{name}.hidden === false")
    await page.run(f"{name}.value = 'x'.repeat(2000), {name}.dispatchEvent(new Event('change'))")
    await page.wait_for(
        "document.querySelector('.empty:not([hidden])')?.innerText.includes('is too long')"
    )
