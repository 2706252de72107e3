package snapshot

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// first is what the first watch tells; all others tell how far the upstream is.
func first(lines ...string) func(int, uint64) []string {
	return func(n int, _ uint64) []string {
		if n == 1 {
			return lines
		}
		return []string{bookmark(9, "")}
	}
}

// denies answers requests of a kind with a status.
func denies(kind string, code int) meddling {
	return func(r *http.Request, is string) (time.Duration, *http.Response) {
		if is != kind {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, code, aStatus)
	}
}

// loadsAre answers streaming lists of what there is with a text.
func loadsAre(text string) meddling {
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if kind != "load" || r.URL.Query().Has("fieldSelector") {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, text)
	}
}

// probesGoBack answers probes after the load with a revision below it; those over connections of their own only if
// the storage was replaced.
func probesGoBack(replaced bool) meddling {
	goesBack := fault{kind: "probe", from: afterTheLoad, lasts: 25 * time.Second, code: http.StatusOK}.meddle()
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if _, meddles := goesBack(r, kind); meddles == nil || r.Close && !replaced {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(3, ""))
	}
}

// inPages answers streaming lists with an error, and the list with two pages.
func inPages(page, second string) meddling {
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		switch q := r.URL.Query(); {
		case kind == "load":
			return 0, proxytest.JSONResponse(r, http.StatusUnprocessableEntity, "{}")
		case q.Has("continue"):
			return 0, proxytest.JSONResponse(r, http.StatusOK, second)
		case q.Get("limit") == strconv.Itoa(initialLimit):
			return 0, proxytest.JSONResponse(r, http.StatusOK, page)
		}
		return 0, nil
	}
}

// afterTheLoad is soon after the upstream is asked first: a state is loaded and compared, which takes no time.
const afterTheLoad = time.Millisecond

// fault is what an upstream does wrong: requests of a kind ("": of any) are answered late, or with a status. It begins some
// time after the first request, and lasts for a time, or for ever.
type fault struct {
	kind        string
	from, lasts time.Duration
	everyOther  bool // only every second request
	late        time.Duration
	code        int
}

func (f fault) meddle() meddling {
	var begun time.Time
	asked := 0
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if begun.IsZero() {
			begun = time.Now()
		}
		since := time.Since(begun) - f.from
		if f.kind != "" && f.kind != kind || since < 0 || f.lasts > 0 && since > f.lasts {
			return 0, nil
		}
		if asked++; f.everyOther && asked%2 != 0 {
			return 0, nil
		}
		if f.code != 0 {
			return 0, busy(r, f.code, "1")
		}
		return f.late, nil
	}
}

// between are the least and the most; none: any number.
type between [2]int

func (b between) has(n int) bool { return b == between{} || b[0] <= n && n <= b[1] }

