package snapshot

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/inmemory"
)

// The tests of feeds have an API server in memory (plane_test.go). Interceptors make it do what an API server rarely or never
// does: they answer requests instead of the server, or hold back its answers. For example, this interceptor refuses all
// watches:
//
//	p.intercept(answerKind(kindWatch, refuse(http.StatusServiceUnavailable)))

// interceptor sees each request before the API server does. It returns the time for which the answer is held back, and an
// answer instead of the server's; nil: the server answers. So with 0 and nil, nothing unusual happens. It may write to the
// plane.
type interceptor func(p *plane, r *http.Request) (hold time.Duration, instead *http.Response)

// intercept makes an interceptor see all requests from now on; nil: the API server answers all of them.
func (p *plane) intercept(intercept interceptor) {
	p.SetIntercept(func(r *http.Request) (time.Duration, *http.Response) {
		if intercept == nil {
			return 0, nil
		}
		return intercept(p, r)
	})
}

// answerer answers a request. If it returns nil, the API server answers.
type answerer func(r *http.Request) *http.Response

// respond returns an answerer that answers with a code and a body.
func respond(code int, body string) answerer {
	return func(r *http.Request) *http.Response {
		answer := inmemory.Answer(r, code, body)
		answer.Header.Set("Cache-Control", "no-cache, private") // as API servers do
		return answer
	}
}

// errorEvent returns an error as a watch sends it.
func errorEvent(code int) string { return inmemory.EventLine("ERROR", inmemory.StatusOf(code, "")) }

// event returns an event as a watch sends it, with a widget as the API server would write it at this revision.
func event(eventType, name string, revision int64) string {
	o := widget(name)
	o.Value = int(revision - 100) // inmemory.Etcd begins at revision 100, and gives each written object the number of the write
	return inmemory.Event{Type: eventType, Object: o, Revision: revision}.Write(inmemory.Widgets, serverForm)
}

// bookmark returns a bookmark as a watch sends it.
func bookmark(revision int64) string { return inmemory.Bookmark(inmemory.Widgets, revision, false) }

// emptyList returns a list without widgets at a revision.
func emptyList(revision int64) string {
	const list = `{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"%d"}}`
	return fmt.Sprintf(list+"\n", revision)
}

// refuse returns an answerer that answers with an error of an API server.
func refuse(code int) answerer { return respond(code, inmemory.StatusOf(code, "")) }

// refuseFor returns an answerer that answers with an error of an API server and a Retry-After, in whole seconds.
func refuseFor(code int, retryAfter time.Duration) answerer {
	return func(r *http.Request) *http.Response {
		answer := refuse(code)(r)
		answer.Header.Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		return answer
	}
}

// sendEvery returns an answerer of watches. It sends a line after each pause, until the timeout of the watch. If the line is
// "", the watch is silent.
func sendEvery(pause time.Duration, line string) answerer {
	return func(r *http.Request) *http.Response {
		seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")) // a number, since a feed has set it
		in, out := io.Pipe()
		go func() {
			timeout, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
			defer cancel()
			for clock.Sleep(timeout, pause) {
				_, _ = io.WriteString(out, line) // fails if the client has gone
			}
			_ = out.CloseWithError(r.Context().Err())
		}()
		answer := respond(http.StatusOK, "")(r)
		answer.Body = in
		return answer
	}
}

// answerFirst returns an answerer of the first requests. The API server answers all later ones.
func answerFirst(number int, answer answerer) answerer {
	seen := 0
	return func(r *http.Request) *http.Response {
		seen++
		if seen > number {
			return nil
		}
		return answer(r)
	}
}

// answerKind returns an interceptor of the requests of a kind.
func answerKind(kind requestKind, answer answerer) interceptor {
	return func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if kindOf(r) != kind {
			return 0, nil
		}
		return 0, answer(r)
	}
}

// afterTheLoad is a moment after the first request, at which the state is loaded: in a bubble, a load takes no time.
const afterTheLoad = time.Millisecond

// fault is what an API server does wrong: it answers requests late, or in another way.
type fault struct {
	kind       requestKind   // the kind of the affected requests; "": any kind
	begins     time.Duration // the time after the first request at which the fault begins
	duration   time.Duration // 0: the fault does not end
	everyOther bool          // only every second request is affected
	delay      time.Duration // the time for which an answer is held back
	answer     answerer      // nil: the API server answers
}

