(function () {
  "use strict";
  document.querySelectorAll(".panel-problems").forEach(function (panel) {
    var bar = panel.querySelector(".filter");
    var items = Array.prototype.slice.call(panel.querySelectorAll("details.problem"));
    if (!bar || !items.length) { return; }
    bar.hidden = false;
    var words = bar.querySelector("input[type=search]");
    var kind = bar.querySelector("select");
    var shown = bar.querySelector("output");
    var texts = items.map(function (item) { return item.querySelector("summary").textContent.toLowerCase(); });
    function apply() {
      var wanted = words.value.trim().toLowerCase();
      var count = 0;
      items.forEach(function (item, index) {
        var fits = (!wanted || texts[index].indexOf(wanted) >= 0) && (!kind.value || item.classList.contains(kind.value));
        item.hidden = !fits;
        count += fits ? 1 : 0;
      });
      shown.textContent = count + " of " + items.length + " shown";
    }
    words.addEventListener("input", apply);
    kind.addEventListener("change", apply);
    apply();
  });
})();