// TestFeed: what an API server tells that cannot be, or does not give, and what becomes of what is known.
func TestFeed(t *testing.T) {
	page := (&upstream{}).list
	lost := func(why reason.Reason) FeedStats {
		return FeedStats{Loads: 2, Losses: map[reason.Reason]uint64{why: 1}}
	}
	loaded, nothing := FeedStats{Loads: 1}, FeedStats{}
	cutAgain := &upstream{changes: true}
	cutAgain.watch = func(_ int, from uint64) []string {
		cutAgain.revision = max(cutAgain.revision, from+2)
		return []string{inEvent("MODIFIED", itemBAt(from+1)), inEvent("MODIFIED", itemBAt(from+2)), cut}
	}
	for name, tt := range map[string]struct {
		*upstream
		takes   time.Duration // a minute if it is not said
		newest  reason.Reason
		to      uint64    // or later
		want    FeedStats // except for resumes
		watches between
		probes  between
	}{
		"nothing": {upstream: &upstream{}, to: 9, want: loaded},
		"a watch that ends at its timeout, and others": {upstream: &upstream{}, takes: 6 * watchTimeout, watches: between{4, 7}, want: loaded},
		"probes are refused after the load": {
			upstream: &upstream{tells: bookmark(30, ""), meddle: fault{kind: "probe", from: afterTheLoad, code: http.StatusTooManyRequests}.meddle()},
			to:       30, watches: between{1, 1}, want: loaded,
		},
		"the first object changes whenever it is looked at": {upstream: &upstream{meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
			later := strings.Replace(itemA, `"5"`, `"8"`, 1)
			switch {
			case kind != "watch of one":
				return 0, nil
			case r.URL.Query().Get("resourceVersion") == "0":
				return 0, proxytest.JSONResponse(r, http.StatusOK, inEvent("ADDED", later))
			}
			return 0, proxytest.JSONResponse(r, http.StatusOK, inEvent("MODIFIED", itemA)+inEvent("MODIFIED", later))
		}}, want: loaded},

		// Streams that end at once are not opened in a loop.
		"watches that end": {
			upstream: &upstream{changes: true, watch: func(int, uint64) []string { return []string{cut} }},
			watches:  between{3, 30}, probes: between{1, 30}, want: loaded,
		},
		"watches that end with an error": {
			upstream: &upstream{changes: true, watch: func(int, uint64) []string { return []string{inStream(http.StatusInternalServerError)} }},
			watches:  between{3, 30}, probes: between{1, 30}, want: loaded,
		},
		"watches that break": {
			upstream: &upstream{changes: true, watch: func(int, uint64) []string { return []string{`{"type":`} }},
			watches:  between{3, 30}, probes: between{1, 30}, want: loaded,
		},
		// A pause that grew would leave what changes often ever further behind.
		"watches that tell something each time before they end": {upstream: cutAgain, to: 400, watches: between{100, 2000}, want: loaded},

		// What cannot be is not passed over.
		"an event that is no JSON": {
			upstream: &upstream{watch: first(`{"type":"MODIFIED","object":{"kind":"ConfigMap",}}` + "\n")}, want: lost(reason.Contradiction),
		},
		"an event of another kind": {
			upstream: &upstream{watch: first(strings.Replace(inEvent("MODIFIED", itemBAt(12)), "ConfigMap", "Secret", 1))}, want: lost(reason.Contradiction),
		},
		"what is added and there":                      {upstream: &upstream{watch: first(inEvent("ADDED", itemBAt(12)))}, want: lost(reason.Contradiction)},
		"what is modified and not there":               {upstream: &upstream{watch: first(inEvent("MODIFIED", itemC))}, want: lost(reason.Contradiction)},
		"what is deleted and not there":                {upstream: &upstream{watch: first(inEvent("DELETED", itemC))}, want: lost(reason.Contradiction)},
		"a change below the revision that was reached": {upstream: &upstream{watch: first(inEvent("MODIFIED", itemB))}, want: lost(reason.Contradiction)},
		"a bookmark below the revision of the load":    {upstream: &upstream{watch: first(bookmark(8, ""))}, want: loaded},
		"a bookmark that goes back, and the revision too": {
			upstream: &upstream{watch: first(bookmark(3, "")), meddle: probesGoBack(true)}, takes: 5 * time.Second,
			newest: reason.Warming, want: FeedStats{Loads: 1, Losses: map[reason.Reason]uint64{reason.WentBack: 1}},
		},
		"a revision that goes back for a moment": {upstream: &upstream{meddle: probesGoBack(false)}, want: loaded},
		"a revision that goes back":              {upstream: &upstream{meddle: probesGoBack(true)}, want: lost(reason.WentBack)},
		"what came since is forgotten":           {upstream: &upstream{watch: first(inStream(http.StatusGone))}, want: lost(reason.Expired)},
		"a state that is written in another way": {upstream: &upstream{meddle: func(r *http.Request, _ string) (time.Duration, *http.Response) {
			if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
				return 0, nil
			}
			return 0, proxytest.JSONResponse(r, http.StatusOK, page(9, "", itemA, strings.Replace(itemB, "}}", `},"data":null}`, 1)))
		}}, newest: reason.Form, want: nothing},
		"pages": {upstream: &upstream{meddle: inPages(page(9, `,"continue":"x"`, itemA), page(9, "", itemB))}, want: loaded},
		"pages of two revisions": {
			upstream: &upstream{meddle: inPages(page(8, `,"continue":"x"`, itemA), page(9, "", itemB))},
			newest:   reason.Warming, want: nothing,
		},
		"what came since is forgotten, and then the upstream is away": {
			upstream: &upstream{watch: first(inStream(http.StatusGone)), meddle: fault{from: afterTheLoad, lasts: time.Minute, code: http.StatusServiceUnavailable}.meddle()},
			takes:    3 * time.Minute, want: lost(reason.Expired),
		},
		// An API server that is slow, or refuses some requests, costs no second load.
		"a probe without an answer": {
			upstream: &upstream{changes: true, meddle: fault{kind: "probe", from: time.Minute, lasts: 20 * time.Second, late: time.Hour}.meddle()}, takes: time.Hour, want: loaded,
		},
		"429 to every other watch": {
			upstream: &upstream{changes: true, meddle: fault{kind: "watch", everyOther: true, code: http.StatusTooManyRequests}.meddle()}, takes: time.Hour, want: loaded,
		},
		"watches answered after six seconds": {
			upstream: &upstream{changes: true, meddle: fault{kind: "watch", late: 6 * time.Second}.meddle()}, takes: time.Hour, want: loaded,
		},
		"everything is late by twenty seconds": {
			upstream: &upstream{changes: true, meddle: fault{from: time.Minute, lasts: 39 * time.Minute, late: 20 * time.Second}.meddle()}, takes: time.Hour, want: loaded,
		},
		"half of everything is refused, and a watch breaks": {
			upstream: &upstream{changes: true, watch: first(cut), meddle: fault{from: time.Second, lasts: 39 * time.Minute, everyOther: true, code: http.StatusTooManyRequests}.meddle()},
			takes:    time.Hour, want: loaded,
		},
		"a streaming list that is silent is begun anew": {upstream: &upstream{meddle: func() meddling {
			n := 0
			return func(r *http.Request, kind string) (time.Duration, *http.Response) {
				if kind != "load" {
					return 0, nil
				}
				if n++; n > 1 {
					return 0, nil
				}
				return 0, (&upstream{}).lasting(r, "", "", time.Hour)
			}
		}()}, want: loaded},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := tt.upstream
			if u.revision = 9; u.changes {
				u.revision = 7
			}
			if u.watch == nil {
				u.watch = first(bookmark(9, ""))
			}
			c := fed(t, u, cmp.Or(tt.takes, time.Minute))
			_, newest := c.NotOlderThan(t.Context(), 0)
			if to := c.view.Load().To; newest != tt.newest || to < tt.to {
				t.Errorf("the newest state: %q at %d, want %q at %d", newest, to, tt.newest, tt.to)
			}
			expect.Same(t, tt.want, c.life.counts.stats())
			u.mu.Lock()
			defer u.mu.Unlock()
			if !tt.watches.has(u.watches) || !tt.probes.has(u.probes) {
				t.Errorf("%d watches and %d probes, want %v and %v", u.watches, u.probes, tt.watches, tt.probes)
			}
		})
	}
}

