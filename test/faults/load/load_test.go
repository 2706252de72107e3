package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/oracle"
)

// TestTooOld: a state that comes from memory as the newest one, and is older than the bound, is a
// mistake; one of a revision that was asked for is none, nor is one that was forwarded.
func TestTooOld(t *testing.T) {
	const hit, forwarded = "listproxy; hit; detail=any", "listproxy; fwd=bypass; detail=stale"
	for name, tt := range map[string]struct {
		query  string
		source string
		later  time.Duration // than a write that the answer lacks
		want   int           // mistakes
	}{
		"the newest":             {query: ask.AnyVersion, source: hit, later: Bound},
		"with all writes":        {source: hit, later: Bound + 2*oracle.Tolerance, want: 1},
		"a first page":           {query: "limit=7", source: hit, later: Bound + 2*oracle.Tolerance, want: 1},
		"a next page":            {query: ask.NextPage(7, "a token"), source: hit, later: time.Hour},
		"within the tolerance":   {query: ask.AnyVersion, source: hit, later: Bound + oracle.Tolerance/2},
		"too old":                {query: ask.AnyVersion, source: hit, later: Bound + 2*oracle.Tolerance, want: 1},
		"too old, and demanded":  {query: ask.NotOlderThan(7), source: hit, later: time.Hour, want: 1},
		"too old, and forwarded": {query: ask.AnyVersion, source: forwarded, later: time.Hour},
		"exactly that":           {query: ask.Exactly(7), source: hit, later: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New()
				l.Ledger.Confirmed(Pods, 7)
				l.Ledger.Confirmed(Pods, 8)
				time.Sleep(tt.later)
				c := &ask.Client{Base: "https://listproxy.test", HTTP: &http.Client{Transport: lists{7, tt.source}}}
				q := Question{Collection: Collection{Pods, AsJSON}, Query: tt.query}
				if _, a, err := l.Put(t.Context(), c, q, 0); err != nil || a.FromMemory() != (tt.source == hit) {
					t.Errorf("%s, %v", a, err)
				}
				if got := l.Tally.Counts(Window{}).Mistakes; len(got) != tt.want {
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

// TestOracle: what was so in a lost past is right only where the API server has lost it.
func TestOracle(t *testing.T) {
	const old, fresh = "9", "12"
	list := func(revision uint64, object string) []byte {
		return fmt.Appendf(nil, `{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":%q}}]}`, revision, object)
	}
	present := list(20, fresh)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(present) }))
	defer upstream.Close()
	past, err := ask.ReadList(list(10, old))
	expect.NoError(t, err)
	for name, tt := range map[string]struct {
		past                      Past
		query                     string
		after                     time.Duration // etcd was replaced
		body                      []byte
		compared, recorded, wrong int
	}{
		"what it says now":                         {past: Past{}, query: ask.AnyVersion, body: present, compared: 1},
		"before a compaction, and it knows better": {past: Past{to: 30}, query: ask.AnyVersion, body: list(20, old), wrong: 1},
		"before etcd was replaced": {
			past: Past{to: 30, replaced: true}, query: ask.AnyVersion, after: Bound, body: list(20, old), compared: 1,
			recorded: 1,
		},
		"the same, given as the newest for too long": {
			past: Past{to: 30, replaced: true}, query: ask.AnyVersion, after: Bound + 2*oracle.Tolerance, body: list(20, old),
			compared: 1, recorded: 1, wrong: 1,
		},
		"the same, at a revision": {
			past: Past{to: 30, replaced: true}, query: ask.Exactly(20), after: time.Hour, body: list(20, old), compared: 1,
			recorded: 1,
		},
		"the same, given as one with all writes": {
			past: Past{to: 30, replaced: true}, after: time.Second, body: list(20, old), compared: 1, recorded: 1, wrong: 1,
		},
		"with all writes, before it was replaced": {
			past: Past{to: 30, replaced: true}, after: -time.Second, body: list(20, old), compared: 1, recorded: 1,
		},
		"of a revision that the lost past never had":     {past: Past{to: 19, replaced: true}, query: ask.AnyVersion, body: list(20, old), wrong: 1},
		"before etcd was replaced, and not so even then": {past: Past{to: 30, replaced: true}, query: ask.AnyVersion, body: list(20, "8"), wrong: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(ask.At(upstream.URL))
			tt.past.states = map[kinds.Kind][]state{Pods: {{10, past.Objects}}}
			l.Oracle.Lose(&tt.past)
			if tt.past.replaced {
				l.Oracle.Forget()
			}
			given, err := ask.ReadList(tt.body)
			expect.NoError(t, err)
			header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}} // as net/http sends it
			l.Oracle.verify(t.Context(), Witness{
				Question: Question{Collection: Collection{Pods, AsJSON}, Query: tt.query},
				Answer:   ask.Answer{Code: http.StatusOK, Header: header, Body: tt.body}, List: given, Asked: time.Now().Add(tt.after),
			})
			got := l.Tally.Counts(Window{})
			if got.Compared != tt.compared || got.Recorded != tt.recorded || len(got.Mistakes) != tt.wrong {
				t.Errorf("%+v; want %d compared, %d recorded and %d wrong", got, tt.compared, tt.recorded, tt.wrong)
			}
		})
	}
}
