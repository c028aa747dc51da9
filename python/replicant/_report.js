"use strict";
// Draws the charts of a report with Plotly, and renews the page while it is served.
const COLOURS = ["#1f77b4", "#e4752b", "#2ca05a", "#c63d4f", "#8a63d2", "#a0703c", "#d16ba5",
  "#7a8288", "#a8a21f", "#17a2b8"];
let charts = [];
let axis = "frames";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The axis for which there are numbers, if the chosen one has none.
function axisOf(line) {
  return [axis, "frames", "updates", "seconds"].find((one) => line[one].some((x) => x !== null));
}

function traces(chart) {
  const isOne = new Set(chart.lines.map((line) => line.run)).size === 1;
  return chart.lines.map((line, index) => {
    const trace = {
      x: line[axisOf(line)], y: line.y, name: line.name, mode: line.y.length > 40 ? "lines"
        : "lines+markers", type: "scatter",
      line: { width: 2, color: COLOURS[(isOne ? index : line.run) % COLOURS.length],
        dash: !isOne && line.label === "training" ? "dot" : "solid" },
      marker: { size: 5 },
    };
    if (line.spread) {
      trace.error_y = { array: line.spread, thickness: 1, width: 0 };
    }
    return trace;
  });
}

function layout(chart) {
  const text = colour("--text");
  const grid = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), color: text,
    automargin: true };
  return {
    title: { text: chart.title, font: { size: 14 }, x: 0.02, xanchor: "left" },
    font: { color: text, size: 12 }, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 48, r: 12, t: 36, b: 40 },
    xaxis: { ...grid, title: { text: axisOf(chart.lines[0]), standoff: 4 } },
    yaxis: { ...grid, title: { text: chart.unit } },
    showlegend: chart.lines.length > 1 && chart.lines.length <= 12,
    legend: { orientation: "h", y: -0.3, yanchor: "top" }, hovermode: "closest",
  };
}

function draw() {
  const section = document.getElementById("charts");
  // all of them first: their number gives the width of each
  while (section.children.length < charts.length) {
    const div = document.createElement("div");
    div.className = "chart";
    section.append(div);
  }
  charts.forEach((chart, index) => {
    Plotly.react(section.children[index], traces(chart), layout(chart),
      { responsive: true, displaylogo: false, displayModeBar: false });
  });
  for (const button of document.querySelectorAll("#axes button")) {
    button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
  }
}

async function renew() {
  try {
    const answer = await fetch("now" + location.search);
    if (!answer.ok) return;
    const now = await answer.json();
    charts = now.charts;
    // the charts stay, so that a reader's zoom does
    const old = document.getElementById("charts");
    const body = document.getElementById("body");
    const open = [...body.querySelectorAll("details")].map((one) => one.open);
    const isFilming = [...body.querySelectorAll("video")].some((one) => !one.paused);
    if (!isFilming) {
      body.innerHTML = now.body;
      document.getElementById("charts").replaceWith(old);
      body.querySelectorAll("details").forEach((one, i) => { one.open = Boolean(open[i]); });
    }
    draw();
  } catch (error) {
    // the server has ended; the page stays as it is
  }
}

function show(refreshSeconds) {
  charts = JSON.parse(document.getElementById("data").textContent);
  for (const button of document.querySelectorAll("#axes button")) {
    button.addEventListener("click", () => { axis = button.dataset.axis; draw(); });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  if (refreshSeconds > 0) setInterval(renew, 1000 * refreshSeconds);
}
