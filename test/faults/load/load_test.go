package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/oracle"
)

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
