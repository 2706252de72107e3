package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// listOf is an answer with n objects of size bytes each.
func listOf(n, size int) answer {
	var objects []*index.Object
	for i := range n {
		name := fmt.Sprintf("p%05d", i)
		text := `{"metadata":{"name":"` + name + `"},"x":"`
		objects = append(objects, &index.Object{
			Key:      "ns/" + name,
			Revision: 1,
			Bytes:    []byte(text + strings.Repeat("x", max(0, size-len(text)-2)) + `"}`),
		})
	}
	return answer{semantics: policy.Any, snapshot: snapshot.Fixed(7, "PodList", "v1", objects)}
}

func write(t *testing.T, list policy.Request, a answer, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header = header
	w := httptest.NewRecorder()
	writeAnswer(w, r, list, a)
	return w.Result()
}

// pageHandler writes pages. Its compressor keeps nothing: objects of tests have no numbers.
var pageHandler = func() *Handler {
	c, err := gzip.NewCompressor(0)
	if err != nil {
		panic(err)
	}
	return &Handler{Compressor: c}
}()

func writeAnswer(w http.ResponseWriter, r *http.Request, list policy.Request, a answer) {
	b := newBody(a)
	defer b.release()
	b.auditID = kubehttp.AuditID(r)
	pageHandler.writePage(w, list, b)
}

func TestListHeaders(t *testing.T) {
	resp := write(t, policy.Request{}, listOf(1, 0), http.Header{"Audit-Id": {"mine"}})
	for name, want := range map[string]string{
		"Audit-Id":         "mine",
		"Cache-Control":    "no-cache, private",
		"Content-Type":     "application/json",
		"Content-Encoding": "",
		"Vary":             "",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := write(t, policy.Request{}, listOf(1, 0), http.Header{}).Header.Get("Audit-Id"); len(got) != 36 {
		t.Errorf("an Audit-Id of our own: %q", got)
	}
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// TestAPageDoesNotAllocateByItsSize holds the law by counting.
func TestAPageDoesNotAllocateByItsSize(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header.Set("Audit-Id", "x")
	for _, tt := range []struct {
		gzip, indented bool
		spare          float64 // the pools lose what they hold now and then, mostly with the race detector
	}{{false, false, 20}, {false, true, 500}, {true, true, 500}} {
		allocations := func(objects int) float64 {
			a := listOf(objects, 100)
			a.query.Indented = tt.indented
			return testing.AllocsPerRun(20, func() { writeAnswer(discard{http.Header{}}, r, policy.Request{Gzip: tt.gzip}, a) })
		}
		if small, large := allocations(10), allocations(5000); large > small+tt.spare {
			t.Errorf("%+v: %v allocations for 10 objects, %v for 5000", tt, small, large)
		}
	}
}

// TestAggregatedHeaders: where two API servers wrote a header, both values are there.
func TestAggregatedHeaders(t *testing.T) {
	for _, tt := range []struct {
		name         string
		cacheControl []string
		auditIDs     int
		want         http.Header
	}{
		{"one server", []string{"no-cache, private"}, 1, http.Header{"Audit-Id": {"x"}, "Cache-Control": {"no-cache, private"}}},
		{"two", []string{"no-cache, private", "no-store"}, 2, http.Header{"Audit-Id": {"x", "x"}, "Cache-Control": {"no-cache, private", "no-store"}}},
		{"not known", nil, 0, http.Header{"Audit-Id": {"x"}, "Cache-Control": {"no-cache, private"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := listOf(1, 0)
			frame := a.snapshot.Frame
			frame.Headers, frame.AuditIDs = http.Header{"Strict-Transport-Security": {"max-age=1"}}, tt.auditIDs
			if tt.cacheControl != nil {
				frame.Headers["Cache-Control"] = tt.cacheControl
			}
			resp := write(t, policy.Request{}, a, http.Header{"Audit-Id": {"x"}})
			defer func() { _ = resp.Body.Close() }()
			if got := resp.Header["Strict-Transport-Security"]; !slices.Equal(got, []string{"max-age=1"}) {
				t.Errorf("Strict-Transport-Security: %q", got)
			}
			got := http.Header{"Audit-Id": resp.Header["Audit-Id"], "Cache-Control": resp.Header["Cache-Control"]}
			expect.Same(t, tt.want, got)
		})
	}
}
