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

// interceptor is an [inmemory.Intercept] that may write to the control plane.
type interceptor func(p *plane, r *http.Request) (hold time.Duration, instead *http.Response)

// intercept makes an interceptor see all requests from now on; nil: none.
func (p *plane) intercept(intercept interceptor) {
	p.SetIntercept(func(r *http.Request) (time.Duration, *http.Response) {
		if intercept == nil {
			return 0, nil
		}
		return intercept(p, r)
	})
}

// answerer answers a request.
type answerer func(r *http.Request) *http.Response

// respond answers with a code and a body.
func respond(code int, body string) answerer {
	return func(r *http.Request) *http.Response {
		answer := inmemory.Answer(r, code, body)
		answer.Header.Set("Cache-Control", "no-cache, private") // as API servers do
		return answer
	}
}

// errorEvent returns an error as a watch sends it.
func errorEvent(code int) string { return inmemory.EventLine("ERROR", inmemory.StatusOf(code, "")) }

// event returns an event with a widget as a watch sends it.
func event(kind, name string, revision int64) string {
	o := widget(name)
	o.Value = int(revision - 100) // inmemory.Etcd counts writes so, from revision 100 on
	return inmemory.Event{Type: kind, Object: o, Revision: revision}.Write(inmemory.Widgets, serverForm)
}

// bookmark returns a bookmark as a watch sends it.
func bookmark(revision int64) string { return inmemory.Bookmark(inmemory.Widgets, revision, false) }

// emptyList returns a list without widgets at a revision.
func emptyList(revision int64) string {
	const list = `{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"%d"}}`
	return fmt.Sprintf(list+"\n", revision)
}

// refuse answers with an error of an API server.
func refuse(code int) answerer { return respond(code, inmemory.StatusOf(code, "")) }

// refuseFor answers with an error of an API server that has a Retry-After, in whole seconds.
func refuseFor(code int, retryAfter time.Duration) answerer {
	return func(r *http.Request) *http.Response {
		answer := refuse(code)(r)
		answer.Header.Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		return answer
	}
}

// sendEvery answers a watch. It sends a line after each pause until the timeout of the watch; "": it sends nothing.
func sendEvery(pause time.Duration, line string) answerer {
	return func(r *http.Request) *http.Response {
		seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
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

// answerFirst answers the first n requests. For all others it returns nil.
func answerFirst(n int, answer answerer) answerer {
	return func(r *http.Request) *http.Response {
		if n--; n < 0 {
			return nil
		}
		return answer(r)
	}
}

// answerKind intercepts the requests of a kind. If answer returns nil, the API server answers.
func answerKind(kind requestKind, answer answerer) interceptor {
	return func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if kindOf(r) != kind {
			return 0, nil
		}
		return 0, answer(r)
	}
}

// afterTheLoad is a moment after the first request: to load and compare a state takes no time in a bubble.
const afterTheLoad = time.Millisecond

// fault is what an API server does wrong: it answers requests late, or in another way.
type fault struct {
	kind       requestKind   // of the requests; "": of any kind
	begins     time.Duration // after the first request
	duration   time.Duration // 0: for ever
	everyOther bool          // only every second request is affected
	delay      time.Duration // before the answer
	answer     answerer      // nil: the API server answers
}

func (f fault) intercept() interceptor {
	var firstRequest time.Time
	requests := 0
	return func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if firstRequest.IsZero() {
			firstRequest = time.Now()
		}
		since := time.Since(firstRequest) - f.begins
		isOver := f.duration > 0 && since > f.duration
		isOtherKind := f.kind != "" && f.kind != kindOf(r)
		if isOtherKind || since < 0 || isOver {
			return 0, nil
		}
		requests++
		if f.everyOther && requests%2 != 0 {
			return 0, nil
		}
		if f.answer == nil {
			return f.delay, nil
		}
		return f.delay, f.answer(r)
	}
}

// restoreStorage answers probes with a revision below that of the load, for some time after the load.
func restoreStorage() interceptor {
	restored := respond(http.StatusOK, emptyList(loadedAt-3))
	return fault{kind: kindProbe, begins: afterTheLoad, duration: 25 * time.Second, answer: restored}.intercept()
}

// restoreOneServer is restoreStorage for the server to which the feed's usual connection leads. Requests over connections of
// their own are answered as usual.
func restoreOneServer() interceptor {
	restored := restoreStorage()
	return func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		if isElsewhere := r.Close; isElsewhere {
			return 0, nil
		}
		return restored(p, r)
	}
}

// refuseStreamingLists refuses all streaming lists, also those of a name that cannot exist.
func refuseStreamingLists(answer answerer) interceptor {
	return func(_ *plane, r *http.Request) (time.Duration, *http.Response) {
		if kind := kindOf(r); kind != kindStreamingList && kind != kindEmptyStreamingList {
			return 0, nil
		}
		return 0, answer(r)
	}
}

// loadInPages refuses streaming lists, and answers lists of a load's pages. page returns the page that begins with a key.
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

// pagesAt returns a function for loadInPages. The first page has one widget, at the revision first. The other page has all
// others, at the revision later.
func pagesAt(first, later int64) func(p *plane, start string) string {
	return func(p *plane, start string) string {
		if start == "" {
			return p.list(first, inmemory.List{Limit: 1})
		}
		return p.list(later, inmemory.List{Start: start})
	}
}

// Arguments of answerAsBuiltIn.
const knowsShards, knowsNoShards = true, false

// answerAsBuiltIn answers lists as kube-apiserver answers those of built-in resources: only these have shards. With
// knowsShards, it answers as kube-apiserver 1.37: it repeats the selector of a shard, and does not count the objects after a
// page of the shard.
func answerAsBuiltIn(withShards bool) interceptor {
	const list = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}` + "\n"
	return func(p *plane, r *http.Request) (time.Duration, *http.Response) {
		q := r.URL.Query()
		page, more := inmemory.List{}, ""
		isOfShard := withShards && q.Has("shardSelector")
		switch kind := kindOf(r); {
		case kind == kindProbe:
			return 0, respond(http.StatusOK, fmt.Sprintf(list, p.Revision(), "", ""))(r)
		case kind != kindList:
			return 0, nil
		case q.Get("limit") == sampleLimit && isOfShard:
			page.Limit, more = 1, `,"continue":"x"`
		case q.Get("limit") == sampleLimit:
			page.Limit, more = 1, `,"continue":"x","remainingItemCount":1`
		}
		if isOfShard {
			more += fmt.Sprintf(`,"shardInfo":{"selector":%q}`, wire.AllShards)
		}
		_, items, _ := strings.Cut(p.list(p.Revision(), page), `"items":[`)
		items, _, _ = strings.Cut(items, `],"kind":`)
		return 0, respond(http.StatusOK, fmt.Sprintf(list, p.Revision(), more, items))(r)
	}
}
