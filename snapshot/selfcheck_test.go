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

// release is what the API servers of the tests are of.
const release = "v1.36.0"

// widgets is the resource that a control plane in memory serves.
var widgets = CollectionKey{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Namespaced:           true, Representation: media.JSON,
}

// definitionChanged says that the definition of widgets has changed.
var definitionChanged = Invalidation{Cause: CauseDefinition, Scope: OfResource(widgets.GroupResource())}

// checked is a collection of many widgets, n/0000 and so on, that is compared with an API server in memory.
type checked struct {
	*inmemory.ControlPlane
	server      http.RoundTripper // the API server's
	collections *Collections
	log         *bytes.Buffer

	mu sync.Mutex
	// instead answers a comparison's request in the API server's place, unless it is nil or returns 0.
	instead func(r *http.Request) (code int, body string)
	// pages has the keys with which the pages begin that comparisons asked for.
	pages []string
	loads int
}

const (
	checkEvery = time.Minute
	never      = 0
)

// newChecked begins, in a bubble.
func newChecked(t *testing.T, objects int, every time.Duration) *checked {
	t.Helper()
	c := &checked{ControlPlane: inmemory.New(t), log: &bytes.Buffer{}}
	for i := range objects {
		c.Put(inmemory.Widgets, inmemory.Object{Namespace: "n", Name: fmt.Sprintf("%04d", i)})
	}
	server := c.AddServer(release)
	server.Start(release)
	client, err := rest.HTTPClientFor(c.Config())
	expect.NoError(t, err)
	c.server = client.Transport
	t.Cleanup(func() {
		server.Stop()
		time.Sleep(time.Hour) // what is on its way ends
	})
	c.collections = newCollections(t, c, func(config *Config) {
		config.SelfCheck, config.Log = every, slog.New(slog.NewTextHandler(c.log, nil))
		config.ContinueToken = func(revision uint64, start string) string {
			return body.Token{Version: "meta.k8s.io/v1", Revision: int64(revision), Start: "/" + start}.Encode() // #nosec G115 -- it was none
		}
	})
	c.use(t)
	synctest.Wait()
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer := c.intercept(r); answer != nil {
		return answer, nil
	}
	return c.server.RoundTrip(r)
}

// intercept counts loads, records the pages of comparisons, and answers comparisons by instead.
func (c *checked) intercept(r *http.Request) *http.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	query := r.URL.Query()
	if query.Has("sendInitialEvents") {
		c.loads++
	}
	isExact := query.Get("resourceVersionMatch") == "Exact" && query.Get("limit") != "2" // 2 is the limit after a load
	if !isExact && !query.Has("continue") {
		return nil
	}
	c.pages = append(c.pages, inmemory.Start(query.Get("continue")))
	if c.instead != nil {
		if code, body := c.instead(r); code != 0 {
			return proxytest.JSONResponse(r, code, body)
		}
	}
	return nil
}

// compared returns the keys with which the pages begin that comparisons asked for.
func (c *checked) compared() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.pages...)
}

// loaded returns the number of loads.
func (c *checked) loaded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loads
}