// TestStreamingListsThatFail: the state is loaded page by page.
func TestStreamingListsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		meddle meddling
		newest reason.Reason
		// streaming lists of clients are the upstream's; else it fails only for the resource's own state.
		forwards bool
	}{
		"422":           {meddle: denies("load", http.StatusUnprocessableEntity), forwards: true},
		"500":           {meddle: denies("load", http.StatusInternalServerError), forwards: true},
		"in the stream": {meddle: loadsAre(inStream(http.StatusInternalServerError))},
		"it ends":       {meddle: loadsAre("")},
		"429":           {meddle: denies("load", http.StatusTooManyRequests), newest: reason.Warming},
		"403":           {meddle: denies("load", http.StatusForbidden), newest: reason.NotPermitted},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := watched(t, &upstream{revision: 9, meddle: tt.meddle}, time.Minute)
			snap, newest := c.NotOlderThan(t.Context(), 0)
			if newest != tt.newest {
				t.Errorf("the newest state: %q, want %q", newest, tt.newest)
			}
			if form := snap.WatchForm(); newest == reason.None && (form == nil || (form.InitialEnd == nil) != tt.forwards) {
				t.Errorf("watches have the form %+v", form)
			}
		})
	}
}

// TestStreamingListsWithoutEnd: where a streaming list is not ended by its bookmark, states are loaded in pages for
// an hour: each such list costs the upstream a whole one. Where the upstream ends none, watches begin at revisions
// only.
func TestStreamingListsWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		small bool   // that of a name that cannot exist has no end either
		tells string // what it has, instead
		asked int    // whole ones, in the first hour
	}{
		"no list has an end":    {small: true},
		"an ordinary bookmark":  {small: true, tells: bookmark(9, "")},
		"a large list has none": {asked: 1},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			asked := 0
			c := watched(t, &upstream{revision: 9, meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
				whole := !r.URL.Query().Has("fieldSelector")
				if kind != "load" || !whole && !tt.small {
					return 0, nil
				}
				if whole {
					asked++
				}
				return 0, (&upstream{}).lasting(r, "", tt.tells, time.Second)
			}}, time.Minute)
			for range 3 {
				snap, newest := c.NotOlderThan(t.Context(), 0)
				if form := snap.WatchForm(); newest != reason.None || form == nil || (form.InitialEnd == nil) != tt.small {
					t.Fatalf("the newest state: %q; watches have the form %+v", newest, form)
				}
				c.loadAnew()
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			if asked != tt.asked {
				t.Errorf("%d whole streaming lists in a few minutes, want %d", asked, tt.asked)
			}
			time.Sleep(noStreamingFor)
			c.loadAnew()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !tt.small && asked != tt.asked+1 {
				t.Errorf("%d whole streaming lists after an hour, want %d", asked, tt.asked+1)
			}
		})
	}
}

