package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
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
	"github.com/listproxy/listproxy/test/proxytest"
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

	mu sync.Mutex
	// instead answers a comparison's request in the API server's place, unless it is nil or returns the code 0.
	instead func(r *http.Request) (code int, body string)
	// pages are the pages that comparisons asked for, by the keys with which they begin.
	pages []string
	loads int
}

const (
	checkEvery   time.Duration = time.Minute
	noSelfChecks time.Duration = 0
)

// newCheckedWidgets starts an API server with so many widgets, and a collection of them with a self-check at each interval.
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

// intercept counts loads, records the pages of comparisons, and answers comparisons by instead.
func (w *checkedWidgets) intercept(r *http.Request) *http.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	query := r.URL.Query()
	if query.Has("sendInitialEvents") {
		w.loads++
	}
	// A comparison reads an exact revision page by page. So does the sample after a load, but with limit 2.
	isFirstPage := query.Get("resourceVersionMatch") == "Exact" && query.Get("limit") != "2"
	isComparison := isFirstPage || query.Has("continue")
	if !isComparison {
		return nil
	}
	w.pages = append(w.pages, inmemory.Start(query.Get("continue")))
	if w.instead != nil {
		if code, body := w.instead(r); code != 0 {
			return proxytest.JSONResponse(r, code, body)
		}
	}
	return nil
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

// interceptComparisons sets the function that answers comparisons in the API server's place; nil: the API server answers.
func (w *checkedWidgets) interceptComparisons(instead func(r *http.Request) (code int, body string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instead = instead
}

// use returns the collection that clients are answered from.
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

// expectRight expects that the newest state in memory is the API server's.
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
	c.versions.At(c.versions.Len() - 1).Tree = state
	next := v.clone()
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

func changeByte(o *index.Object) {
	o.Bytes = bytes.Replace(o.Bytes, []byte("value"), []byte("valuf"), 1)
}

// TestSelfCheckFindsWhatIsWrong: a self-check finds a difference from the upstream, logs it without the object's content, and
// retires the state. The state that is loaded then is right.
func TestSelfCheckFindsWhatIsWrong(t *testing.T) {
	const objects = pageObjects + 200 // the first page ends with n/0499, and the last object is n/0699
	for name, tt := range map[string]struct {
		change  func(index.Tree)
		wantLog string
	}{
		"one byte":                   {change: changeOne("n/0300", changeByte), wantLog: "n/0300 has other bytes"},
		"a revision":                 {change: changeOne("n/0300", func(o *index.Object) { o.Revision-- }), wantLog: "n/0300 is of revision"},
		"a missing object":           {change: removeOne("n/0300"), wantLog: "n/0300 is missing"},
		"an additional object":       {change: addOne("n/0300x"), wantLog: "n/0300x is not there upstream"},
		"the last object is missing": {change: removeOne("n/0699"), wantLog: "has 199 objects after it, upstream 200"},
		"an object after the last":   {change: addOne("n/0699x"), wantLog: "has 201 objects after it, upstream 200"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, objects, checkEvery)
			corrupted := w.use(t)
			if mismatches := w.mismatchesAfter(t, 1); mismatches > 0 {
				t.Fatalf("before anything is wrong: got %d mismatches, want none; log:\n%s", mismatches, w.log)
			}
			corrupt(corrupted, tt.change)
			if mismatches := w.mismatchesAfter(t, 2); mismatches != 1 {
				t.Fatalf("got %d mismatches, want 1; log:\n%s", mismatches, w.log)
			}
			if why := whyRetired(corrupted); why != reason.Warming {
				t.Errorf("the corrupted collection is retired: got reason %q, want %q", why, reason.Warming)
			}
			expect.Says(t, w.log.String(), tt.wantLog)
			proxytest.AssertNotContains(t, w.log.String(), "valu") // the content of every object has it
			w.expectRight(t)
			if all := w.collections.Stats(); len(all) != 1 || all[0].Losses[reason.Mismatch] != 1 {
				t.Errorf("got statistics %+v, want one collection with one loss because of %q", all, reason.Mismatch)
			}
		})
	}
}

// TestSelfCheckGoesAround: each self-check compares the next checkPages pages at most. After the last page, the next
// self-check begins with the first page again. A page that differs is compared once more.
func TestSelfCheckGoesAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, (checkPages+1)*pageObjects, checkEvery)
		w.mismatchesAfter(t, 3)
		pageAfter := func(last int) string { return fmt.Sprintf("n/%04d\x00", last) }
		firstPages := []string{page1}
		for last := pageObjects - 1; len(firstPages) < checkPages; last += pageObjects {
			firstPages = append(firstPages, pageAfter(last))
		}
		lastPage := pageAfter(checkPages*pageObjects - 1)
		expect.Same(t, slices.Concat(firstPages, []string{lastPage}, firstPages), w.compared())
		before := len(w.compared())
		corrupt(w.use(t), removeOne(fmt.Sprintf("n/%04d", (checkPages+1)*pageObjects-1)))
		if mismatches := w.mismatchesAfter(t, 4); mismatches != 1 {
			t.Fatalf("got %d mismatches, want 1; log:\n%s", mismatches, w.log)
		}
		expect.Same(t, []string{lastPage, lastPage}, w.compared()[before:])
	})
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

