
(function () {
  "use strict";
  var study = "fairwitness-study-" + document.body.dataset.study;
  var sections = Array.prototype.slice.call(document.querySelectorAll("section.step"));
  var rater = document.getElementById("rater");
  var said = document.getElementById("said");
  var ratings = {};
  var current = 0;
  var keeps = true;

  function byId(id) { return document.getElementById(id); }

  function keep() {
    if (!keeps) { return; }
    try {
      localStorage.setItem(study, JSON.stringify({ rater: rater.value, current: current, ratings: ratings }));
    } catch (error) {
      keeps = false;
      byId("no-store").hidden = false;
    }
  }

  function recall() {
    var kept = null;
    try {
      kept = JSON.parse(localStorage.getItem(study));
    } catch (error) {
      kept = null;
    }
    if (!kept || typeof kept !== "object") { return; }
    rater.value = kept.rater || "";
    sections.forEach(function (section) {
      var item = section.dataset.item;
      var value = kept.ratings && kept.ratings[item];
      var radio = value && section.querySelector('input[value="' + Number(value) + '"]');
      if (radio) {
        radio.checked = true;
        ratings[item] = Number(value);
      }
    });
    if (kept.current >= 0 && kept.current < sections.length) { current = Math.floor(kept.current); }
  }

  function show(index, focus) {
    current = index;
    sections.forEach(function (section, place) { section.hidden = place !== index; });
    byId("previous").disabled = index === 0;
    byId("next").disabled = index === sections.length - 1;
    if (focus) {
      sections[index].querySelector("h2").focus({ preventScroll: true });
      sections[index].scrollIntoView();
    }
    count();
    keep();
  }

  function count() {
    var done = Object.keys(ratings).length;
    byId("meter").value = done;
    byId("count").textContent = done + " of " + sections.length + " rated";
    byId("unrated").disabled = done === sections.length;
    return done;
  }

  function nextUnrated() {
    for (var offset = 1; offset <= sections.length; offset += 1) {
      var index = (current + offset) % sections.length;
      if (!ratings[sections[index].dataset.item]) {
        show(index, true);
        return;
      }
    }
  }

  function quoted(text) { return '"' + text.replace(/"/g, '""') + '"'; }

  function save() {
    var name = rater.value.trim();
    if (!name) {
      said.textContent = "Please enter your name or initials first.";
      rater.focus();
      return;
    }
    var done = count();
    if (!done) {
      said.textContent = "There is no rating to save yet.";
      return;
    }
    var lines = [document.body.dataset.header];
    sections.forEach(function (section) {
      var item = section.dataset.item;
      if (ratings[item]) { lines.push([item, ratings[item], quoted(name)].join(",")); }
    });
    var file = "ratings_" + (name.replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_+|_+$/g, "") || "rater") + ".csv";
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff" + lines.join("\r\n") + "\r\n"], { type: "text/csv;charset=utf-8" }));
    link.download = file;
    document.body.appendChild(link);
    link.click();
    link.remove();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
    said.textContent = done + " of " + sections.length + " ratings saved as " + file + ", where your browser puts downloads.";
  }

  function clear() {
    if (!window.confirm("Remove all your entries in this browser?")) { return; }
    ratings = {};
    rater.value = "";
    document.querySelectorAll("section.step input").forEach(function (radio) { radio.checked = false; });
    said.textContent = "Your entries were removed.";
    show(0, true);
  }

  document.querySelector("main").addEventListener("change", function (event) {
    ratings[event.target.name] = Number(event.target.value);
    said.textContent = "";
    count();
    keep();
  });
  rater.addEventListener("input", keep);
  byId("previous").addEventListener("click", function () { show(current - 1, true); });
  byId("next").addEventListener("click", function () { show(current + 1, true); });
  byId("unrated").addEventListener("click", nextUnrated);
  byId("save").addEventListener("click", save);
  byId("clear").addEventListener("click", clear);

  recall();
  byId("bar").hidden = false;
  show(current, false);
})();