// setInstead sets the function that answers comparisons.
func (c *checked) setInstead(instead func(r *http.Request) (code int, body string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instead = instead
}

func (c *checked) use(t *testing.T) *Collection {
	t.Helper()
	collection, unavailable := c.collections.Use(widgets)
	if unavailable != reason.None {
		t.Fatal(unavailable)
	}
	return collection
}

// list is a state as the API server writes it.
func (c *checked) list(revision uint64) string {
	form := inmemory.Form{Definition: 1, Release: release}
	return c.WriteList(0, inmemory.Widgets, int64(revision), inmemory.List{}, func(int) inmemory.Form { return form }) // #nosec G115 -- it was none
}

// expectRight expects that the newest state in memory is the API server's.
func (c *checked) expectRight(t *testing.T) {
	t.Helper()
	s, unavailable := c.use(t).NotOlderThan(t.Context(), 0)
	if unavailable != reason.None {
		t.Fatalf("nothing is given: %q; log:\n%s", unavailable, c.log)
	}
	var items [][]byte
	for _, o := range s.Page(index.Query{}, nil).Objects {
		items = append(items, o.Bytes)
	}
	expect.Same(t, c.list(s.Revision), string(s.Envelope.Render(wire.ListMeta{Revision: s.Revision}, items)))
}

// await lets time pass until n self-checks have ended, and returns the number of mismatches of widgets.
func (c *checked) await(t *testing.T, n uint64) (mismatches int) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 2*time.Hour; {
		ended := uint64(0)
		for _, ofResult := range c.collections.SelfChecks() {
			ended += ofResult
		}
		if ended >= n {
			return c.collections.Mismatches()[widgets].Count
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	t.Fatalf("there was no self-check %d; log:\n%s", n, c.log)
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

// TestSelfCheckFindsWhatIsWrong: a self-check finds whatever is wrong in memory; the log says what was wrong, and the
// answers are right afterwards.
func TestSelfCheckFindsWhatIsWrong(t *testing.T) {
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
			c := newChecked(t, 700, checkEvery)
			wrong := c.use(t)
			if mismatches := c.await(t, 1); mismatches > 0 {
				t.Fatalf("%d mismatches before anything was wrong; log:\n%s", mismatches, c.log)
			}
			corrupt(wrong, tt.change)
			if mismatches := c.await(t, 2); mismatches != 1 {
				t.Fatalf("%d mismatches, want 1; log:\n%s", mismatches, c.log)
			}
			if why := wrong.whyRetired(); why != reason.Warming {
				t.Errorf("the wrong state is retired because of %q, want %q", why, reason.Warming)
			}
			expect.Says(t, c.log.String(), tt.wantLog)
			proxytest.AssertNotContains(t, c.log.String(), "valu") // of the object
			c.expectRight(t)
			if all := c.collections.Stats(); len(all) != 1 || all[0].Losses[reason.Mismatch] != 1 {
				t.Errorf("statistics %+v, want one loss because of %q", all, reason.Mismatch)
			}
		})
	}
}

// TestSelfCheckGoesAround: each self-check compares the next pages (checkPages at most); after the last page, the next
// self-check begins at the first page again. A page that differs is compared once more.
func TestSelfCheckGoesAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, (checkPages+1)*pageObjects, checkEvery)
		c.await(t, 3)
		firstPages := []string{""}
		for last := pageObjects - 1; len(firstPages) < checkPages; last += pageObjects {
			firstPages = append(firstPages, fmt.Sprintf("n/%04d\x00", last))
		}
		lastPage := fmt.Sprintf("n/%04d\x00", checkPages*pageObjects-1)
		expect.Same(t, slices.Concat(firstPages, []string{lastPage}, firstPages), c.compared())
		before := len(c.compared())
		corrupt(c.use(t), removeOne(fmt.Sprintf("n/%04d", (checkPages+1)*pageObjects-1)))
		if mismatches := c.await(t, 4); mismatches != 1 {
			t.Fatalf("%d mismatches, want 1; log:\n%s", mismatches, c.log)
		}
		expect.Same(t, []string{lastPage, lastPage}, c.compared()[before:])
	})
}

// times answers so many requests.
func times(n, code int, body string) func(*http.Request) (int, string) {
	return func(*http.Request) (int, string) {
		if n--; n < 0 {
			return 0, ""
		}
		return code, body
	}
}

