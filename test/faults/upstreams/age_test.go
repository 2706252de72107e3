package upstreams

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/oracle"
)

// TestTooOld: a state that comes from memory as the newest one, and is older than the bound, is a mistake; one of a revision that was
// asked for is none, nor is one that was forwarded.
func TestTooOld(t *testing.T) {
	const hit, forwarded = "listproxy; hit; detail=any", "listproxy; fwd=bypass; detail=stale"
	for name, tt := range map[string]struct {
		question question
		source   string
		later    time.Duration // than a write that the answer lacks
		want     int           // mistakes
	}{
		"the newest":             {question{query: ask.AnyVersion}, hit, bound, 0},
		"within the tolerance":   {question{query: ask.AnyVersion}, hit, bound + oracle.Tolerance, 0},
		"too old":                {question{query: ask.AnyVersion}, hit, bound + 2*oracle.Tolerance, 1},
		"too old, and demanded":  {question{query: ask.NotOlderThan(7)}, hit, time.Hour, 1},
		"too old, and forwarded": {question{query: ask.AnyVersion}, forwarded, time.Hour, 0},
		"exactly that":           {question{query: ask.Exactly(7), fixed: true}, hit, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{T: t, oracle: newVerifier()}
				r.ledger.Confirmed("pods", 7)
				r.ledger.Confirmed("pods", 8)
				time.Sleep(tt.later)
				tt.question.collection = collection{"pods", ask.JSON}
				c := &ask.Client{Base: "https://listproxy.test", HTTP: &http.Client{Transport: lists{7, tt.source}}}
				if _, memory, err := r.put(t.Context(), c, tt.question, 0); err != nil || memory != (tt.source == hit) {
					t.Errorf("from memory: %t, %v", memory, err)
				}
				if got := r.oracle.found(); len(got) != tt.want {
					t.Errorf("mistakes: %q, want %d", got, tt.want)
				}
			})
		})
	}
}

// lists answers all with an empty list.
type lists struct {
	revision uint64
	source   string
}

// RoundTrip implements [http.RoundTripper].
func (l lists) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Status", l.source)
	_, err := fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, l.revision)
	return w.Result(), err
}
