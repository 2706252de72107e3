package statusz

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/listproxy/listproxy/test/expect"
)

func TestFormatSelfCheck(t *testing.T) {
	age := 61.0
	for _, tt := range []struct {
		c                SelfCheck
		said, mismatches string
	}{
		{SelfCheck{Result: SelfCheckOff}, "self-check off", ""},
		{SelfCheck{Result: SelfCheckNone}, "not checked yet", ""},
		{SelfCheck{Result: "agrees", Age: &age}, "agrees, 1m01s ago", ""},
		{SelfCheck{Result: "inconclusive", Age: &age}, "inconclusive, 1m01s ago", ""},
		{SelfCheck{Result: "mismatch", Age: &age, Mismatches: 1, MismatchAge: &age}, "mismatch, 1m01s ago", "1 mismatch, last 1m01s ago"},
		{SelfCheck{Result: "agrees", Age: &age, Mismatches: 1200, MismatchAge: &age}, "agrees, 1m01s ago", "1,200 mismatches, last 1m01s ago"},
		{SelfCheck{}, "–", ""}, // of an earlier listproxy
	} {
		if got := formatSelfCheck(tt.c); got != tt.said {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.said)
		}
		if got := formatMismatches(tt.c); got != tt.mismatches {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.mismatches)
		}
	}
}

// forms are the page and the text of a status, and the page's title.
func forms(t *testing.T, s Status) (page []*html.Node, title, text string) {
	t.Helper()
	page = nodes(t, get(t, s, "/statusz", "").Body.String())
	for _, n := range page {
		if n.Data == "title" {
			title = textOf(n)
		}
	}
	var out bytes.Buffer
	expect.NoError(t, s.WriteText(&out))
	return page, title, out.String()
}

// TestMismatchCatchesTheEye: on a page that is healthy otherwise, and also if nothing is kept of
// that resource now.
func TestMismatchCatchesTheEye(t *testing.T) {
	s := Status{Healthy: true, SelfChecks: SelfChecks{Interval: 300}}
	page, title, text := forms(t, s)
	for _, n := range page {
		if attr(n, "id") == "warning" {
			t.Error("there is a warning, and nothing to warn of")
		}
	}
	if title != "listproxy: healthy" || strings.Contains(text, "WARNING") {
		t.Errorf("the title is %q; the text:\n%s", title, text)
	}

	for i := range maxShownMismatches + 2 {
		s.SelfChecks.Mismatches = append(s.SelfChecks.Mismatches, Mismatch{
			Resource: fmt.Sprintf("r%d", i), Version: "v1", Representation: "json", Mismatches: 1,
			Last: time.Unix(1e9-int64(i), 0), Age: float64(i),
		})
	}
	page, title, text = forms(t, s)
	if title != "⚠ listproxy: healthy, with a warning" || textOf(byID(t, page, "health")) != "✓ healthy" {
		t.Errorf("the title is %q", title)
	}
	warning := textOf(byID(t, page, "warning"))
	for name, said := range map[string]string{"the page": warning, "the text": text} {
		if name == "the text" && !strings.Contains(said, "healthy, with a warning") {
			t.Errorf("the first line is to warn:\n%s", said)
		}
		for _, word := range []string{"omething wrong may have been answered", "r0 v1, json: 1 mismatch, last 0.0s ago (2001-09-09 01:46:40 UTC)", "r4 ", "2 more"} {
			if !strings.Contains(said, word) {
				t.Errorf("%s does not say %q:\n%s", name, word, said)
			}
		}
		if strings.Contains(said, "r5") {
			t.Errorf("%s names too many:\n%s", name, said)
		}
	}
}

// TestMismatchedComeFirst: of many collections the one that something was wrong with is seen at
// once, though it is live again.
func TestMismatchedComeFirst(t *testing.T) {
	var s Status
	for i := range 100 {
		c := Collection{Resource: fmt.Sprintf("r%02d", i), State: "not-permitted"}
		if i == 99 {
			c.State, c.SelfCheck.Mismatches = StateLive, 1
		}
		s.Collections = append(s.Collections, c)
	}
	page, _, _ := forms(t, s)
	if got := textOf(byID(t, page, "collections")); !strings.Contains(got, "r99") || !strings.Contains(got, "r18") || strings.Contains(got, "r19") {
		t.Errorf("shown are %s", got)
	}
	if got := textOf(byID(t, page, "states")); !strings.HasPrefix(got, "1 live , 99 not-permitted .") {
		t.Errorf("states: %s", got)
	}
}
