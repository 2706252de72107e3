package snapshot

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// upstream is an API server in memory with two config maps, for what a real one cannot be made
// to do in a bubble of fake time. Its watches are the test's.
type upstream struct {
	// watch answers a watch that goes on from a state, that of a load too: lines, and then nothing
	// until its timeout, unless the last says that it is cut, or is no whole line.
	watch func(from uint64) []string
	// overstays is for how long after their timeout watches go on that last.
	overstays time.Duration
	// hot: the first object has changed again whenever it is looked at.
	hot bool
	// changes: right after the first load, at revision 7, b changes at revision 8, and the upstream is at 9
	// then. So there is an event from which a watch can be resumed.
	changes bool
	// past is what a watch tells that begins before that change; nil: the same once more.
	past []string
	// tells is what watches that last tell every second, or after each of these pauses.
	tells  string
	pauses time.Duration
	// exactly are the objects that a list at exactly a revision has; nil: what there is at first.
	// compared counts those lists of metadata.
	exactly  func(revision string) []string
	compared int
	// refuses, if it is not 0, is what probes are answered with, to be asked again in 20 s; refusal
	// is the body.
	refuses int
	refusal string

	mu       sync.Mutex
	revision uint64
	watches  int // that go on from a state
	probes   int
	loads    int
}

const (
	itemA = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}`
	itemB = `{"metadata":{"name":"b","namespace":"n","resourceVersion":"7"}}`
)

// aStatus is an error of an API server.
const aStatus = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcdserver: leader changed","code":500}`

// again is what a watch tells that begins before the change at revision 8; nil if it begins later.
func (u *upstream) again(from uint64) []string {
	if !u.changes || from >= 8 {
		return nil
	}
	if u.past != nil {
		return u.past
	}
	return []string{inEvent("MODIFIED", itemBAt(8)), bookmark(9, "")}
}

// cut, as the last line of a watch, ends it there: without an error, as a server does that is shut
// down.
const cut = "<cut>"

// inEvent is an item as a watch sends it.
func inEvent(kind, item string) string {
	return `{"type":"` + kind + `","object":{"kind":"ConfigMap","apiVersion":"v1",` + item[1:] + "}\n"
}

func bookmark(rev uint64, more string) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}}`+"\n", rev, more)
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	query := r.URL.Query()
	var body string
	lasts := false // until its timeout
	switch {
	case query.Get("sendInitialEvents") != "":
		body = inEvent("ADDED", itemA) + inEvent("ADDED", u.itemB()) + bookmark(u.revision, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
		u.loads++
		u.watches++
		lasts = true
		if u.changes && u.loads == 1 {
			u.revision = 9
			body += inEvent("MODIFIED", u.itemB())
		}
		body += strings.Join(u.watch(u.revision), "")
	case query.Get("watch") != "" && query.Get("fieldSelector") != "":
		switch {
		case !u.hot:
			body = inEvent("ADDED", itemA)
		case query.Get("resourceVersion") == "0":
			body = inEvent("ADDED", strings.Replace(itemA, `"5"`, `"8"`, 1))
		default: // from before the change that the list shows
			body = inEvent("MODIFIED", itemA) + inEvent("MODIFIED", strings.Replace(itemA, `"5"`, `"8"`, 1))
		}
	case query.Get("watch") != "":
		u.watches++
		from, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
		if err != nil {
			return nil, err
		}
		lasts = true
		told := u.again(from)
		if told == nil {
			told = u.watch(from)
		}
		body = strings.Join(told, "")
	case query.Get("resourceVersionMatch") == "Exact" && query.Get("limit") != "2":
		return u.compare(r), nil
	case query.Get("fieldSelector") != "":
		u.probes++
		if u.refuses > 0 {
			refused := answered(r, u.refuses, u.refusal)
			refused.Header.Set("Retry-After", "20")
			return refused, nil
		}
		body = u.list("", "")
	case query.Get("limit") == strconv.Itoa(sample):
		body = u.list(`,"continue":"x","remainingItemCount":1`, itemA)
	default:
		body = u.list("", itemA+","+u.itemB())
		if query.Get("resourceVersion") == "7" { // to prove the load
			body = strings.NewReplacer(`"resourceVersion":"9"`, `"resourceVersion":"7"`, u.itemB(), itemB).Replace(body)
		}
	}
	body, isCut := strings.CutSuffix(body, cut)
	lasts = lasts && !isCut && (body == "" || strings.HasSuffix(body, "\n"))
	resp := answered(r, http.StatusOK, body)
	resp.ContentLength = int64(len(body)) // what it says first
	if lasts {
		resp.Body = untilTimeout(r, body, u.tells, max(time.Second, u.pauses), u.overstays)
	}
	return resp, nil
}

// compare answers what is asked to compare the past: all names and revisions, and the newest
// object.
func (u *upstream) compare(r *http.Request) *http.Response {
	accept, rev, items := r.Header.Get("Accept"), r.URL.Query().Get("resourceVersion"), []string{itemA, u.itemB()}
	if u.exactly != nil {
		items = u.exactly(rev)
	}
	_, name, single := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	code, found := http.StatusOK, []string{}
	for _, item := range items {
		switch {
		case !single:
			found = append(found, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+item[1:])
		case strings.Contains(item, `"name":"`+name+`"`):
			found = append(found, item)
		}
	}
	body := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"` + rev + `"},"items":[` + strings.Join(found, ",") + "]}\n"
	switch {
	case !single && strings.Contains(accept, "protobuf"):
		code, body = http.StatusNotAcceptable, ""
	case !single:
		u.compared++
		body = strings.Replace(body, `"kind":"ConfigMapList","apiVersion":"v1"`, `"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`, 1)
	}
	return answered(r, code, body)
}

