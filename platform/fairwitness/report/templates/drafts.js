(function () {
  "use strict";
  var bar = document.getElementById("filter");
  if (!bar) { return; }
  function all(root, selector) { return Array.prototype.slice.call(root.querySelectorAll(selector)); }
  var selects = all(bar, "select");
  var words = bar.querySelector("input[type=search]");
  var shown = bar.querySelector("output");
  var reset = bar.querySelector("button");
  var none = document.getElementById("none-left");
  var drafts = all(document, "section.draft").map(function (section) {
    return { section: section, items: all(section, "details.item"), head: null };
  });
  var total = drafts.reduce(function (sum, draft) { return sum + draft.items.length; }, 0);
  var texts = new Map();

  function textOf(draft, item) {
    // Read once, when somebody searches: the texts may be long.
    if (draft.head === null) {
      draft.head = all(draft.section, ".searched").map(function (part) { return part.textContent; }).join(" ").toLowerCase();
    }
    if (!texts.has(item)) { texts.set(item, item.textContent.toLowerCase()); }
    return draft.head + " " + texts.get(item);
  }

  function fits(draft, item, wanted) {
    for (var k = 0; k < selects.length; k += 1) {
      if (selects[k].value && item.getAttribute("data-" + selects[k].name) !== selects[k].value) { return false; }
    }
    return !wanted || textOf(draft, item).indexOf(wanted) >= 0;
  }

  function apply() {
    var wanted = words.value.trim().toLowerCase();
    var count = 0;
    drafts.forEach(function (draft) {
      var left = 0;
      draft.items.forEach(function (item) {
        item.hidden = !fits(draft, item, wanted);
        left += item.hidden ? 0 : 1;
      });
      draft.section.hidden = left === 0;
      count += left;
    });
    shown.textContent = count.toLocaleString("en") + " of " + total.toLocaleString("en") + " shown";
    none.hidden = count > 0;
    reset.disabled = !wanted && selects.every(function (select) { return !select.value; });
  }

  selects.forEach(function (select) { select.addEventListener("change", apply); });
  words.addEventListener("input", apply);
  reset.addEventListener("click", function () {
    selects.forEach(function (select) { select.value = ""; });
    words.value = "";
    apply();
    words.focus();
  });
  bar.addEventListener("submit", function (event) { event.preventDefault(); });
  bar.hidden = false;
  apply();
})();