// intercept returns an interceptor that makes the fault.
func (f fault) intercept() interceptor {
	var firstRequestAt time.Time
	affected := 0
	return func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if firstRequestAt.IsZero() {
			firstRequestAt = time.Now()
		}
		sinceBegin := time.Since(firstRequestAt) - f.begins
		isOver := f.duration > 0 && sinceBegin > f.duration
		isOtherKind := f.kind != "" && f.kind != kindOf(r)
		if isOtherKind || sinceBegin < 0 || isOver {
			return 0, nil
		}
		affected++
		if isFirstOfTwo := affected%2 != 0; f.everyOther && isFirstOfTwo {
			return 0, nil
		}
		if f.answer == nil {
			return f.delay, nil
		}
		return f.delay, f.answer(r)
	}
}

// restoredAt is the upstream's revision in restoreStorage.
const restoredAt = loadedAt - 3

// restoreStorage returns an interceptor of probes, which ask for the upstream's revision. For 25 seconds after the load, it
// answers them as if etcd had been restored from a backup: with a revision below that of the load.
func restoreStorage() interceptor {
	answer := respond(http.StatusOK, emptyList(restoredAt))
	return fault{kind: kindProbe, begins: afterTheLoad, duration: 25 * time.Second, answer: answer}.intercept()
}

// restoreOneServer is restoreStorage for one server only: the one to which the feed's usual connection leads. A feed that sees
// the revision go back asks again over another connection (see elsewhere). There, another server answers as usual.
func restoreOneServer() interceptor {
	restored := restoreStorage()
	return func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		if isElsewhere := r.Close; isElsewhere {
			return 0, nil
		}
		return restored(p, r)
	}
}

// refuseStreamingLists returns an interceptor of all streaming lists, also those of a name that cannot exist.
func refuseStreamingLists(answer answerer) interceptor {
	return func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if kind := kindOf(r); kind != kindStreamingList && kind != kindEmptyStreamingList {
			return 0, nil
		}
		return 0, answer(r)
	}
}

// loadInPages returns an interceptor that refuses streaming lists, so that the feed loads the state in pages. It answers the
// lists of these pages: page returns the page that begins with a key.
func loadInPages(page func(p *plane, start string) string) interceptor {
	refused := refuseStreamingLists(refuse(http.StatusUnprocessableEntity))
	return func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		q := r.URL.Query()
		if isPage := q.Has("continue") || q.Get("limit") == strconv.Itoa(maxLoadPage); isPage {
			return 0, respond(http.StatusOK, page(p, inmemory.Start(q.Get("continue"))))(r)
		}
		return refused(p, r)
	}
}

// pagesAt returns a function for loadInPages. The first page has one widget, at firstRevision. The second page has all others,
// at secondRevision.
func pagesAt(firstRevision, secondRevision int64) func(p *plane, start string) string {
	return func(p *plane, start string) string {
		if start == "" {
			return p.list(firstRevision, inmemory.List{Limit: 1})
		}
		return p.list(secondRevision, inmemory.List{Start: start})
	}
}

// Arguments of answerAsBuiltIn.
const knowsShards, knowsNoShards = true, false

// answerAsBuiltIn returns an interceptor that answers lists as kube-apiserver answers those of built-in resources: only these
// have shards (parts of a list that a shardSelector selects). With knowsShards, it answers as kube-apiserver 1.37: it repeats
// the selector of a shard in the metadata, and does not count the objects after a page of the shard. A page has one widget.
func answerAsBuiltIn(serverKnowsShards bool) interceptor {
	const list = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}` + "\n"
	return func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		q := r.URL.Query()
		isPage := q.Get("limit") == sampleLimit
		isOfShard := serverKnowsShards && q.Has("shardSelector")
		if kindOf(r) == kindProbe {
			return 0, respond(http.StatusOK, fmt.Sprintf(list, p.Revision(), "", ""))(r)
		}
		if kindOf(r) != kindList {
			return 0, nil
		}
		var wanted inmemory.List
		metadata := "" // what follows the resourceVersion
		if isPage {
			wanted.Limit = 1
			metadata += `,"continue":"x"`
		}
		if isPage && !isOfShard {
			metadata += `,"remainingItemCount":1`
		}
		if isOfShard {
			metadata += fmt.Sprintf(`,"shardInfo":{"selector":%q}`, wire.AllShards)
		}
		// The API server in memory writes a custom resource, whose fields have another order. Only the items are taken: they
		// are between the two texts below, which each of its lists has.
		_, items, _ := strings.Cut(p.list(p.Revision(), wanted), `"items":[`)
		items, _, _ = strings.Cut(items, `],"kind":`)
		return 0, respond(http.StatusOK, fmt.Sprintf(list, p.Revision(), metadata, items))(r)
	}
}