// untilTimeout is a body that says something and then the same after each pause, until the timeout of
// the watch or some time later.
func untilTimeout(r *http.Request, said, every string, pause, later time.Duration) io.ReadCloser {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		panic(err)
	}
	in, out := io.Pipe()
	go func() {
		over := time.Now().Add(time.Duration(seconds)*time.Second + later)
		for time.Now().Before(over) {
			if !clock.Sleep(r.Context(), min(pause, time.Until(over))) {
				_ = out.CloseWithError(r.Context().Err())
				return
			}
			if every != "" {
				_, _ = io.WriteString(out, every) // which nobody may read
			}
		}
		_ = out.Close()
	}()
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(said), in), in}
}

// itemB is the object b as it is now.
func (u *upstream) itemB() string {
	if u.changes && u.loads > 0 {
		return itemBAt(8)
	}
	return itemB
}

func (u *upstream) list(more, items string) string {
	return fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}`+"\n", u.revision, more, items)
}

// inBubble runs a test by its name, in a bubble of time of its own.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// collectionsOf returns collections of u.
func collectionsOf(t *testing.T, u http.RoundTripper, changes ...func(*Config)) *Collections {
	t.Helper()
	config := Config{
		Client: &http.Client{Transport: u},
		Base:   &url.URL{Scheme: "https", Host: "upstream"},
		Limits: Limits{History: time.Hour, Staleness: 90 * time.Second, Wait: 100 * time.Millisecond},
		Log:    slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	c := NewCollections(config)
	t.Cleanup(c.Close)
	return c
}

// fed runs a collection on u for a time and returns it.
func fed(t *testing.T, u http.RoundTripper, d time.Duration) *Collection {
	t.Helper()
	return fedWith(t, u, d, Settings{}, 90*time.Second)
}

// fedWith is fed, with settings, and a bound on the age of the newest state.
func fedWith(t *testing.T, u http.RoundTripper, d time.Duration, settings Settings, bound time.Duration) *Collection {
	t.Helper()
	c, absence := collectionsOf(t, u, func(c *Config) {
		c.Limits.Staleness = bound
		c.Settings = func(schema.GroupVersionResource) Settings { return settings }
	}).Use(configMaps)
	if absence != reason.None {
		t.Fatal(absence)
	}
	time.Sleep(d)
	synctest.Wait()
	return c
}

// TestNamesAreEscapedInSelectors: RBAC objects may have names with what separates the parts of a field
// selector. A collection whose first object has such a name is learned all the same.
func TestNamesAreEscapedInSelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd := strings.Replace(itemA, `"a"`, `"a,b=c"`, 1)
		u := quiet()
		c := fed(t, meddled{u, func(r *http.Request) (time.Duration, *http.Response) {
			var body string
			switch q := r.URL.Query(); {
			case q.Get("limit") == strconv.Itoa(sample):
				body = u.list("", odd)
			case q.Has("watch") && q.Has("fieldSelector"):
				selector, err := fields.ParseSelector(q.Get("fieldSelector"))
				if err != nil || !selector.Matches(fields.Set{wire.NameField: "a,b=c"}) {
					return 0, tooBusy(r, http.StatusBadRequest)
				}
				body = inEvent("ADDED", odd)
			default:
				return 0, nil
			}
			return 0, answered(r, http.StatusOK, body)
		}}, time.Second)
		if _, why := c.Latest(t.Context(), 0); why != reason.None {
			t.Errorf("it is not known: %q", why)
		}
	})
}

// TestAWatchThatEndsAtOnceIsNotOpenedInALoop.
func TestAWatchThatEndsAtOnceIsNotOpenedInALoop(t *testing.T) {
	for name, watch := range map[string]func(uint64) []string{
		"nothing": func(uint64) []string { return []string{cut} },
		"an error": func(from uint64) []string {
			told := []string{}
			if from < 7 {
				told = append(told, inEvent("MODIFIED", itemB))
			}
			return append(told, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":500}}`+"\n")
		},
		"a broken line": func(uint64) []string { return []string{`{"type":`} },
	} {
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 7, changes: true, watch: watch}
			c := fed(t, u, time.Minute)
			if u.watches < 3 || u.watches > 30 || u.probes > 30 {
				t.Errorf("%d watches and %d probes in a minute", u.watches, u.probes)
			}
			if u.loads != 1 {
				t.Errorf("the state was loaded %d times", u.loads)
			}
			if _, absence := c.Latest(t.Context(), 0); absence != reason.None {
				t.Errorf("what was loaded: %q", absence)
			}
		})
	}
}

