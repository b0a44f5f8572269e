"""Draw the README's picture: the page of a sample, with numbers that the README explains. Needs Chromium.

python docs/picture.py
"""

import subprocess
import tempfile
from pathlib import Path

import trace_analyzer

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "synthetic_overhead_data-loading.json.gz"
PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1200, 1420
MARKED = (
    "#headline",
    ".hero .legend",
    ".card:first-child .saves",
    ".card:first-child .pairs",
    ".card:first-child .card-foot",
    "#timeline",
)
"""What the numbers stand at, from 1 on."""
_BADGE = (
    "position:absolute;z-index:99;margin:-14px 0 0 -30px;width:24px;height:24px;border-radius:50%;background:#d55e00;color:#fff;"
    "font:700 14px/24px sans-serif;text-align:center"
)


def main() -> None:
    """Draw the picture anew."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        trace_analyzer.analyze(SAMPLE).to_html(page)
        badges = f"""<script>addEventListener('load', () => {list(MARKED)}.forEach((place, index) => {{
          const at = document.querySelector(place)?.getBoundingClientRect();
          if (!at) throw new Error(place);
          const badge = document.createElement('b');
          badge.textContent = index + 1;
          badge.style.cssText = `{_BADGE};left:${{Math.max(34, at.left + scrollX)}}px;top:${{at.top + scrollY + 12}}px`;
          document.body.append(badge);
        }}))</script>"""
        html = page.read_text("utf-8")
        page.write_text(html.replace("</body>", f"{badges}</body>"), "utf-8")
        command = ["chromium", "--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
        subprocess.run([*command, "--virtual-time-budget=15000", f"--screenshot={PICTURE}", page.as_uri()], check=True)


if __name__ == "__main__":
    main()
