package statusz

import (
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestSameWords: what the text of listproxy status calls something, the page calls it too, and with
// the same value.
func TestSameWords(t *testing.T) {
	s := sample()
	var text strings.Builder
	expect.NoError(t, s.WriteText(&text))
	page := textOf(byID(t, nodes(t, get(t, s, "/statusz", "").Body.String()), "traffic"))
	rows := trafficRows(s.Recent, s.Total)
	for _, row := range rows {
		words := row.Name + " " + row.Recent + " " + row.Total
		if !strings.Contains(page, words) {
			t.Errorf("the page does not say %q: %s", words, page)
		}
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), words) {
			t.Errorf("the text does not say %q:\n%s", words, text.String())
		}
	}
	if len(rows) < 10 {
		t.Errorf("there are %d rows", len(rows))
	}
	whole := get(t, s, "/statusz", "").Body.String()
	for line := range strings.Lines(text.String()) {
		title := strings.TrimSpace(line)
		if title == "" || title != strings.ToUpper(title) || strings.Contains(title, "  ") || title == "POLICY" {
			continue
		}
		if !strings.Contains(strings.ToLower(whole), strings.ToLower(title)) {
			t.Errorf("the page has nothing that is called %q", title)
		}
	}
}

// TestVerified: that a quiet resource was not heard of for a while is in colour only past half of
// the bound.
func TestVerified(t *testing.T) {
	for lag, want := range map[float64]string{0.4: "", 33: "", 45: "", 46: "warn", 89: "warn", 90: "bad", 500: "bad"} {
		c := Collection{Lag: &lag, Bound: 90}
		if got := verifiedClass(c); got != want {
			t.Errorf("%v s: %q, want %q", lag, got, want)
		}
	}
	lag := 33.0
	for want, c := range map[string]Collection{
		"verified 33s ago (bound 1m30s)": {Lag: &lag, Bound: 90}, "verified 33s ago": {Lag: &lag}, "never verified": {Bound: 90},
	} {
		if got := formatVerified(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s := sample()
	s.Collections[0].Lag = &lag
	if w := get(t, s, "/statusz", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `<td role="cell" data-label="Newest state">verified 33s ago (bound 1m30s)</td>`) {
		t.Error("the page has it otherwise")
	}
}