// TestAWatchThatIsCutAgainAndAgain but tells something each time is opened again soon: a pause that grew
// would leave what changes often ever further behind.
func TestAWatchThatIsCutAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 7, changes: true}
		u.watch = func(from uint64) []string {
			if u.watches == 1 { // the one that began with the state
				return []string{cut}
			}
			u.revision = max(u.revision, from+2)
			return []string{inEvent("MODIFIED", itemBAt(int(from)+1)), inEvent("MODIFIED", itemBAt(int(from)+2)), cut}
		}
		c := fed(t, u, time.Minute)
		if to := c.view.Load().To; u.loads != 1 || to < 400 {
			t.Errorf("in a minute it came to %d, with %d loads", to, u.loads)
		}
		if u.watches > 2000 {
			t.Errorf("%d watches in a minute", u.watches)
		}
	})
}

// TestAWatchThatEndsAtItsTimeout goes on where it was, and nothing is in doubt.
func TestAWatchThatEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 9}
		u.watch = func(from uint64) []string {
			if from != 9 {
				t.Errorf("a watch from %d, want 9", from)
			}
			return nil
		}
		c := fed(t, u, 6*watchTimeout)
		if u.watches < 4 || u.watches > 7 {
			t.Errorf("%d watches", u.watches)
		}
		if got := c.life.counts.stats(); got.Resumes > 0 || len(got.Losses) > 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestProbesWhateverTheStreamTells: a stream that tells something all the time is probed all the
// same. Where the upstream is too busy for a probe, or cannot answer it, the watch stays, and the
// state grows old.
func TestProbesWhateverTheStreamTells(t *testing.T) {
	for code, refusal := range map[int]string{
		http.StatusTooManyRequests:     "Too many requests, please try again later.",
		http.StatusInternalServerError: aStatus,
		http.StatusGatewayTimeout:      aStatus,
	} {
		inBubble(t, fmt.Sprint(code), func(t *testing.T) {
			u := &upstream{revision: 9, watch: func(uint64) []string { return nil }, tells: bookmark(9, ""), refusal: refusal}
			c := fed(t, u, time.Second)
			expect := func(refuses int, after time.Duration, atLeast, atMost int, want reason.Reason) {
				t.Helper()
				u.mu.Lock()
				u.refuses, u.probes = refuses, 0
				u.mu.Unlock()
				for end := time.Now().Add(after); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					if refuses > 0 {
						c.requestProbe() // all the time
					}
				}
				synctest.Wait()
				if u.probes < atLeast || u.probes > atMost {
					t.Errorf("%d probes in %v, want %d to %d", u.probes, after, atLeast, atMost)
				}
				if _, got := c.Latest(t.Context(), 0); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if u.watches != 1 || u.loads != 1 {
					t.Errorf("%d watches, %d loads", u.watches, u.loads)
				}
			}
			expect(0, 2*time.Minute, 6, 9, reason.None)
			expect(code, time.Minute, 3, 4, reason.None)
			expect(code, time.Minute, 3, 3, reason.Stale)
			expect(0, 21*time.Second, 1, 50, reason.None)
		})
	}
}

