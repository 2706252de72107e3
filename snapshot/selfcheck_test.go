package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
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
var definitionChanged = Invalidation{Cause: Definition, Scope: OfResource(widgets.GroupResource()), Until: For(time.Minute)}

// checked is a collection of many widgets, n/0000 and so on, which is compared with what an API server in
// memory has.
type checked struct {
	*inmemory.ControlPlane
	server      http.RoundTripper // the way there
	collections *Collections
	log         *bytes.Buffer

	mu sync.Mutex
	// instead, if it is not nil and says so, answers a comparison's request in the API server's place.
	instead func(r *http.Request) (code int, body string)
	asked   []string // by comparisons: names or bytes, and where they begin
	loads   int
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

// intercept notes what is asked, and answers some of it.
func (c *checked) intercept(r *http.Request) *http.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	query, accept := r.URL.Query(), r.Header.Get("Accept")
	if query.Has("sendInitialEvents") {
		c.loads++
	}
	compares := query.Has("continue") || query.Get("resourceVersionMatch") == "Exact" && query.Get("limit") != "2"
	if !compares || strings.Contains(accept, "protobuf") { // which there is not
		return nil
	}
	what := map[bool]string{true: "names", false: "bytes"}[strings.Contains(accept, "PartialObjectMetadata")]
	c.asked = append(c.asked, what+" "+inmemory.Start(query.Get("continue")))
	if c.instead != nil {
		if code, body := c.instead(r); code != 0 {
			return proxytest.JSONResponse(r, code, body)
		}
	}
	return nil
}

// requests returns what comparisons have asked for.
func (c *checked) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.asked...)
}

// loaded is how often the state was loaded.
func (c *checked) loaded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loads
}

// answers sets instead.
func (c *checked) answers(instead func(r *http.Request) (code int, body string)) {
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

// expectRight looks whether what is given is what the API server has.
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

// await lets time pass until so many checks have ended.
func (c *checked) await(t *testing.T, number int) CheckStats {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Hour; {
		total := uint64(0)
		for _, n := range c.collections.SelfChecks() {
			total += n
		}
		if total >= uint64(number) { // #nosec G115 -- a count
			return c.collections.checks.stats(widgets)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	t.Fatalf("there was no check %d; log:\n%s", number, c.log)
	return CheckStats{}
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

// otherwise changes a copy of the object n/1100, which is on the last page.
func otherwise(change func(*index.Object)) func(index.Tree) {
	return func(state index.Tree) {
		o, _ := state.Get("n/1100")
		changed := *o
		change(&changed)
		state.Set(&changed)
	}
}

var (
	aByte     = otherwise(func(o *index.Object) { o.Bytes = bytes.Replace(o.Bytes, []byte("value"), []byte("valuf"), 1) })
	isMissing = func(state index.Tree) { state.Remove("n/1100") }
)

// TestSelfCheckFindsWhatIsWrong: a self-check finds whatever is wrong in memory, wherever it is; the log says what was
// wrong, and the answers are right afterwards.
func TestSelfCheckFindsWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(index.Tree)
		wantSays string // in the log
	}{
		"one byte":         {change: aByte, wantSays: "n/1100 has other bytes"},
		"a revision":       {change: otherwise(func(o *index.Object) { o.Revision-- }), wantSays: "n/1100 is of revision"},
		"a missing object": {change: isMissing, wantSays: "n/1100 is missing"},
		"the last object is missing": {
			change: func(state index.Tree) { state.Remove("n/1199") }, wantSays: "n/1199 is missing",
		},
		"an object too many": {
			change: func(state index.Tree) {
				state.Set(index.NewObject(0, "n/1100x", 700, []byte(`{"metadata":{"name":"1100x"}}`)))
			},
			wantSays: "n/1100x is not there upstream",
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := newChecked(t, 1200, checkEvery)
			wrong := c.use(t)
			if stats := c.await(t, 1); stats.Result != CheckAgrees || len(c.collections.Mismatched()) > 0 {
				t.Fatalf("before: %+v", stats)
			}
			corrupt(wrong, tt.change)
			stats := c.await(t, 4) // each compares a third of the bytes
			if stats.Mismatches != 1 {
				t.Fatalf("got %+v; log:\n%s", stats, c.log)
			}
			if why := wrong.whyRetired(); why != reason.Warming {
				t.Errorf("the wrong state is retired because of %q, want %q", why, reason.Warming)
			}
			expect.Says(t, c.log.String(), tt.wantSays)
			proxytest.AssertNotContains(t, c.log.String(), "valu") // of the object
			c.expectRight(t)
			if all := c.collections.Stats(); len(all) != 1 || all[0].Feed.Losses[reason.Mismatch] != 1 {
				t.Errorf("statistics %+v, want one loss because of %q", all, reason.Mismatch)
			}
			if all := c.collections.Mismatched(); len(all) != 1 || all[widgets] != stats || stats.Mismatched.IsZero() {
				t.Errorf("mismatched collections: %+v, want the one with %+v", all, stats)
			}
		})
	}
}

// TestSelfCheckGoesAround: each check compares all names, page by page, and the next page of bytes. A mismatch is
// confirmed on the page where it is.
func TestSelfCheckGoesAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, 1200, checkEvery)
		c.await(t, 4)
		const secondNames = "names n/0999\x00"
		expect.Same(t, []string{
			"names ", secondNames, "bytes ",
			"names ", secondNames, "bytes n/0499\x00",
			"names ", secondNames, "bytes n/0999\x00",
			"names ", secondNames, "bytes ",
		}, c.requests())
		before := len(c.requests())
		corrupt(c.use(t), isMissing)
		if stats := c.await(t, 5); stats.Mismatches != 1 {
			t.Fatalf("got %+v; log:\n%s", stats, c.log)
		}
		expect.Same(t, []string{"names ", secondNames, secondNames}, c.requests()[before:])
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
	const nothing = `{"apiVersion":"meta.k8s.io/v1","items":[],"kind":"PartialObjectMetadataList",` +
		`"metadata":{"resourceVersion":"%d"}}` + "\n"
	for name, tt := range map[string]struct {
		times, code int    // as many answers have this code
		body        string // %d is the revision, ahead is added to it
		ahead       int64
		redefined   bool // meanwhile
		want        CheckResult
	}{
		"gone, then there":              {times: 1, code: gone, want: CheckAgrees},
		"not there yet, then there":     {times: 2, code: later, want: CheckAgrees},
		"gone for long":                 {times: 2 * checkTries, code: gone, want: CheckInconclusive},
		"too many requests":             {times: 1, code: tooMany, want: CheckInconclusive},
		"garbage":                       {times: 1, code: ok, body: "{%d", want: CheckInconclusive},
		"another revision":              {times: 1, code: ok, body: nothing, ahead: 1, want: CheckInconclusive},
		"another state, once":           {times: 1, code: ok, body: nothing, want: CheckInconclusive},
		"another state, since it moved": {times: 9, code: ok, body: nothing, redefined: true, want: CheckInconclusive},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := newChecked(t, 10, checkEvery)
			text := tt.body
			if text != "" {
				text = fmt.Sprintf(text, c.Revision()+tt.ahead)
			}
			wrong := times(tt.times, tt.code, text)
			c.answers(func(r *http.Request) (int, string) {
				if tt.redefined {
					go c.collections.Invalidate(definitionChanged)
				}
				return wrong(r)
			})
			if stats := c.await(t, 1); stats.Result != tt.want || stats.Mismatches != 0 {
				t.Errorf("got %+v, want %q; log:\n%s", stats, tt.want, c.log)
			}
		})
	}
}

