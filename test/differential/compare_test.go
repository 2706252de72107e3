package differential

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

func TestHeaderDifference(t *testing.T) {
	base := func() http.Header {
		return http.Header{"Content-Type": {"application/json"}, "Audit-Id": {"1"}, "Date": {"now"}, "Warning": {"299"}}
	}
	for name, test := range map[string]struct {
		change func(http.Header)
		sent   string
		differ bool
	}{
		"nothing":           {func(http.Header) {}, "", false},
		"date":              {func(h http.Header) { h.Set("Date", "then") }, "", false},
		"flow control":      {func(h http.Header) { h.Set("X-Kubernetes-Pf-Flowschema-Uid", "x") }, "", false},
		"audit ID":          {func(h http.Header) { h.Set("Audit-Id", "2") }, "", false},
		"audit ID sent":     {func(h http.Header) { h.Set("Audit-Id", "2") }, "1", true},
		"audit ID missing":  {func(h http.Header) { h.Del("Audit-Id") }, "", true},
		"warning missing":   {func(h http.Header) { h.Del("Warning") }, "", true},
		"content encoding":  {func(h http.Header) { h.Set("Content-Encoding", "gzip") }, "", true},
		"a header too many": {func(h http.Header) { h.Set("X-Other", "1") }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := base()
			test.change(got)
			q := Question{Query: url.Values{}, Header: http.Header{}}
			if test.sent != "" {
				q.Header.Set("Audit-Id", test.sent)
			}
			if d := HeaderDifference(q, got, base()); (d != nil) != test.differ {
				t.Errorf("got %v, want a difference: %v", d, test.differ)
			}
		})
	}
}

// TestShare: what listproxy was behind for is neither its merit nor its fault; all else that it did
// not answer is.
func TestShare(t *testing.T) {
	for name, test := range map[string]struct {
		said []string
		want float64
	}{
		"none":         {nil, 0},
		"hits":         {[]string{"hit; detail=any", "hit; detail=exact"}, 1},
		"behind":       {[]string{"hit; detail=any", "fwd=miss; detail=not-proven", "fwd=stale; detail=stale"}, 1},
		"only behind":  {[]string{"fwd=miss; detail=not-proven"}, 0},
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
// was forwarded need not. The newest state has all that had been written, and a NotOlderThan what it names.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
		ledger := new(cluster.Ledger)
		c := &Comparator{cluster: &cluster.Cluster{Ledger: ledger}, options: Options{Bound: 10 * time.Second}}
		ledger.Confirmed(r.GroupResource(), 7)
		hit := Answer{Header: http.Header{"Cache-Status": {"listproxy; hit; detail=any"}}}
		stale := Answer{Header: http.Header{"Cache-Status": {"listproxy; fwd=stale; detail=stale"}}}
		written := time.Now()
		time.Sleep(time.Minute) // an answer may take long
		for name, test := range map[string]struct {
			semantics Semantics
			answer    Answer
			revision  uint64
			asked     time.Duration
			want      Kind // "": there is no difference
		}{
			"in time":                      {Any, hit, 7, 11 * time.Second, ""},
			"asked before":                 {Any, hit, 6, 9 * time.Second, ""},
			"asked too late":               {Any, hit, 6, 11 * time.Second, Frozen},
			"forwarded":                    {Any, stale, 6, 11 * time.Second, ""},
			"the newest":                   {MostRecent, hit, 7, time.Second, ""},
			"the newest, asked before":     {MostRecent, hit, 6, -time.Second, ""},
			"the newest, without a write":  {MostRecent, hit, 6, time.Second, TooOld},
			"the newest, forwarded":        {MostRecent, stale, 6, time.Second, TooOld},
			"not older than":               {NotOlderThan, hit, 5, time.Second, ""},
			"older than it was asked for":  {NotOlderThan, hit, 4, time.Second, TooOld},
			"exactly, however old that is": {Exact, hit, 4, time.Hour, ""},
		} {
			q, got := Question{Resource: r, Semantics: test.semantics, Revision: 5}, Kind("")
			if d := c.age(q, test.answer, test.revision, written.Add(test.asked)); d != nil {
				got = d.Kind
			}
			if got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
	})
}