// TestAnotherPastIsLoaded: somebody else refuses, a balancer or an aggregator, whose API server may be
// another one by now. The stream is left, and opened again as after a break: the newest change, of b at 8,
// must be told again as it was, and nothing else up to 9. If it is not, the state is loaded anew.
func TestAnotherPastIsLoaded(t *testing.T) {
	for name, test := range map[string]struct {
		past  []string
		loads int
	}{
		"the same":            {nil, 1},
		"the same, and later": {[]string{inEvent("MODIFIED", itemBAt(8)), inEvent("MODIFIED", itemBAt(12)), bookmark(12, "")}, 1},
		"the same, and cut off after what is later": {[]string{inEvent("MODIFIED", itemBAt(8)), inEvent("MODIFIED", itemBAt(12)), cut}, 1},
		"other bytes": {[]string{
			inEvent("MODIFIED", strings.Replace(itemBAt(8), `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)), bookmark(9, ""),
		}, 2},
		"another object": {[]string{inEvent("MODIFIED", strings.Replace(itemBAt(8), `"b"`, `"c"`, 1)), bookmark(9, "")}, 2},
		"a deletion":     {[]string{inEvent("DELETED", itemBAt(8)), bookmark(9, "")}, 2},
		"one more":       {[]string{inEvent("MODIFIED", itemBAt(8)), inEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, 2},
		"another one":    {[]string{inEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, 2},
		"nothing":        {[]string{bookmark(9, "")}, 2},
	} {
		inBubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 7, changes: true, tells: bookmark(9, ""), past: test.past, refusal: "no server is available"}
			u.watch = func(uint64) []string { return nil }
			c := fed(t, u, time.Second)
			u.mu.Lock()
			u.refuses = http.StatusServiceUnavailable
			u.mu.Unlock()
			time.Sleep(time.Minute)
			u.mu.Lock()
			u.refuses = 0
			u.mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := c.life.counts.stats(); u.loads != test.loads || got.Resumes != uint64(2-test.loads) || test.loads == 1 && u.watches != 3 {
				t.Errorf("%d loads, want %d; %d resumes, %d watches", u.loads, test.loads, got.Resumes, u.watches)
			}
		})
	}
}

// TestTheFirstProbeIsRefused: the watch that came with the state goes on.
func TestTheFirstProbeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 9, watch: func(uint64) []string { return []string{bookmark(30, "")} }}
		c := fed(t, meddled{u, func(*http.Request) (time.Duration, *http.Response) {
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.loads > 0 {
				u.refuses = http.StatusTooManyRequests
			}
			return 0, nil
		}}, time.Minute)
		if to := c.view.Load().To; to != 30 || u.watches != 1 || u.probes == 0 {
			t.Errorf("come to %d with %d watches and %d probes", to, u.watches, u.probes)
		}
	})
}

// TestAHotFirstObjectKeepsNothingOut: the form of objects is learned from one that has changed
// again before a watch can show it.
func TestAHotFirstObjectKeepsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 9, hot: true, watch: func(uint64) []string { return []string{bookmark(9, "")} }}
		c := fed(t, u, time.Millisecond)
		if _, absence := c.Exact(t.Context(), 9); absence != reason.None {
			t.Errorf("got %q", absence)
		}
	})
}

func TestPageSize(t *testing.T) {
	for mean, want := range map[int64]int64{0: initialLimit, 400: initialLimit, 32 << 10: 1024, 1 << 20: 50, 1 << 40: 50} {
		if got := (learned{mean: mean}).pageSize(); got != want {
			t.Errorf("objects of %d bytes: pages of %d, want %d", mean, got, want)
		}
	}
}

// TestNamesThatAreNotUTF8: JSON shows such bytes as U+FFFD, so neither the order nor the tokens
// of a list could be right.
func TestNamesThatAreNotUTF8(t *testing.T) {
	f := &feed{source: source.Source{Resource: Resource{Namespaced: true}}}
	for _, m := range []wire.ObjectMeta{{Namespace: "n", Name: "a\ufffd"}, {Namespace: "\ufffd", Name: "a"}} {
		if _, err := f.key(m); !errors.Is(err, wire.ErrForm) {
			t.Errorf("%+v: %v, want %v", m, err, wire.ErrForm)
		}
	}
	if key, err := f.key(wire.ObjectMeta{Namespace: "n", Name: "𐀀:a"}); err != nil || key != "n/𐀀:a" {
		t.Errorf("got %q, %v", key, err)
	}
}
