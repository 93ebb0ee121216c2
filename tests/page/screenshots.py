"""Takes a picture of every view of a page that is being served, and of the plain one: light and dark, on a desktop and
on a phone."""

from __future__ import annotations

import argparse
from pathlib import Path

from browser import TABS, PageDriver, chromium

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SETTLE_MS = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="as http://127.0.0.1:9464")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--whole", action="store_true", help="the whole page, not only what a screen shows")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for size, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                page = PageDriver(browser, width=width, height=height, theme=theme)
                for tab in TABS:
                    page.open(options.address.rstrip("/"), f"/{tab}")
                    page.page.wait_for_timeout(SETTLE_MS)
                    page.page.screenshot(path=options.out / f"{tab}-{size}-{theme}.png", full_page=options.whole)
                page.close()
                plain = PageDriver(browser, width=width, height=height, theme=theme, scripts=False)
                plain.page.goto(options.address)
                plain.page.screenshot(path=options.out / f"plain-{size}-{theme}.png", full_page=options.whole)
                plain.close()


if __name__ == "__main__":
    main()
