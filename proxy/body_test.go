package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

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

// shortest is the minSize of newListDecision for objects that are as short as possible.
const shortest = 0

// newListDecision returns the decision to answer a list of count objects, each of at least minSize bytes.
func newListDecision(count, minSize int) *decision {
	var objects []*index.Object
	for i := range count {
		name := fmt.Sprintf("p%05d", i)
		text := `{"metadata":{"name":"` + name + `"},"x":"`
		objects = append(objects, &index.Object{
			Key:      "ns/" + name,
			Revision: 1,
			Bytes:    []byte(text + strings.Repeat("x", max(0, minSize-len(text)-2)) + `"}`),
		})
	}
	evaluation := policy.Evaluation{Decision: policy.Decision{Semantics: policy.Any}}
	return &decision{asked: &policy.Request{}, Evaluation: evaluation, state: newSnapshot("PodList", objects...)}
}

// newSnapshot returns a snapshot with these objects.
func newSnapshot(kind string, objects ...*index.Object) snapshot.Snapshot {
	const isIndexed = false
	state := index.NewTree(isIndexed)
	for _, o := range objects {
		state.Set(o)
	}
	return snapshot.Snapshot{ListState: source.ListState{Revision: 7, Envelope: samples.Envelope(kind, "v1"), Tree: state}}
}

// recordList returns the answer to a request with this header, which is the list that d has found.
func recordList(d *decision, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header = header
	w := httptest.NewRecorder()
	writeList(w, r, d)
	return w
}

// listHandler is a Handler that can only write lists. Its compressor keeps nothing for other lists.
var listHandler = func() *Handler {
	c, err := gzip.NewCompressor(0)
	if err != nil {
		panic(err)
	}
	return &Handler{Compressor: c}
}()

// writeList writes the list that d has found as the answer to r.
func writeList(w http.ResponseWriter, r *http.Request, d *decision) {
	b, err := newBody(d, kubehttp.AuditID(r))
	if err != nil {
		panic(err)
	}
	defer b.release()
	listHandler.writeList(w, d.asked.Gzip, b)
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
			d := newListDecision(1, shortest)
			d.state.Envelope.Headers = tt.learned
			expect.Same(t, tt.want, recordList(d, http.Header{"Audit-Id": {"x"}}).Header())
		})
	}
	withoutID := recordList(newListDecision(1, shortest), http.Header{})
	if _, err := uuid.Parse(withoutID.Header().Get("Audit-Id")); err != nil {
		t.Errorf("a request without Audit-Id: the answer's Audit-Id is not a UUID: %v", err)
	}
}

// discard is a ResponseWriter that drops the body and allocates nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// TestAPageDoesNotAllocateByItsSize: a list of 2000 objects needs no more allocations than a list of 10 objects.
func TestAPageDoesNotAllocateByItsSize(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header.Set("Audit-Id", "x")
	for _, tt := range []struct {
		gzip, indented bool
		tolerance      float64 // in allocations: a sync.Pool loses its content now and then, mostly with the race detector
	}{
		{gzip: false, indented: false, tolerance: 20},
		{gzip: false, indented: true, tolerance: 500},
		{gzip: true, indented: true, tolerance: 500},
	} {
		allocations := func(objects int) float64 {
			d := newListDecision(objects, 100)
			d.asked.Gzip = tt.gzip
			d.query.Indented = tt.indented
			return testing.AllocsPerRun(20, func() { writeList(discard{http.Header{}}, r, d) })
		}
		if small, large := allocations(10), allocations(2000); large > small+tt.tolerance {
			t.Errorf("%+v: got %v allocations for 10 objects and %v for 2000, want no more than that", tt, small, large)
		}
	}
}

// indented makes the list of d an indented one, and returns d.
func indented(d *decision) *decision {
	d.query.Indented = true
	return d
}

// TestIndentedGzipThreshold: an indented list is compressed if its indented size is above gzipAbove, 128 KiB.
func TestIndentedGzipThreshold(t *testing.T) {
	// An object that is one byte longer makes the indented list one byte longer. So the size of an object whose indented list
	// has exactly gzipAbove bytes follows from the sizes of a short object and of its list.
	const noAuditID = ""
	shortList, err := newBody(indented(newListDecision(1, shortest)), noAuditID)
	expect.NoError(t, err)
	defer shortList.release()
	shortObjectSize := len(shortList.objects[0].Bytes)
	sizeAtThreshold := shortObjectSize + gzipAbove - shortList.size
	for _, tt := range []struct {
		bytesAbove   int // by which the indented list is longer than gzipAbove
		wantEncoding string
	}{
		{bytesAbove: 0, wantEncoding: ""},
		{bytesAbove: 1, wantEncoding: "gzip"},
	} {
		d := indented(newListDecision(1, sizeAtThreshold+tt.bytesAbove))
		d.asked.Gzip = true
		w := recordList(d, http.Header{})
		expect.Same(t, tt.wantEncoding, w.Header().Get("Content-Encoding"))
		expect.Same(t, gzipAbove+tt.bytesAbove, len(plain(t, w)))
	}
}

// TestUnindentable: newBody refuses to indent a list if it is nested deeper than json.Indent allows, or if the list would
// become more than 16 times as long (maxIndentGrowth) and longer than 1 MiB (indentAllowance).
func TestUnindentable(t *testing.T) {
	// nested returns inside, in arrays of this depth. When it is indented, each level adds two spaces to each line.
	nested := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	// At the deepest nesting, the indentation takes 200 MB. That is 12 times the length of this string, and so not too much.
	long := `"` + strings.Repeat("x", 16<<20) + `"`
	const listDepth = 2 // the levels around each object: the list, and its items
	for name, tt := range map[string]struct {
		object           string
		wantUnindentable bool
	}{
		"flat":                            {object: `{"a":1}`},
		"as deep as json.Indent allows":   {object: nested(wire.MaxIndentDepth-listDepth, long)},
		"one level deeper":                {object: nested(wire.MaxIndentDepth-listDepth+1, long), wantUnindentable: true},
		"as deep as the schema of a CRD":  {object: nested(50, `{"description":"what it is","type":"string"}`)},
		"becomes 23 times as long":        {object: nested(20, strings.Repeat("1,", 100_000)+"1"), wantUnindentable: true},
		"becomes 13 times as long":        {object: nested(10, strings.Repeat("1,", 100_000)+"1")},
		"becomes 23 times as long, 48 KB": {object: nested(20, strings.Repeat("1,", 1000)+"1")},
	} {
		t.Run(name, func(t *testing.T) {
			object := &index.Object{Key: "a", Revision: 1, Bytes: []byte(tt.object)}
			d := &decision{asked: &policy.Request{}, state: newSnapshot("ThingList", object)}
			compact, err := newBody(d, "")
			expect.NoError(t, err)
			defer compact.release()
			got, err := newBody(indented(d), "")
			if unindentable := err != nil; unindentable != tt.wantUnindentable {
				t.Fatalf("got unindentable %t, want %t: %v", unindentable, tt.wantUnindentable, err)
			}
			if err != nil {
				return
			}
			defer got.release()
			if got.size <= compact.size {
				t.Errorf("got the size %d, want more than the %d without indentation", got.size, compact.size)
			}
		})
	}
}
