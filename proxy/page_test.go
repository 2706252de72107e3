package proxy

import (
	"bytes"
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
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

// indented is an answer that is to be indented.
func indented(a answer) answer {
	a.query.Indented = true
	return a
}

// bodyOf reads an answer, and returns it as it is after decoding.
func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	var in io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		z, err := stdgzip.NewReader(resp.Body)
		expect.NoError(t, err)
		in = z
	}
	got, err := io.ReadAll(in)
	expect.NoError(t, err)
	return string(got)
}

// TestIndentedGzipThreshold: it is the indented list that is larger than 128 KiB or not.
func TestIndentedGzipThreshold(t *testing.T) {
	empty := newBody(indented(listOf(1, 0)))
	defer empty.release()
	unpadded := len(listOf(1, 0).snapshot.Page(index.Query{}, nil).Objects[0].Bytes)
	for extra, want := range map[int]string{0: "", 1: "gzip"} {
		a := indented(listOf(1, unpadded+gzipAbove-empty.size+extra))
		resp := write(t, policy.Request{Gzip: true}, a, http.Header{})
		if got := resp.Header.Get("Content-Encoding"); got != want {
			t.Errorf("%d bytes above: %q", extra, got)
		}
		expect.Same(t, gzipAbove+extra, len(bodyOf(t, resp)))
	}
}

// TestUnfitToBeIndented: what json.Indent refuses is not written, nor what would be many times as
// long.
func TestUnfitToBeIndented(t *testing.T) {
	nested := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	pad := `"` + strings.Repeat("x", 16<<20) + `"` // so that the depth alone decides
	const list = 2                                 // levels around each object
	for name, tt := range map[string]struct {
		object string
		unfit  bool
	}{
		"flat":       {`{"a":1}`, false},
		"deep":       {nested(wire.MaxIndentDepth-list, pad), false},
		"too deep":   {nested(wire.MaxIndentDepth-list+1, pad), true},
		"a schema":   {nested(50, `{"description":"what it is","type":"string"}`), false},
		"grows":      {nested(20, strings.Repeat("1,", 100_000)+"1"), true},
		"grows less": {nested(10, strings.Repeat("1,", 100_000)+"1"), false},
		"is short":   {nested(20, strings.Repeat("1,", 1000)+"1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer{snapshot: snapshot.Fixed(7, "ThingList", "v1", []*index.Object{{Key: "a", Revision: 1, Bytes: []byte(tt.object)}})}
			plain, b := newBody(a), newBody(indented(a))
			defer plain.release()
			defer b.release()
			if b.unindentable != tt.unfit {
				t.Errorf("unfit: %t, %d bytes of %d", b.unindentable, b.size, plain.size)
			}
			if (b.size == plain.size) != tt.unfit {
				t.Errorf("counted as %d bytes of %d", b.size, plain.size)
			}
		})
	}
	if reason.Representation.Explain() == "" {
		t.Error("the reason to forward it is not explained")
	}
}

// TestWritersAreBounded: only so many answers are written in large pieces at a time.
func TestWritersAreBounded(t *testing.T) {
	var pool writerPool
	var out bytes.Buffer
	for size, want := range map[int]int{
		0: leastWriteSize, 100: leastWriteSize, leastWriteSize + 1: 4 * leastWriteSize, 40 << 10: writeSize, largeWriteSize: writeSize,
	} {
		if w := pool.get(&out, size); w.Size() != want {
			t.Errorf("an answer of %d bytes gets a buffer of %d", size, w.Size())
		}
	}
	var taken []pooledWriter
	for i := range largeWriters + 2 {
		w := pool.get(&out, largeWriteSize+1)
		want := largeWriteSize
		if i >= largeWriters {
			want = writeSize
		}
		if w.Size() != want {
			t.Fatalf("answer %d gets %d bytes, want %d", i, w.Size(), want)
		}
		taken = append(taken, w)
	}
	_, _ = taken[0].WriteString("lost")
	for _, w := range taken {
		w.release()
	}
	w := pool.get(&out, largeWriteSize+1)
	if w.Size() != largeWriteSize || w.Buffered() != 0 {
		t.Errorf("after all were released: %d bytes, of which %d are in use", w.Size(), w.Buffered())
	}
	if out.Len() > 0 {
		t.Errorf("what was not flushed was written: %q", &out)
	}
}