// TestSelfCheckRaisesNoFalseAlarm: a page that differs once only, or cannot be read, is no mismatch.
func TestSelfCheckRaisesNoFalseAlarm(t *testing.T) {
	const gone, later, tooMany, ok = http.StatusGone, http.StatusGatewayTimeout, http.StatusTooManyRequests, http.StatusOK
	const empty = `{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"resourceVersion":"%d"}}` + "\n"
	for name, tt := range map[string]struct {
		times, code int    // the number of answers with this code
		body        string // %d is the revision, ahead is added to it
		ahead       int64
		redefined   bool // during the comparison
		want        CheckResult
	}{
		"gone, then there":              {times: 1, code: gone, want: CheckAgrees},
		"not there yet, then there":     {times: 2, code: later, want: CheckAgrees},
		"gone for long":                 {times: 2 * pageTries, code: gone, want: CheckInconclusive},
		"too many requests":             {times: 1, code: tooMany, want: CheckInconclusive},
		"garbage":                       {times: 1, code: ok, body: "{%d", want: CheckInconclusive},
		"another revision":              {times: 1, code: ok, body: empty, ahead: 1, want: CheckInconclusive},
		"another state, once":           {times: 1, code: ok, body: empty, want: CheckInconclusive},
		"another state, since it moved": {times: 9, code: ok, body: empty, redefined: true, want: CheckInconclusive},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := newChecked(t, 10, checkEvery)
			body := tt.body
			if body != "" {
				body = fmt.Sprintf(body, c.Revision()+tt.ahead)
			}
			wrong := times(tt.times, tt.code, body)
			c.setInstead(func(r *http.Request) (int, string) {
				if tt.redefined {
					go c.collections.Invalidate(definitionChanged)
				}
				return wrong(r)
			})
			if mismatches := c.await(t, 1); mismatches != 0 || c.collections.SelfChecks()[tt.want] != 1 {
				t.Errorf("%d mismatches, results %v, want one %q; log:\n%s", mismatches, c.collections.SelfChecks(), tt.want, c.log)
			}
		})
	}
}

// TestUnansweredPageHidesNothing: a page that the upstream never gives does not keep the others from being compared.
func TestUnansweredPageHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, 1200, checkEvery)
		c.setInstead(func(*http.Request) (int, string) {
			if c.pages[len(c.pages)-1] == "n/0499\x00" {
				return http.StatusInternalServerError, ""
			}
			return 0, ""
		})
		wrong := c.use(t)
		c.await(t, 1)
		corrupt(wrong, changeOne("n/1100", changeByte))
		if mismatches := c.await(t, 3); mismatches == 0 {
			t.Errorf("no mismatch; log:\n%s", c.log)
		}
	})
}

// TestRepeatedMismatchIsNotKept: a collection that differs again soon after it was loaded anew is forwarded for
// mismatchBan, and so is one that differs again after that. One that differs much later is loaded anew at once.
func TestRepeatedMismatchIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, 10, checkEvery)
		c.setInstead(func(_ *http.Request) (int, string) {
			return http.StatusOK, strings.Replace(c.list(uint64(c.Revision())), "value", "other", 1) // #nosec G115 -- it was none
		})
		c.await(t, 1)
		if _, unavailable := c.use(t).NotOlderThan(t.Context(), 0); unavailable != reason.None || c.loaded() != 2 {
			t.Fatalf("after the first mismatch: %q, loaded %d times", unavailable, c.loaded())
		}
		for n := 2; n <= 3; n++ {
			if mismatches := c.await(t, uint64(n)); mismatches != n { // #nosec G115 -- a small number
				t.Fatalf("%d mismatches, want %d", mismatches, n)
			}
			if running := c.collections.Stats(); len(running) != 0 {
				t.Errorf("after mismatch %d these are kept: %+v", n, running)
			}
			if _, unavailable := c.collections.Use(widgets); unavailable != reason.Form {
				t.Errorf("after mismatch %d: %q, want %q", n, unavailable, reason.Form)
			}
			time.Sleep(mismatchBan)
			synctest.Wait()
			c.use(t)
			synctest.Wait()
		}
		c.setInstead(nil)
		time.Sleep(mismatchWindow)
		if ban := c.collections.checks.record(widgets, CheckMismatch, time.Now()); ban != 0 {
			t.Errorf("a late mismatch: not kept for %v, want 0", ban)
		}
	})
}
