package differential

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// TestShare: what listproxy was behind for is neither its merit nor its fault; all else that it did
// not answer is.
func TestShare(t *testing.T) {
	for name, test := range map[string]struct {
		said []string
		want float64
	}{
		"none":         {nil, 0},
		"hits":         {[]string{"hit; detail=any", "hit; detail=exact"}, 1},
		"behind":       {[]string{"hit; detail=any", "fwd=miss; detail=ahead", "fwd=stale; detail=stale"}, 1},
		"only behind":  {[]string{"fwd=miss; detail=ahead"}, 0},
		"other misses": {[]string{"hit; detail=any", "fwd=miss; detail=warming", "fwd=miss; detail=history", "fwd=bypass; detail=memory"}, 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReport()
			for _, said := range test.said {
				r.compared(Question{Answerable: true}, Answer{Status: http.StatusOK, Header: http.Header{"Cache-Status": {"listproxy; " + said}}})
			}
			if got := r.Share(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestWaited: only where one side alone says that the revision is still to come, both are asked
// again.
func TestWaited(t *testing.T) {
	late := Answer{Status: http.StatusGatewayTimeout, Body: []byte(`{"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]},"code":504}`)}
	list, gone := Answer{Status: http.StatusOK}, Answer{Status: http.StatusGone}
	other := Answer{Status: http.StatusGatewayTimeout, Body: []byte(`{"code":504}`)}
	for name, test := range map[string]struct {
		answers pair
		want    bool
	}{
		"listproxy's":     {pair{proxy: late, direct: list}, true},
		"the other":       {pair{proxy: list, direct: late}, true},
		"both":            {pair{proxy: late, direct: late}, false},
		"none":            {pair{proxy: list, direct: gone}, false},
		"another timeout": {pair{proxy: other, direct: list}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.answers.waited(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestAge: an Any from memory has what had been written the bound before it was asked for; one that
// was forwarded need not.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		ledger := new(cluster.Ledger)
		c := &Comparator{cluster: &cluster.Cluster{Ledger: ledger}, options: Options{Bound: 10 * time.Second}}
		ledger.Confirmed(r.GroupResource(), 7)
		q := Question{Resource: r, Semantics: Any}
		hit := Answer{Header: http.Header{"Cache-Status": {"listproxy; hit; detail=any"}}}
		stale := Answer{Header: http.Header{"Cache-Status": {"listproxy; fwd=stale; detail=stale"}}}
		written := time.Now()
		time.Sleep(time.Minute) // an answer may take long
		for name, test := range map[string]struct {
			answer   Answer
			revision uint64
			asked    time.Duration
			frozen   bool
		}{
			"in time":        {hit, 7, 11 * time.Second, false},
			"asked before":   {hit, 6, 9 * time.Second, false},
			"asked too late": {hit, 6, 11 * time.Second, true},
			"forwarded":      {stale, 6, 11 * time.Second, false},
		} {
			if d := c.age(q, test.answer, test.revision, written.Add(test.asked)); (d != nil) != test.frozen {
				t.Errorf("%s: %v, want a difference: %v", name, d, test.frozen)
			}
		}
	})
}

// TestPickBegins: nothing is asked for that was written before the beginning, but it must still be
// seen.
func TestPickBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ledger, rng := schema.GroupResource{Resource: "pods"}, new(cluster.Ledger), rand.New(rand.NewPCG(1, 1))
		ledger.Confirmed(r, 7)
		time.Sleep(time.Second)
		ledger.Begin()
		if revision, ok := ledger.Pick(rng, r, time.Minute); ok {
			t.Errorf("%d is from before the beginning", revision)
		}
		if got := ledger.Before(r, time.Now()); got != 7 {
			t.Errorf("%d must be seen, want 7", got)
		}
		ledger.Confirmed(r, 8)
		if revision, ok := ledger.Pick(rng, r, time.Minute); !ok || revision != 8 {
			t.Errorf("%d, %v, want 8", revision, ok)
		}
	})
}
