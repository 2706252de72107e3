package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// newListAnswer returns the answer to a list of n objects, each of at least size bytes.
func newListAnswer(n, size int) *decision {
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
	evaluation := policy.Evaluation{Decision: policy.Decision{Semantics: policy.Any}}
	return &decision{asked: &policy.Request{}, Evaluation: evaluation, state: newSnapshot("PodList", objects...)}
}

// newSnapshot returns a snapshot with these objects.
func newSnapshot(kind string, objects ...*index.Object) snapshot.Snapshot {
	state := index.NewTree(false)
	for _, o := range objects {
		state.Set(o)
	}
	return snapshot.Snapshot{ListState: source.ListState{Revision: 7, Envelope: samples.Envelope(kind, "v1"), Tree: state}}
}

// record returns the answer as it is written to a request with this header.
func record(list *policy.Request, a *decision, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header = header
	w := httptest.NewRecorder()
	writeAnswer(w, r, list, a)
	return w
}

// listHandler is a Handler to write lists. Its compressor keeps no segments.
var listHandler = func() *Handler {
	c, err := gzip.NewCompressor(0)
	if err != nil {
		panic(err)
	}
	return &Handler{Compressor: c}
}()

// writeAnswer writes the answer a to r.
func writeAnswer(w http.ResponseWriter, r *http.Request, list *policy.Request, a *decision) {
	b, err := newBody(a, kubehttp.AuditID(r))
	if err != nil {
		panic(err)
	}
	defer b.release()
	listHandler.writeList(w, list.Gzip, b)
}

// TestListHeaders: a list has the headers that kube-apiserver always sends, and the headers learned from the upstream's
// lists. A learned header replaces another of the same name.
func TestListHeaders(t *testing.T) {
	const cacheControl, contentType = "no-cache, private", "application/json"
	for name, tt := range map[string]struct {
		learned, want http.Header
	}{
		"another header": {
			learned: http.Header{"Warning": {"old"}},
			want:    http.Header{"Audit-Id": {"x"}, "Cache-Control": {cacheControl}, "Content-Type": {contentType}, "Warning": {"old"}},
		},
		"a header that is always sent": {
			learned: http.Header{"Cache-Control": {cacheControl, "no-store"}},
			want:    http.Header{"Audit-Id": {"x"}, "Cache-Control": {cacheControl, "no-store"}, "Content-Type": {contentType}},
		},
		"none": {want: http.Header{"Audit-Id": {"x"}, "Cache-Control": {cacheControl}, "Content-Type": {contentType}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newListAnswer(1, 0)
			a.state.Envelope.Headers = tt.learned
			expect.Same(t, tt.want, record(&policy.Request{}, a, http.Header{"Audit-Id": {"x"}}).Header())
		})
	}
	if got := record(&policy.Request{}, newListAnswer(1, 0), http.Header{}).Header().Get("Audit-Id"); len(got) != 36 {
		t.Errorf("a request without Audit-Id: got the Audit-Id %q in the answer, want a UUID", got)
	}
}

// discard is a ResponseWriter that allocates nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// TestAPageDoesNotAllocateByItsSize: the number of allocations for a list does not depend on the number of its objects.
func TestAPageDoesNotAllocateByItsSize(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header.Set("Audit-Id", "x")
	for _, tt := range []struct {
		gzip, indented bool
		tolerance      float64 // since pools lose their content now and then, mostly with the race detector
	}{
		{gzip: false, indented: false, tolerance: 20},
		{gzip: false, indented: true, tolerance: 500},
		{gzip: true, indented: true, tolerance: 500},
	} {
		allocations := func(objects int) float64 {
			a := newListAnswer(objects, 100)
			a.query.Indented = tt.indented
			return testing.AllocsPerRun(20, func() { writeAnswer(discard{http.Header{}}, r, &policy.Request{Gzip: tt.gzip}, a) })
		}
		if small, large := allocations(10), allocations(2000); large > small+tt.tolerance {
			t.Errorf("%+v: got %v allocations for 10 objects and %v for 2000, want as many", tt, small, large)
		}
	}
}

// indent makes an answer indented.
func indent(a *decision) *decision {
	a.query.Indented = true
	return a
}

// TestIndentedGzipThreshold: an indented list is compressed if its indented size is above gzipAbove.
func TestIndentedGzipThreshold(t *testing.T) {
	empty, err := newBody(indent(newListAnswer(1, 0)), "")
	expect.NoError(t, err)
	defer empty.release()
	unpadded := len(newListAnswer(1, 0).state.Page(index.Query{}, nil).Objects[0].Bytes)
	for extra, want := range map[int]string{0: "", 1: "gzip"} {
		a := indent(newListAnswer(1, unpadded+gzipAbove-empty.size+extra))
		w := record(&policy.Request{Gzip: true}, a, http.Header{})
		expect.Same(t, want, w.Header().Get("Content-Encoding"))
		expect.Same(t, gzipAbove+extra, len(plain(t, w)))
	}
}

// TestUnindentable: a list is unindentable if json.Indent refuses it, or if it would become many times as long.
func TestUnindentable(t *testing.T) {
	nested := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	long := `"` + strings.Repeat("x", 16<<20) + `"` // does not become many times as long
	const listDepth = 2                             // levels around each object
	for name, tt := range map[string]struct {
		object           string
		wantUnindentable bool
	}{
		"flat":                {object: `{"a":1}`},
		"deepest":             {object: nested(wire.MaxIndentDepth-listDepth, long)},
		"too deep":            {object: nested(wire.MaxIndentDepth-listDepth+1, long), wantUnindentable: true},
		"schema of a CRD":     {object: nested(50, `{"description":"what it is","type":"string"}`)},
		"21 times as long":    {object: nested(20, strings.Repeat("1,", 100_000)+"1"), wantUnindentable: true},
		"11 times as long":    {object: nested(10, strings.Repeat("1,", 100_000)+"1")},
		"21 times, but short": {object: nested(20, strings.Repeat("1,", 1000)+"1")},
	} {
		t.Run(name, func(t *testing.T) {
			a := &decision{asked: &policy.Request{}, state: newSnapshot("ThingList", &index.Object{Key: "a", Revision: 1, Bytes: []byte(tt.object)})}
			plain, err := newBody(a, "")
			expect.NoError(t, err)
			defer plain.release()
			indented, err := newBody(indent(a), "")
			if unindentable := err != nil; unindentable != tt.wantUnindentable {
				t.Fatalf("got unindentable %t, want %t: %v", unindentable, tt.wantUnindentable, err)
			}
			if err != nil {
				return
			}
			defer indented.release()
			if indented.size <= plain.size {
				t.Errorf("got the size %d, want more than the %d without indentation", indented.size, plain.size)
			}
		})
	}
}