// TestWhatIsNeverAnsweredHidesNothing: a page that the upstream never gives keeps no other from being compared.
func TestWhatIsNeverAnsweredHidesNothing(t *testing.T) {
	for name, unanswered := range map[string]func(request string) bool{
		"a page of bytes": func(request string) bool { return request == "bytes n/0499\x00" },
		"a page of names": func(request string) bool { return request == "names " },
		"all names":       func(request string) bool { return strings.HasPrefix(request, "names ") },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := newChecked(t, 1200, checkEvery)
			c.answers(func(*http.Request) (int, string) {
				if unanswered(c.asked[len(c.asked)-1]) {
					return http.StatusInternalServerError, ""
				}
				return 0, ""
			})
			wrong := c.use(t)
			c.await(t, 1)
			corrupt(wrong, aByte)
			if stats := c.await(t, 5); stats.Mismatches == 0 {
				t.Errorf("got %+v; log:\n%s", stats, c.log)
			}
			if all := c.requests(); name == "a page of names" && !strings.Contains(strings.Join(all, ","), "names n/0999") {
				t.Errorf("the second page of names was never asked for: %q", all)
			}
		})
	}
}

// TestWhatNeverAgreesIsNotKept: a collection that differs again after it was loaded anew is given up for a time.
// (TestPauseAfterMismatches has for how long.)
func TestWhatNeverAgreesIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t, 10, checkEvery)
		c.answers(func(r *http.Request) (int, string) {
			if r.Header.Get("Accept") != media.JSONType {
				return 0, ""
			}
			return http.StatusOK, strings.Replace(c.list(uint64(c.Revision())), "value", "other", 1) // #nosec G115 -- it was none
		})
		c.await(t, 1)
		if _, unavailable := c.use(t).NotOlderThan(t.Context(), 0); unavailable != reason.None || c.loaded() != 2 {
			t.Fatalf("after the first mismatch: %q, loaded %d times", unavailable, c.loaded())
		}
		if stats := c.await(t, 2); stats.Mismatches != 2 {
			t.Fatalf("got %+v", stats)
		}
		if running := c.collections.Stats(); len(running) != 0 || c.collections.Mismatched()[widgets].Mismatches != 2 {
			t.Errorf("nothing is kept (%+v), and what was wrong is told all the same: %+v", running, c.collections.Mismatched())
		}
		if _, unavailable := c.collections.Use(widgets); unavailable != reason.Form {
			t.Errorf("after the second: %q, want %q", unavailable, reason.Form)
		}
		time.Sleep(unlikelyRetry)
		synctest.Wait()
		c.use(t)
	})
}
