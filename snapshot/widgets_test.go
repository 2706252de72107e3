package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
)

// release is the version of the tests' API servers.
const release = "v1.36.0"

// widgets is the resource that a control plane in memory serves.
var widgets = CollectionKey{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Namespaced:           true, Representation: media.JSON,
}

// definitionChanged says that the definition of widgets has changed.
var definitionChanged = Invalidation{Cause: CauseDefinition, Scope: OfResource(widgets.GroupResource())}

// checkedWidgets is a collection of many widgets, n/0000 and so on, that is compared with an API server in memory.
type checkedWidgets struct {
	*inmemory.ControlPlane
	server      http.RoundTripper // the API server's
	collections *Collections
	log         *bytes.Buffer

	mu sync.Mutex // guards the following fields
	// answerComparison answers a comparison's request in place of the API server. If it is nil or returns the code 0, the server answers.
	answerComparison func(r *http.Request) (code int, body string)
	// pages are the pages that comparisons asked for, by the keys with which they begin.
	pages []string
	loads int
}

// Intervals of self-checks, for newCheckedWidgets.
const (
	checkEvery   time.Duration = time.Minute
	noSelfChecks time.Duration = 0
)

// Comparisons read threePages widgets in three pages of at most pageObjects, which is 500.
const (
	threePages = 1200
	// page1, page2 and page3 are the keys with which the pages begin. page2 and page3 are the last key of the page before,
	// and a zero byte.
	page1      = ""
	page2      = "n/0499\x00"
	page3      = "n/0999\x00"
	keyOnPage3 = "n/1100"
)

// newCheckedWidgets starts an API server with a number of widgets, and a collection of them with a self-check at each interval.
// It must run in a bubble.
func newCheckedWidgets(t *testing.T, objects int, interval time.Duration) *checkedWidgets {
	t.Helper()
	w := &checkedWidgets{ControlPlane: inmemory.New(t), log: &bytes.Buffer{}}
	for i := range objects {
		w.Put(inmemory.Widgets, inmemory.Object{Namespace: "n", Name: fmt.Sprintf("%04d", i)})
	}
	server := w.AddServer(release)
	server.Start(release)
	client, err := rest.HTTPClientFor(w.Config())
	expect.NoError(t, err)
	w.server = client.Transport
	t.Cleanup(func() {
		server.Stop()
		time.Sleep(time.Hour) // requests that are on their way end
	})
	w.collections = newCollections(t, w, func(config *Config) {
		config.SelfCheck = interval
		config.Log = slog.New(slog.NewTextHandler(w.log, nil))
		config.ContinueToken = func(revision uint64, start string) string {
			return body.Token{Version: "meta.k8s.io/v1", Revision: int64(revision), Start: "/" + start}.Encode() // #nosec G115 -- was an int64 before
		}
	})
	w.use(t)
	synctest.Wait()
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *checkedWidgets) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer := w.intercept(r); answer != nil {
		return answer, nil
	}
	return w.server.RoundTrip(r)
}

// intercept counts loads, records the pages of comparisons, and answers comparisons by w.answerComparison.
func (w *checkedWidgets) intercept(r *http.Request) *http.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	query := r.URL.Query()
	if query.Has("sendInitialEvents") {
		w.loads++
	}
	// A comparison reads an exact revision page by page. The sample after a load does so, too, but with limit 2.
	isSample := query.Get("limit") == "2"
	isFirstPage := query.Get("resourceVersionMatch") == "Exact" && !isSample
	isComparison := isFirstPage || query.Has("continue")
	if !isComparison {
		return nil
	}
	w.pages = append(w.pages, inmemory.Start(query.Get("continue")))
	if w.answerComparison == nil {
		return nil
	}
	code, body := w.answerComparison(r)
	if code == 0 {
		return nil
	}
	return inmemory.Answer(r, code, body)
}

