package snapshot

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// bounds are the least and the most that a number may be.
type bounds struct{ least, most int }

// anyNumber is the zero value of bounds. It allows any number.
var anyNumber = bounds{}

func (b bounds) contain(n int) bool { return b == anyNumber || b.least <= n && n <= b.most }

// feedCase is what happens to a feed, and what is expected of it. A feed is the goroutine that loads the state of a collection,
// and keeps it up to date with a watch, its stream. It asks for the upstream's newest revision with probes.
type feedCase struct {
	intercept interceptor   // nil: the API server answers all requests
	afterLoad func(*plane)  // called right after the first load; nil: nothing happens
	duration  time.Duration // how long the feed runs after the first load; 0: a minute

	wantUnavailable reason.Reason // why there is no newest state at the end; None: there is one
	wantRevision    uint64        // the lowest revision that the newest state may have at the end
	wantLoss        reason.Reason // the cause of the only loss of the state; None: no state is lost
	wantWatches     bounds        // the number of watches that the feed opens, including the streaming lists of loads
	wantProbes      bounds        // the number of probes that the feed sends
}

// check runs a feed. It checks the newest state at the end, the losses, and the numbers of requests.
func (tt feedCase) check(t *testing.T) {
	t.Helper()
	p := newPlane(t, "a", "b")
	p.KeepAll() // a watch cache has the events of a quiet resource for hours
	p.intercept(tt.intercept)
	c := runFeed(t, p, justLoaded)
	if tt.afterLoad != nil {
		tt.afterLoad(p)
	}
	time.Sleep(cmp.Or(tt.duration, time.Minute))
	synctest.Wait()
	expectUnavailable(t, c, tt.wantUnavailable)
	if revision := c.view.Load().To; revision < tt.wantRevision {
		t.Errorf("the newest state: got revision %d, want at least %d", revision, tt.wantRevision)
	}
	expectLossCause(t, c, tt.wantLoss)
	if n := p.count(kindStreamingList, kindWatch, kindShortWatch); !tt.wantWatches.contain(n) {
		t.Errorf("got %d watches, want %+v", n, tt.wantWatches)
	}
	if n := p.count(kindProbe); !tt.wantProbes.contain(n) {
		t.Errorf("got %d probes, want %+v", n, tt.wantProbes)
	}
}

// send returns a function for feedCase.afterLoad that sends a line into the feed's stream.
func send(line string) func(*plane) {
	return func(p *plane) { p.Send(inmemory.Widgets.Path, line) }
}

// noLine is the argument of changeAndEnd for a stream that ends without another line.
const noLine = ""

// changeAndEnd returns a function for feedCase.afterLoad. It changes the widget b and lets the feed see that. Then it sends a
// line into the feed's stream, and ends the stream as an API server does that is shut down. With noLine, it sends none.
func changeAndEnd(line string) func(*plane) {
	return func(p *plane) {
		p.write("b")
		synctest.Wait()
		if line != noLine {
			p.Send(inmemory.Widgets.Path, line)
		}
		p.End(inmemory.Widgets.Path)
	}
}

