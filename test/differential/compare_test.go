package differential

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
)

// TestDifferAsAges: two Tables may differ in ages, by as long as it took to ask for both, and in
// nothing else.
func TestDifferAsAges(t *testing.T) {
	table := func(cells, more string) string {
		return `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"rows":[{"cells":[` + cells + `],"object":{` + more + `}}]}`
	}
	page := func(start string) string {
		text := body.Token{Version: "meta.k8s.io/v1", Revision: 7, Start: start}.Encode()
		return strings.Replace(table(`"a",1,"5s"`, ""), `"7"`, `"7","continue":"`+text+`"`, 1)
	}
	for name, test := range map[string]struct {
		proxy, direct string
		took          time.Duration
		want          bool
	}{
		"the same":                   {table(`"a","5s"`, ""), table(`"a","5s"`, ""), 0, true},
		"a second, at once":          {table(`"a","5s"`, ""), table(`"a","6s"`, ""), time.Millisecond, true},
		"longer than it took":        {table(`"a","5s"`, ""), table(`"a","7s"`, ""), time.Second, false},
		"as long as it took":         {table(`"a","58s"`, ""), table(`"a","2m4s"`, ""), 66 * time.Second, true},
		"a minute, of no seconds":    {table(`"a","9m59s"`, ""), table(`"a","10m"`, ""), 2 * time.Second, true},
		"minutes longer":             {table(`"a","10m"`, ""), table(`"a","12m"`, ""), time.Minute, false},
		"hours longer":               {table(`"a","2d3h"`, ""), table(`"a","2d5h"`, ""), time.Minute, false},
		"one of two":                 {table(`"a","5s","5s"`, ""), table(`"a","6s","8s"`, ""), time.Second, false},
		"another cell":               {table(`"a","5s"`, ""), table(`"b","6s"`, ""), time.Minute, false},
		"one age more":               {table(`"a","5s"`, ""), table(`"5s","5s"`, ""), time.Minute, false},
		"not an age":                 {table(`"a","5 s"`, ""), table(`"a","6 s"`, ""), time.Minute, false},
		"in the object":              {table(`"a","5s"`, `"x":"5s"`), table(`"a","5s"`, `"x":"6s"`), time.Minute, false},
		"the token's form, too":      {page("/a/b"), strings.Replace(page("a/b"), "5s", "6s", 1), time.Second, true},
		"another token":              {page("/a/b"), strings.Replace(page("a/c"), "5s", "6s", 1), time.Second, false},
		"a list that looks like one": {`{"kind":"List","cells":["5s"]}`, `{"kind":"List","cells":["6s"]}`, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Comparator{report: NewReport()}
			answer := func(text string) Answer { return Answer{Status: http.StatusOK, Body: []byte(text)} }
			got := c.differAsAges(t.Context(), Question{Clocked: true}, pair{proxy: answer(test.proxy), direct: answer(test.direct), took: test.took})
			if got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestCompareTables: of two Tables that are never of the same second only what cannot be is a
// difference.
func TestCompareTables(t *testing.T) {
	for name, test := range map[string]struct {
		clocked bool
		step    int64 // seconds from one answer to the next
		found   map[Kind]int
	}{
		"a second older each time": {true, 1, map[Kind]int{}},
		"much older each time":     {true, 600, map[Kind]int{Body: 1}},
		"no ages to expect":        {false, 1, map[Kind]int{Body: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var old atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Status", "listproxy; fwd=bypass; detail=representation")
				_, _ = fmt.Fprintf(w, `{"kind":"Table","rows":[{"cells":["a","%s"]}]}`, duration.HumanDuration(time.Duration(old.Add(test.step))*time.Second))
			}))
			defer server.Close()
			both := NewSide("both", server.URL, nil)
			c := &Comparator{direct: both, doors: []*Side{both}, report: NewReport()}
			_, ok := c.compare(t.Context(), Question{Path: "/", HTTP1: true, Semantics: Exact, Clocked: test.clocked})
			if diff := cmp.Diff(test.found, c.report.Kinds()); diff != "" || ok != (len(test.found) == 0) {
				t.Errorf("%v; differences (-want +got):\n%s", ok, diff)
			}
		})
	}
}

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
