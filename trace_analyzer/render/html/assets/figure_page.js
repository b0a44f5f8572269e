// Gives the plots of a page without a timeline the colours of its theme, which is the system's.

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function paint() {
    document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
    const css = getComputedStyle(document.documentElement), of = (name) => css.getPropertyValue("--" + name).trim();
    const axis = { axis_label_text_color: of("text-soft"), major_label_text_color: of("text-soft"), axis_line_color: of("text-muted"),
      major_tick_line_color: of("text-muted"), minor_tick_line_color: null };
    const plot = { background_fill_color: null, border_fill_color: null, outline_line_color: null, border_line_color: null };
    const legend = { background_fill_color: of("page"), label_text_color: of("text-soft"), border_line_color: null };
    for (const root of Bokeh.documents) for (const model of root._all_models.values()) {
      if (model.type.endsWith("Axis")) model.setv(axis);
      else if (model.type === "Grid") model.setv({ grid_line_color: of("grid") });
      else if (model.type === "Figure" || model.type === "Plot") model.setv(plot);
      else if (model.type === "Toolbar") model.setv({ logo: null });
      else if (model.type === "Legend") model.setv(legend);
      else if (model.tags.includes("ink")) model.setv({ [model.type === "Text" ? "text_color" : "line_color"]: { value: of("text-soft") } });
    }
  }
  dark.addEventListener("change", paint);
  addEventListener("load", () => setTimeout(paint, 0));
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
})();