// interceptComparisons sets w.answerComparison.
func (w *checkedWidgets) interceptComparisons(answerComparison func(r *http.Request) (code int, body string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answerComparison = answerComparison
}

// answerFirst returns a function for interceptComparisons that answers the first n requests.
func answerFirst(n, code int, body string) func(*http.Request) (int, string) {
	return func(*http.Request) (int, string) {
		if n--; n < 0 {
			return 0, ""
		}
		return code, body
	}
}

// compared returns the pages that comparisons asked for, by the keys with which they begin.
func (w *checkedWidgets) compared() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.pages...)
}

// loaded returns the number of loads.
func (w *checkedWidgets) loaded() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loads
}

// expectLoads checks how often the widgets were loaded.
func (w *checkedWidgets) expectLoads(t *testing.T, want int) {
	t.Helper()
	if loads := w.loaded(); loads != want {
		t.Errorf("got %d loads, want %d; log:\n%s", loads, want, w.log)
	}
}

// use returns the collection from which clients are answered.
func (w *checkedWidgets) use(t *testing.T) *Collection {
	t.Helper()
	collection, unavailable := w.collections.Use(widgets)
	if unavailable != reason.None {
		t.Fatal(unavailable)
	}
	return collection
}

// list returns the state at a revision as the API server writes it.
func (w *checkedWidgets) list(revision uint64) string {
	form := inmemory.Form{Definition: 1, Release: release}
	return w.WriteList(0, inmemory.Widgets, int64(revision), inmemory.List{}, func(int) inmemory.Form { return form }) // #nosec G115 -- was an int64 before
}

// expectRight checks that the newest state in memory is the API server's.
func (w *checkedWidgets) expectRight(t *testing.T) {
	t.Helper()
	s, unavailable := w.use(t).NotOlderThan(t.Context(), 0)
	if unavailable != reason.None {
		t.Fatalf("the newest state: got reason %q, want the state; log:\n%s", unavailable, w.log)
	}
	var items [][]byte
	for _, o := range s.Page(index.Query{}, nil).Objects {
		items = append(items, o.Bytes)
	}
	expect.Same(t, w.list(s.Revision), string(s.Envelope.Render(wire.ListMeta{Revision: s.Revision}, items)))
}

// mismatchesAfter lets time pass until n self-checks have ended, and returns how many mismatches were found since the start.
func (w *checkedWidgets) mismatchesAfter(t *testing.T, n uint64) int {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 2*time.Hour; {
		ended := uint64(0)
		for _, ofResult := range w.collections.SelfChecks() {
			ended += ofResult
		}
		if ended >= n {
			return w.collections.Mismatches()[widgets].Count
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	t.Fatalf("there was no self-check %d; log:\n%s", n, w.log)
	return 0
}

// corrupt changes the newest state in memory, as no feed would.
func corrupt(c *Collection, change func(index.Tree)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	state := v.newest.Clone()
	change(state)
	next := v.clone()
	next.versions.At(next.versions.Len() - 1).Tree = state
	next.newest = state
	c.publishLocked(next)
}

// changeOne returns a function that changes a copy of the object with a key.
func changeOne(key string, change func(*index.Object)) func(index.Tree) {
	return func(state index.Tree) {
		o, _ := state.Get(key)
		changed := *o
		change(&changed)
		state.Set(&changed)
	}
}

// removeOne returns a function that removes the object with a key.
func removeOne(key string) func(index.Tree) {
	return func(state index.Tree) { state.Remove(key) }
}

// addOne returns a function that adds an object with a key.
func addOne(key string) func(index.Tree) {
	return func(state index.Tree) { state.Set(index.NewObject(0, key, 700, []byte(`{}`))) }
}

// changeByte changes one byte of an object, so that its JSON stays valid.
func changeByte(o *index.Object) {
	o.Bytes = bytes.Replace(o.Bytes, []byte("value"), []byte("valuf"), 1)
}
