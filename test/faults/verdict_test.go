package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/harness/ask"
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
	direct, err := ask.New(&rest.Config{Host: upstream.URL}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	was, err := asJSON.read(list(10, old))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		past                      past
		body                      []byte
		compared, recorded, wrong int
	}{
		"what it says now":                               {past{}, present, 1, 0, 0},
		"before a compaction, and it knows better":       {past{to: 30}, list(20, old), 0, 0, 1},
		"before etcd was replaced":                       {past{to: 30, replaced: true}, list(20, old), 1, 1, 0},
		"of a revision that the lost past never had":     {past{to: 19, replaced: true}, list(20, old), 0, 0, 1},
		"before etcd was replaced, and not so even then": {past{to: 30, replaced: true}, list(20, "8"), 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := &tally{}
			o := newVerifier(direct, got)
			tt.past.states = map[kind][]state{pods: {{10, was.Objects}}}
			o.lose(&tt.past)
			l, err := asJSON.read(tt.body)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}} // as net/http sends it
			o.verify(t.Context(), witness{
				question: question{collection: collection{pods, asJSON}, query: ask.AnyVersion},
				answer:   ask.Answer{Code: http.StatusOK, Header: header, Body: tt.body}, list: l, asked: time.Now(),
			})
			if len(got.compared) != tt.compared || got.recorded != tt.recorded || len(got.mistakes) != tt.wrong {
				t.Errorf("compared %d, recorded %d, mistakes %v; want %d, %d and %d", len(got.compared), got.recorded, got.mistakes,
					tt.compared, tt.recorded, tt.wrong)
			}
			if newest := !o.lastNewestPast().IsZero(); newest != (tt.recorded > 0) {
				t.Errorf("it is noted as a newest state of a lost past: %t", newest)
			}
		})
	}
}