// TestSelfCheckRaisesNoFalseAlarm: a self-check does not count a page as a mismatch if it differs only once, cannot be read,
// or differs after the definition has changed.
func TestSelfCheckRaisesNoFalseAlarm(t *testing.T) {
	const gone, later, tooMany, ok = http.StatusGone, http.StatusGatewayTimeout, http.StatusTooManyRequests, http.StatusOK
	const empty = `{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"resourceVersion":"%d"}}` + "\n"
	for name, tt := range map[string]struct {
		answers   int    // answers is the number of requests that are answered with code and body.
		code      int    // code is their status.
		body      string // body is their body, with the revision in place of %d.
		ahead     int64  // ahead is added to the upstream's revision in body.
		redefined bool   // If redefined is true, the definition changes during the comparison.
		want      CheckResult
	}{
		"410 once":                   {answers: 1, code: gone, want: CheckAgrees},
		"504 twice":                  {answers: 2, code: later, want: CheckAgrees},
		"410 at each try":            {answers: 2 * pageTries, code: gone, want: CheckInconclusive},
		"429":                        {answers: 1, code: tooMany, want: CheckInconclusive},
		"not JSON":                   {answers: 1, code: ok, body: "{%d", want: CheckInconclusive},
		"a list at another revision": {answers: 1, code: ok, body: empty, ahead: 1, want: CheckInconclusive},
		"another state, once":        {answers: 1, code: ok, body: empty, want: CheckInconclusive},
		"another state, at each try, after a new definition": {
			answers: 2 * pageTries, code: ok, body: empty, redefined: true, want: CheckInconclusive,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newCheckedWidgets(t, 10, checkEvery)
			body := tt.body
			if body != "" {
				body = fmt.Sprintf(body, w.Revision()+tt.ahead)
			}
			answer := answerFirst(tt.answers, tt.code, body)
			w.interceptComparisons(func(r *http.Request) (int, string) {
				if tt.redefined {
					go w.collections.Invalidate(definitionChanged)
				}
				return answer(r)
			})
			if mismatches := w.mismatchesAfter(t, 1); mismatches != 0 {
				t.Errorf("got %d mismatches, want none; log:\n%s", mismatches, w.log)
			}
			if results := w.collections.SelfChecks(); results[tt.want] != 1 {
				t.Errorf("got results %v, want one %q; log:\n%s", results, tt.want, w.log)
			}
		})
	}
}

// TestUnansweredPageHidesNothing: if the upstream never answers a page, self-checks still compare the pages after it.
func TestUnansweredPageHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, threePages, checkEvery)
		w.interceptComparisons(func(*http.Request) (int, string) {
			if w.pages[len(w.pages)-1] == page2 {
				return http.StatusInternalServerError, ""
			}
			return 0, ""
		})
		corrupted := w.use(t)
		w.mismatchesAfter(t, 1)
		corrupt(corrupted, changeOne(keyOnPage3, changeByte))
		if mismatches := w.mismatchesAfter(t, 3); mismatches == 0 {
			t.Errorf("got no mismatch, want some; log:\n%s", w.log)
		}
	})
}

// TestRepeatedMismatchIsNotKept: a collection that differs is loaded anew at once. If it differs again within mismatchWindow,
// it is forwarded for mismatchBan, each time, and loaded after that.
func TestRepeatedMismatchIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCheckedWidgets(t, 10, checkEvery)
		w.interceptComparisons(func(_ *http.Request) (int, string) {
			return http.StatusOK, strings.Replace(w.list(uint64(w.Revision())), "value", "other", 1) // #nosec G115 -- was an int64 before
		})
		w.mismatchesAfter(t, 1)
		expectNewest(t, w.use(t), reason.None)
		if loads := w.loaded(); loads != 2 {
			t.Fatalf("after the first mismatch: got %d loads, want 2", loads)
		}
		for n := 2; n <= 3; n++ {
			if mismatches := w.mismatchesAfter(t, uint64(n)); mismatches != n { // #nosec G115 -- a small number
				t.Fatalf("got %d mismatches, want %d", mismatches, n)
			}
			if kept := w.collections.Stats(); len(kept) != 0 {
				t.Errorf("after mismatch %d: got the collections %+v, want none", n, kept)
			}
			if _, unavailable := w.collections.Use(widgets); unavailable != reason.Form {
				t.Errorf("after mismatch %d: got reason %q, want %q", n, unavailable, reason.Form)
			}
			time.Sleep(mismatchBan)
			synctest.Wait()
			w.use(t) // fails the test if the ban goes on
			synctest.Wait()
		}
		w.interceptComparisons(nil)
		time.Sleep(mismatchWindow)
		if ban := w.collections.countCheck(widgets, CheckMismatch, time.Now()); ban != 0 {
			t.Errorf("a mismatch after mismatchWindow: got a ban of %v, want none", ban)
		}
	})
}