// TestFeed: a feed loads a state and keeps it, though objects change, watches end at their timeouts, a load is silent, or
// probes are refused. It accepts no state whose pages are of two revisions, or that the upstream writes in two ways.
func TestFeed(t *testing.T) {
	// To learn how events hold objects, a feed lists the first object, and then watches it from any revision. Here, the object
	// changes in between.
	firstObjectChanges := func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		if kindOf(r) == kindWatchOfOne && r.URL.Query().Get("resourceVersion") == "0" {
			p.write("a")
		}
		return 0, nil
	}
	silentFirstLoad := answerKind(kindStreamingList, answerFirst(1, sendEvery(time.Hour, "")))
	refusedProbes := fault{kind: kindProbe, begins: afterTheLoad, answer: refuseFor(http.StatusTooManyRequests, time.Second)}
	// After a load by a streaming list, a feed compares the state with a list at the same revision. Here, the list has another
	// field.
	listHasOtherBytes := func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			return 0, nil
		}
		list := p.list(loadedAt, inmemory.List{})
		return 0, respond(http.StatusOK, strings.Replace(list, `,"spec"`, `,"data":null,"spec"`, 1))(r)
	}
	for name, tt := range map[string]feedCase{
		"nothing changes": {wantRevision: loadedAt},
		"watches end at their timeouts": {
			// The load's streaming list is the first stream. Each stream lasts 5 to 10 minutes, so in 30 minutes there are 4 to
			// 7.
			duration: 6 * watchTimeout, wantWatches: bounds{least: 4, most: 7},
		},
		"the first object changes between the list and the watch that learn its form": {intercept: firstObjectChanges},
		"the first streaming list is silent":                                          {intercept: silentFirstLoad},
		"the state comes in pages": {
			intercept: loadInPages(pagesAt(loadedAt, loadedAt)),
		},
		"the pages are of two revisions": {
			intercept:       loadInPages(pagesAt(loadedAt-1, loadedAt)),
			wantUnavailable: reason.Warming,
		},
		"probes are refused, and a bookmark comes": { // a stream's first bookmark comes after 60 to 65 seconds
			intercept: refusedProbes.intercept(), afterLoad: func(p *plane) { p.writeElsewhere() }, duration: 70 * time.Second,
			wantRevision: loadedAt + 1, wantWatches: bounds{least: 1, most: 1},
		},
		"the list has other bytes than the streaming list": {
			intercept:       listHasOtherBytes,
			wantUnavailable: reason.Form,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfBrokenStreams: a feed whose streams end at once opens another after each, with growing pauses. The pauses do not
// grow if streams send events first, or the feed of a resource that changes often would fall ever further behind.
func TestFeedOfBrokenStreams(t *testing.T) {
	twoChanges := func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		if kindOf(r) != kindWatch {
			return 0, nil
		}
		return 0, respond(http.StatusOK, event("MODIFIED", "b", p.write("b"))+event("MODIFIED", "b", p.write("b")))(r)
	}
	const incomplete = `{"type":`
	// Each case lasts a minute. With growing pauses, there are few requests in it. If the pauses do not grow, there are more
	// than three watches a second.
	fewWatches, fewProbes := bounds{least: 3, most: 30}, bounds{least: 1, most: 30}
	const leastWatches = 195
	for name, tt := range map[string]feedCase{
		"all watches end": {
			intercept: answerKind(kindWatch, respond(http.StatusOK, "")), afterLoad: changeAndEnd(noLine),
			wantWatches: fewWatches, wantProbes: fewProbes,
		},
		"all watches break within an event": {
			intercept: answerKind(kindWatch, respond(http.StatusOK, incomplete)), afterLoad: changeAndEnd(incomplete),
			wantWatches: fewWatches, wantProbes: fewProbes,
		},
		"all watches send two events and end": {
			intercept: twoChanges, afterLoad: changeAndEnd(noLine),
			wantWatches:  bounds{least: leastWatches, most: 2000},
			wantRevision: loadedAt + 1 + 2*leastWatches, // the change of changeAndEnd, and two of each watch
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestContradictingEvents: a feed drops a state that an event contradicts, counts the loss, and loads the state anew.
func TestContradictingEvents(t *testing.T) {
	for name, line := range map[string]string{
		"no JSON":                               `{"type":"MODIFIED","object":{"kind":"Widget",}}` + "\n",
		"another kind":                          strings.Replace(event("MODIFIED", "b", loadedAt+3), "Widget", "Gadget", 1),
		"a known object is added":               event("ADDED", "b", loadedAt+3),
		"an unknown object is modified":         event("MODIFIED", "c", loadedAt+3),
		"an unknown object is deleted":          event("DELETED", "c", loadedAt+3),
		"a change is below the load's revision": event("MODIFIED", "b", loadedAt-1),
	} {
		proxytest.Bubble(t, name, feedCase{afterLoad: send(line), wantLoss: reason.Contradiction}.check)
	}
}

// TestRevisionGoesBack: a feed drops its state if the upstream's revision has gone back over two connections: then etcd was
// restored from a backup. A lower bookmark, or a lower revision over one connection, is no proof, since a single API server may
// lag.
func TestRevisionGoesBack(t *testing.T) {
	for name, tt := range map[string]feedCase{
		"a bookmark is below the load's revision":    {afterLoad: send(bookmark(loadedAt - 1))},
		"the revision goes back over one connection": {intercept: restoreOneServer()},
		"the revision goes back over all connections": {
			intercept: restoreStorage(), wantLoss: reason.WentBack,
		},
		"a bookmark goes back, and so does the revision": {
			intercept: restoreStorage(), afterLoad: send(bookmark(restoredAt)), duration: 5 * time.Second,
			wantUnavailable: reason.Warming, wantLoss: reason.WentBack,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestExpiredWatch: a feed whose watch ends with 410 loads the state anew, also if the upstream then refuses all requests for a
// minute.
func TestExpiredWatch(t *testing.T) {
	away := fault{begins: afterTheLoad, duration: time.Minute, answer: refuseFor(http.StatusServiceUnavailable, time.Second)}
	for name, intercept := range map[string]interceptor{"at once": nil, "after an outage": away.intercept()} {
		proxytest.Bubble(t, name, feedCase{
			intercept: intercept, afterLoad: send(errorEvent(http.StatusGone)), duration: 3 * time.Minute, wantLoss: reason.Expired,
		}.check)
	}
}

// TestFeedOfASlowServer: a feed loses no state within an hour in which the API server is slow, or refuses some requests. At the
// end there is a newest state.
func TestFeedOfASlowServer(t *testing.T) {
	const long = 39 * time.Minute // leaves the feed time to recover before the end of the hour
	tooMany := refuseFor(http.StatusTooManyRequests, time.Second)
	for name, tt := range map[string]struct {
		fault      fault
		streamEnds bool // right after the first load
	}{
		"a probe gets no answer": {
			fault: fault{kind: kindProbe, begins: time.Minute, duration: 20 * time.Second, delay: time.Hour},
		},
		"every other watch is refused":           {fault: fault{kind: kindWatch, everyOther: true, answer: tooMany}},
		"watches are answered after six seconds": {fault: fault{kind: kindWatch, delay: 6 * time.Second}},
		"all answers come after twenty seconds": {
			fault: fault{begins: time.Minute, duration: long, delay: 20 * time.Second},
		},
		"every other request is refused, and a watch breaks": {
			streamEnds: true, fault: fault{begins: time.Second, duration: long, everyOther: true, answer: tooMany},
		},
	} {
		afterLoad := func(p *plane) { p.write("b") }
		if tt.streamEnds {
			afterLoad = changeAndEnd(noLine)
		}
		proxytest.Bubble(t, name, feedCase{intercept: tt.fault.intercept(), afterLoad: afterLoad, duration: time.Hour}.check)
	}
}

// TestFeedsObeyRetryAfter: a feed does not repeat a refused request before its Retry-After is over, however often a probe is
// requested meanwhile. (In 100 seconds with a Retry-After of 40 seconds, two or three requests are refused.)
func TestFeedsObeyRetryAfter(t *testing.T) {
	const retryAfter, duration = 40 * time.Second, 100 * time.Second
	tooMany := refuseFor(http.StatusTooManyRequests, retryAfter)
	for name, tt := range map[string]struct {
		intercept       interceptor
		streamEnds      bool // right after the load
		wantUnavailable reason.Reason
	}{
		"before the load, probes are refused": {
			intercept: answerKind(kindProbe, tooMany), wantUnavailable: reason.Warming,
		},
		"streaming lists are refused": {
			intercept: refuseStreamingLists(tooMany), wantUnavailable: reason.Warming,
		},
		"the stream has ended, and watches are refused": {
			streamEnds: true,
			intercept:  answerKind(kindWatch, refuseFor(http.StatusServiceUnavailable, retryAfter)), wantUnavailable: reason.Stale,
		},
		"after the load, probes are refused": {
			intercept: fault{kind: kindProbe, begins: afterTheLoad, answer: tooMany}.intercept(), wantUnavailable: reason.Stale,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			refused := 0
			p := newPlane(t, "a", "b")
			p.intercept(func(p *plane, r *http.Request) (time.Duration, *http.Response) {
				hold, refusal := tt.intercept(p, r)
				if refusal != nil {
					refused++
				}
				return hold, refusal
			})
			c := runFeed(t, p, justLoaded)
			if tt.streamEnds {
				p.End(inmemory.Widgets.Path)
			}
			for begunAt := time.Now(); time.Since(begunAt) < duration; time.Sleep(100 * time.Millisecond) {
				c.requestProbe()
			}
			synctest.Wait()
			if wantRefused := (bounds{least: 2, most: 3}); !wantRefused.contain(refused) {
				t.Errorf("got %d refused requests in %v with a Retry-After of %v, want %+v", refused, duration, retryAfter, wantRefused)
			}
			expectUnavailable(t, c, tt.wantUnavailable)
		})
	}
}

// TestFeedsAreWoken: a feed whose watches are refused makes ever longer pauses. Two things end a pause: a client's request for
// a revision that the feed has not reached, and a request for a probe.
func TestFeedsAreWoken(t *testing.T) {
	const refusedFor = 50 * time.Second
	const nextChange = loadedAt + 2 // the feed has seen the change at loadedAt+1
	for name, wake := range map[string]func(context.Context, *Collection){
		"a list not older than the next change": func(ctx context.Context, c *Collection) {
			_, _ = c.NotOlderThan(ctx, nextChange) // may give up before the feed has the change
		},
		"a probe is requested": func(_ context.Context, c *Collection) { c.requestProbe() },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			// The stream ends after a change that the feed has seen. Watches are refused, so the feed does not see the next
			// change.
			p := newPlane(t, "a", "b")
			c := runFeed(t, p, justLoaded)
			const retryAtOnce time.Duration = 0
			refuseWatch := refuseFor(http.StatusTooManyRequests, retryAtOnce)
			p.intercept(func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
				if kind := kindOf(r); kind == kindWatch || kind == kindShortWatch {
					return 0, refuseWatch(r)
				}
				return 0, nil
			})
			changeAndEnd(noLine)(p)
			p.write("b")
			time.Sleep(refusedFor)

			// Watches are answered again, and the feed is woken. Soon it has the next change.
			p.intercept(nil)
			wake(t.Context(), c)
			time.Sleep(minStreamLife)
			synctest.Wait()
			if !c.view.Load().streaming {
				t.Errorf("%v after the feed was woken: it reads no stream", minStreamLife)
			}
			if _, unavailable := c.NotOlderThan(t.Context(), nextChange); unavailable != reason.None {
				t.Errorf("a state with the next change, with a stream again: got reason %q, want the state", unavailable)
			}
		})
	}
}
