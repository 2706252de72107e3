package differential

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestAge: an Any from memory has what had been written the bound before it was asked for; one that
// was forwarded need not. The newest state has all that had been written, and a NotOlderThan what it names.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		ledger := new(cluster.Ledger)
		c := &comparator{cluster: &cluster.Cluster{Ledger: ledger}}
		ledger.Confirmed(r.GroupResource(), 7)
		hit := ask.Answer{Header: http.Header{"Cache-Status": {"listproxy; hit; detail=any"}}}
		stale := ask.Answer{Header: http.Header{"Cache-Status": {"listproxy; fwd=stale; detail=stale"}}}
		written := time.Now()
		time.Sleep(time.Minute) // an answer may take long
		for name, test := range map[string]struct {
			semantics semantics
			answer    ask.Answer
			revision  uint64
			asked     time.Duration
			want      kind // "": there is no difference
		}{
			"in time":                      {semantics: anyRevision, answer: hit, revision: 7, asked: 11 * time.Second},
			"asked before":                 {semantics: anyRevision, answer: hit, revision: 6, asked: 9 * time.Second},
			"asked too late":               {semantics: anyRevision, answer: hit, revision: 6, asked: 12 * time.Second, want: frozen},
			"forwarded":                    {semantics: anyRevision, answer: stale, revision: 6, asked: 11 * time.Second},
			"the newest":                   {semantics: mostRecent, answer: hit, revision: 7, asked: time.Second},
			"the newest, asked before":     {semantics: mostRecent, answer: hit, revision: 6, asked: -time.Second},
			"the newest, without a write":  {semantics: mostRecent, answer: hit, revision: 6, asked: time.Second, want: tooOld},
			"the newest, forwarded":        {semantics: mostRecent, answer: stale, revision: 6, asked: time.Second, want: tooOld},
			"not older than":               {semantics: notOlderThan, answer: hit, revision: 5, asked: time.Second},
			"older than it was asked for":  {semantics: notOlderThan, answer: hit, revision: 4, asked: time.Second, want: tooOld},
			"exactly, however old that is": {semantics: exact, answer: hit, revision: 4, asked: time.Hour},
		} {
			q := question{Resource: r, Semantics: test.semantics, Revision: 5}
			if d := c.age(q, test.answer, test.revision, written.Add(test.asked)); d.kind() != test.want {
				t.Errorf("%s: %v, want %q", name, d, test.want)
			}
		}
	})
}
