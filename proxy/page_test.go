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
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// listOf is an answer with n objects of size bytes each.
func listOf(n, size int) *answer {
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
	return &answer{asked: &policy.Request{}, semantics: policy.Any, snapshot: snapshotOf("PodList", objects...)}
}

// snapshotOf has these objects.
func snapshotOf(kind string, objects ...*index.Object) snapshot.Snapshot {
	state := index.NewTree(false)
	for _, o := range objects {
		state.Set(o)
	}
	return snapshot.Snapshot{Revision: 7, Envelope: samples.Envelope(kind, "v1"), Tree: state}
}

func write(list *policy.Request, a *answer, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header = header
	w := httptest.NewRecorder()
	writeAnswer(w, r, list, a)
	return w
}

// pageHandler writes pages. Its compressor keeps nothing: objects of tests have no numbers.
var pageHandler = func() *Handler {
	c, err := gzip.NewCompressor(0)
	if err != nil {
		panic(err)
	}
	return &Handler{Compressor: c}
}()

func writeAnswer(w http.ResponseWriter, r *http.Request, list *policy.Request, a *answer) {
	b := newBody(a, kubehttp.AuditID(r))
	defer b.release()
	pageHandler.writeList(w, list, b)
}

// TestListHeaders: where two API servers wrote a header, both values are there.
func TestListHeaders(t *testing.T) {
	const ours, kind = "no-cache, private", "application/json"
	for name, tt := range map[string]struct {
		learned, want http.Header
	}{
		"another header": {
			learned: http.Header{"Warning": {"old"}},
			want:    http.Header{"Audit-Id": {"x"}, "Cache-Control": {ours}, "Content-Type": {kind}, "Warning": {"old"}},
		},
		"a header that is always sent": {
			learned: http.Header{"Cache-Control": {ours, "no-store"}},
			want:    http.Header{"Audit-Id": {"x"}, "Cache-Control": {ours, "no-store"}, "Content-Type": {kind}},
		},
		"none": {want: http.Header{"Audit-Id": {"x"}, "Cache-Control": {ours}, "Content-Type": {kind}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := listOf(1, 0)
			a.snapshot.Envelope.Headers = tt.learned
			expect.Same(t, tt.want, write(&policy.Request{}, a, http.Header{"Audit-Id": {"x"}}).Header())
		})
	}
	if got := write(&policy.Request{}, listOf(1, 0), http.Header{}).Header().Get("Audit-Id"); len(got) != 36 {
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
			return testing.AllocsPerRun(20, func() { writeAnswer(discard{http.Header{}}, r, &policy.Request{Gzip: tt.gzip}, a) })
		}
		if small, large := allocations(10), allocations(2000); large > small+tt.spare {
			t.Errorf("%+v: %v allocations for 10 objects, %v for 2000", tt, small, large)
		}
	}
}

// indented is an answer that is to be indented.
func indented(a *answer) *answer {
	a.query.Indented = true
	return a
}

// TestIndentedGzipThreshold: it is the indented list that is larger than 128 KiB or not.
func TestIndentedGzipThreshold(t *testing.T) {
	empty := newBody(indented(listOf(1, 0)), "")
	defer empty.release()
	unpadded := len(listOf(1, 0).snapshot.Page(index.Query{}, nil).Objects[0].Bytes)
	for extra, want := range map[int]string{0: "", 1: "gzip"} {
		a := indented(listOf(1, unpadded+gzipAbove-empty.size+extra))
		w := write(&policy.Request{Gzip: true}, a, http.Header{})
		expect.Same(t, want, w.Header().Get("Content-Encoding"))
		expect.Same(t, gzipAbove+extra, len(plain(t, w)))
	}
}

// TestUnfitToBeIndented: an object that json.Indent refuses, or that would be many times as long, is not indented.
func TestUnfitToBeIndented(t *testing.T) {
	nested := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	pad := `"` + strings.Repeat("x", 16<<20) + `"` // so that the depth alone decides
	const list = 2                                 // levels around each object
	for name, tt := range map[string]struct {
		object    string
		wantUnfit bool
	}{
		"flat":       {object: `{"a":1}`},
		"deep":       {object: nested(wire.MaxIndentDepth-list, pad)},
		"too deep":   {object: nested(wire.MaxIndentDepth-list+1, pad), wantUnfit: true},
		"a schema":   {object: nested(50, `{"description":"what it is","type":"string"}`)},
		"grows":      {object: nested(20, strings.Repeat("1,", 100_000)+"1"), wantUnfit: true},
		"grows less": {object: nested(10, strings.Repeat("1,", 100_000)+"1")},
		"is short":   {object: nested(20, strings.Repeat("1,", 1000)+"1")},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answer{asked: &policy.Request{}, snapshot: snapshotOf("ThingList", &index.Object{Key: "a", Revision: 1, Bytes: []byte(tt.object)})}
			plain, b := newBody(a, ""), newBody(indented(a), "")
			defer plain.release()
			defer b.release()
			if b.unindentable != tt.wantUnfit {
				t.Errorf("unfit: %t, %d bytes of %d", b.unindentable, b.size, plain.size)
			}
			if (b.size == plain.size) != tt.wantUnfit {
				t.Errorf("counted as %d bytes of %d", b.size, plain.size)
			}
		})
	}
}
