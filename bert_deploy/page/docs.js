// Shows openapi.json: the routes, and the bodies that they take.
"use strict";

function add(parent, name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
}

fetch("openapi.json").then((response) => response.json()).then((described) => {
  const main = document.getElementById("routes");
  document.getElementById("name").textContent = described.info.title;
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      add(main, "h3", `${method.toUpperCase()} ${path}`);
      add(main, "p", route.summary);
      const schema = route.requestBody?.content["application/json"].schema;
      for (const one of schema?.anyOf || (schema ? [schema] : [])) {
        const body = described.components.schemas[one.$ref.split("/").pop()];
        add(main, "p", body.description);
        add(main, "pre", JSON.stringify(body.properties, null, 2));
      }
    }
  }
});
