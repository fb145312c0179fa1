// Every widget of the page, built from its stored state in the place of its picture.
for (const place of document.querySelectorAll(".widget")) {
  const state = JSON.parse(place.querySelector("script").textContent);
  const el = document.createElement("div");
  place.widgetState = state;
  renderers[place.dataset.widget]({ model: modelOf(state), el });
  place.replaceChildren(el);
}