// TestAnotherPastIsLoaded: somebody else refuses, a balancer or an aggregator, whose API server may be
// another one by now. The stream is left, and opened again as after a break: the newest change, of b at 8,
// must be told again as it was, and nothing else up to 9. If it is not, the state is loaded anew.
func TestAnotherPastIsLoaded(t *testing.T) {
	b := inEvent("MODIFIED", itemBAt(8))
	for name, test := range map[string]struct {
		past  []string
		loads int
	}{
		"the same":            {nil, 1},
		"the same, and later": {[]string{b, inEvent("MODIFIED", itemBAt(12)), bookmark(12, "")}, 1},
		"the same, and cut off after what is later": {[]string{b, inEvent("MODIFIED", itemBAt(12)), cut}, 1},
		"other bytes":    {[]string{strings.Replace(b, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1), bookmark(9, "")}, 2},
		"another object": {[]string{strings.Replace(b, `"b"`, `"c"`, 1), bookmark(9, "")}, 2},
		"a deletion":     {[]string{inEvent("DELETED", itemBAt(8)), bookmark(9, "")}, 2},
		"one more":       {[]string{b, inEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, 2},
		"another one":    {[]string{inEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, 2},
		"nothing":        {[]string{bookmark(9, "")}, 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			begun := time.Now()
			u := &upstream{revision: 7, changes: true, tells: bookmark(9, ""), past: test.past, meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
				if since := time.Since(begun); kind != "probe" || since < time.Second || since > time.Minute {
					return 0, nil
				}
				return 0, proxytest.JSONResponse(r, http.StatusServiceUnavailable, "no server is available")
			}}
			fed(t, u, 2*time.Minute)
			if u.loads != test.loads || test.loads == 1 && u.watches != 3 {
				t.Errorf("%d loads, want %d; %d watches", u.loads, test.loads, u.watches)
			}
		})
	}
}

// TestSameServersSamePast: after a break, a collection in which nothing has changed since its load goes on, and keeps
// its history, if an API server that was there before is there still. That may be known only when it has renewed its
// Lease. Else it is loaded anew.
func TestSameServersSamePast(t *testing.T) {
	for name, tt := range map[string]struct {
		sameAfter int // so many times it may be so
		mayBe     bool
		loads     int
	}{
		"the same":                 {loads: 1},
		"the same, as shown later": {sameAfter: leaseWaits, mayBe: true, loads: 1},
		"may be, and never shown":  {sameAfter: 100, mayBe: true, loads: 2},
		"others, or nobody knows":  {sameAfter: 100, loads: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			asked := 0
			u := &upstream{revision: 9, watch: func(n int, _ uint64) []string {
				if n == 1 {
					return []string{bookmark(9, ""), cut}
				}
				return []string{bookmark(9, "")}
			}}
			c, _ := collectionsOf(t, u, func(c *Config) {
				c.SameTimeline = func(_ context.Context, revision uint64, currentAt time.Time) (same, mayBe bool) {
					if revision != 9 || time.Since(currentAt) > time.Minute {
						t.Errorf("asked about revision %d, currentAt %v ago", revision, time.Since(currentAt))
					}
					asked++
					return asked > tt.sameAfter, tt.mayBe
				}
			}).Use(configMaps)
			time.Sleep(time.Minute)
			synctest.Wait()
			if u.loads != tt.loads || asked > leaseWaits+1 {
				t.Errorf("%d loads, want %d; asked %d times", u.loads, tt.loads, asked)
			}
			if _, why := c.Exact(t.Context(), 9); why != reason.None {
				t.Errorf("the state at 9: %q", why)
			}
		})
	}
}

