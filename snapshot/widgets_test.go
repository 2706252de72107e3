package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
)

// changeDefinition invalidates widgets as if their definition had changed.
func changeDefinition(c *Collections) {
	c.Invalidate(OfResource(widgets.GroupResource()), reason.Schema)
}

// checkedWidgets is a collection of many widgets, n/0000 and so on, that is compared with the API server of a plane.
type checkedWidgets struct {
	*plane
	collections *Collections
	log         *bytes.Buffer
}

// Intervals of self-checks, for newCheckedWidgets.
const (
	checkEvery   time.Duration = time.Minute
	noSelfChecks time.Duration = 0
)

const (
	// threePages is a number of widgets that comparisons read in three pages: a page has at most pageObjects, 500.
	threePages = 1200
	// page1, page2 and page3 are the keys with which the pages begin. page2 and page3 are the last key of the page before,
	// and a zero byte.
	page1      = ""
	page2      = "n/0499\x00"
	page3      = "n/0999\x00"
	keyOnPage3 = "n/1100"
)

// newCheckedWidgets starts an API server with a number of widgets, and a collection of them. A self-check compares the
// collection with the API server about once in each interval. newCheckedWidgets must run in a synctest bubble.
func newCheckedWidgets(t *testing.T, objects int, interval time.Duration) *checkedWidgets {
	t.Helper()
	var names []string
	for i := range objects {
		names = append(names, fmt.Sprintf("%04d", i))
	}
	w := &checkedWidgets{plane: newPlane(t, names...), log: &bytes.Buffer{}}
	w.collections = newCollections(t, w, func(config *Config) {
		config.SelfCheckInterval = interval
		config.Log = slog.New(slog.NewTextHandler(w.log, nil))
		config.ContinueToken = func(revision uint64, start string) string {
			return body.Token{Version: "meta.k8s.io/v1", Revision: int64(revision), Start: "/" + start}.Encode() // #nosec G115 -- was an int64 before
		}
	})
	w.mustUse(t)
	synctest.Wait()
	return w
}

// isComparison reports whether a request is one of a comparison (of a self-check or a verification), which reads the list at an
// exact revision, page by page. compareLoaded also reads an exact revision after a load, but with the limit comparedObjects.
func isComparison(r *http.Request) bool {
	q := r.URL.Query()
	isFirstPage := q.Get("resourceVersionMatch") == "Exact" && q.Get("limit") != strconv.Itoa(comparedObjects)
	return isFirstPage || q.Has("continue")
}

// compared returns the pages that comparisons have asked for so far, each by the key with which it begins.
func (w *checkedWidgets) compared() []string {
	pages := []string{}
	for _, r := range w.requests(isComparison) {
		pages = append(pages, inmemory.Start(r.URL.Query().Get("continue")))
	}
	return pages
}

// answerComparisons intercepts the requests of comparisons. If answer returns nil, the API server answers.
func (w *checkedWidgets) answerComparisons(answer answerer) {
	w.intercept(func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if !isComparison(r) {
			return 0, nil
		}
		return 0, answer(r)
	})
}

// loaded returns the number of loads.
func (w *checkedWidgets) loaded() int { return w.count(kindStreamingList) }

// expectLoads checks how often the widgets were loaded.
func (w *checkedWidgets) expectLoads(t *testing.T, want int) {
	t.Helper()
	if loads := w.loaded(); loads != want {
		t.Errorf("got %d loads, want %d; log:\n%s", loads, want, w.log)
	}
}

// mustUse returns the collection from which clients are answered. It starts the collection if necessary, and ends the test if
// the collection is banned.
func (w *checkedWidgets) mustUse(t *testing.T) *Collection {
	t.Helper()
	collection, unavailable := w.collections.Use(widgets)
	if unavailable != reason.None {
		t.Fatal(unavailable)
	}
	return collection
}

// expectRight checks that the newest state in memory is the API server's.
func (w *checkedWidgets) expectRight(t *testing.T) {
	t.Helper()
	s, unavailable := w.mustUse(t).NotOlderThan(t.Context(), anyRevision)
	if unavailable != reason.None {
		t.Fatalf("the newest state: got reason %q, want the state; log:\n%s", unavailable, w.log)
	}
	var items [][]byte
	for _, o := range s.Page(index.Query{}, noBuffer).Objects {
		items = append(items, o.Bytes)
	}
	expect.Same(t, w.list(int64(s.Revision), inmemory.List{}), string(s.Envelope.Render(wire.ListMeta{Revision: s.Revision}, items)))
}

// waitForChecks lets time pass until n self-checks have ended since the start.
func (w *checkedWidgets) waitForChecks(t *testing.T, n int) {
	t.Helper()
	for begunAt := time.Now(); time.Since(begunAt) < 2*time.Hour; {
		ended := uint64(0)
		for _, count := range w.collections.SelfChecks() {
			ended += count
		}
		if ended >= uint64(n) { // #nosec G115 -- a small number
			return
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	t.Fatalf("there was no self-check %d; log:\n%s", n, w.log)
}

// expectMismatches checks how many mismatches were found since the start.
func (w *checkedWidgets) expectMismatches(t *testing.T, want int) {
	t.Helper()
	if got := w.collections.Mismatches()[widgets].Count; got != want {
		t.Fatalf("got %d mismatches, want %d; log:\n%s", got, want, w.log)
	}
}

// corrupt makes the newest state in memory wrong, as if there were a bug.
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

// changeOne returns a function that replaces the object with a key by a changed copy. There must be such an object.
func changeOne(key string, change func(*index.Object)) func(index.Tree) {
	return func(state index.Tree) {
		o, _ := state.Get(key)
		changed := *o
		change(&changed)
		state.Set(&changed)
	}
}

// lowerRevision gives an object another revision than upstream.
func lowerRevision(o *index.Object) { o.Revision-- }

// removeOne returns a function that removes the object with a key.
func removeOne(key string) func(index.Tree) {
	return func(state index.Tree) { state.Remove(key) }
}

// addOne returns a function that adds an object with a key.
func addOne(key string) func(index.Tree) {
	const revision = 700 // any other revision would do
	return func(state index.Tree) { state.Set(index.NewObject(noNumber, key, revision, []byte(`{}`))) }
}

// fieldName is a field of every widget. changeByte makes changedFieldName of it.
const (
	fieldName        = "value"
	changedFieldName = "valuf"
)

// changeByte changes one byte of an object, so that its JSON stays valid.
func changeByte(o *index.Object) {
	o.Bytes = bytes.Replace(o.Bytes, []byte(fieldName), []byte(changedFieldName), 1)
}
