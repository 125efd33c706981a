// Typesets the formulas of a page (spans and divs of class "arithmatex") with the KaTeX that lies beside this file.
for (const place of document.querySelectorAll(".arithmatex")) {
  const source = place.textContent.trim();
  katex.render(source.slice(2, -2), place, { displayMode: source.startsWith("\\["), throwOnError: false });
}