// TestFeedsComeAgainWhenTheyAreToldTo, whether they learn, load, follow or ask how far the upstream is, and
// however many wait for that.
func TestFeedsComeAgainWhenTheyAreToldTo(t *testing.T) {
	for name, tt := range map[string]struct {
		meddle meddling
		tells  string // by the first watch
		newest reason.Reason
	}{
		"learning":  {denies("probe", http.StatusTooManyRequests), "", reason.Warming},
		"loading":   {denies("load", http.StatusTooManyRequests), "", reason.Warming},
		"following": {denies("watch", http.StatusServiceUnavailable), cut, reason.Stale},
		"asking":    {fault{kind: "probe", from: afterTheLoad, code: http.StatusTooManyRequests}.meddle(), bookmark(9, ""), reason.Stale},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			refused := 0
			u := &upstream{revision: 9, watch: first(tt.tells), tells: bookmark(9, ""), meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
				hold, answer := tt.meddle(r, kind)
				if answer != nil {
					refused++
					answer.Header.Set("Retry-After", "40")
				}
				return hold, answer
			}}
			c := fed(t, u, 0)
			for begun := time.Now(); time.Since(begun) < 100*time.Second; time.Sleep(100 * time.Millisecond) {
				c.requestProbe()
			}
			synctest.Wait()
			if refused < 2 || refused > 3 {
				t.Errorf("asked %d times in 100s, told to wait for 40s", refused)
			}
			if _, newest := c.NotOlderThan(t.Context(), 0); newest != tt.newest {
				t.Errorf("the newest state: %q, want %q", newest, tt.newest)
			}
		})
	}
}

// TestFeedsAreWoken: who names a revision while no stream is read gets it from the upstream, and wakes the
// feed. So does a 410 to somebody's watch.
func TestFeedsAreWoken(t *testing.T) {
	for name, wake := range map[string]func(*testing.T, *Collection){
		"somebody names the newest state": func(t *testing.T, c *Collection) {
			t.Helper()
			for rev, want := range map[uint64]reason.Reason{0: reason.None, 8: reason.NotProven} {
				if _, why := c.NotOlderThan(t.Context(), rev); why != want {
					t.Errorf("not older than %d: %q, want %q", rev, why, want)
				}
			}
		},
		"a watch is too old": func(_ *testing.T, c *Collection) { c.requestProbe() },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			const down = 50 * time.Second
			begun := time.Now()
			u := &upstream{
				revision: 7, changes: true,
				watch: func(int, uint64) []string {
					if time.Since(begun) < down {
						return []string{cut}
					}
					return []string{bookmark(9, "")}
				},
				meddle: func(r *http.Request, kind string) (time.Duration, *http.Response) {
					if strings.HasSuffix(kind, "watch") && time.Since(begun) < down {
						return 0, busy(r, http.StatusTooManyRequests, "0")
					}
					return 0, nil
				},
			}
			c := fed(t, u, down)
			wake(t, c)
			time.Sleep(minStreamLife)
			synctest.Wait()
			if !c.view.Load().streaming {
				t.Error("it is not followed again a moment later")
			}
			if _, why := c.NotOlderThan(t.Context(), 9); why != reason.None {
				t.Errorf("the newest state, when it is followed again: %q", why)
			}
		})
	}
}

// TestOddNames: RBAC objects may have names with what separates the parts of a field selector, and bytes that
// are not UTF-8. JSON shows these as U+FFFD, so neither the order nor the tokens of a list could be right.
func TestOddNames(t *testing.T) {
	selector, err := fields.ParseSelector(source.Named("a,b=c"))
	if err != nil || !selector.Matches(fields.Set{wire.NameField: "a,b=c"}) {
		t.Errorf("%v does not choose a,b=c: %v", selector, err)
	}
	f := &feed{source: source.Source{Resource: CollectionKey{Namespaced: true}}}
	for _, m := range []wire.ObjectMeta{{Namespace: "n", Name: "a\ufffd"}, {Namespace: "\ufffd", Name: "a"}} {
		if _, err := f.source.Key(m); !errors.Is(err, wire.ErrForm) {
			t.Errorf("%+v: %v, want %v", m, err, wire.ErrForm)
		}
	}
	if key, err := f.source.Key(wire.ObjectMeta{Namespace: "n", Name: "𐀀:a"}); err != nil || key != "n/𐀀:a" {
		t.Errorf("got %q, %v", key, err)
	}
}
